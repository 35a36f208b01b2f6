"""Progress of a run as lines of its log."""

import logging
import time
from collections.abc import Callable, Sequence

from dataset_packaging.packing.reports import Progress, ProgressReport

INTERVAL_S = 5.0
INTERVAL_MAX_S = 60.0


class LogProgress:
    """Writes a line about a stage every few seconds: how far, how fast, how long still, how much in flight.

    The first and the last report of a stage always show. In between the pause grows with the length of the run, from
    `INTERVAL_S` to `INTERVAL_MAX_S`, so that the event log is bounded by time and not by shards. May be called from
    any thread.

    Args:
        log: A run's logger.
        clock: Seconds that only go forward.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._started_s = clock()
        self._stage: str | None = None
        self._finished = False
        self._written_s = 0.0

    def report(self, report: ProgressReport, /) -> None:
        """Write the report if it is time for a line."""
        now_s = self._clock()
        stage_is_new = report.stage != self._stage
        finished = report.total is not None and report.done >= report.total
        ends_now = finished and (stage_is_new or not self._finished)
        pause_s = min(max(INTERVAL_S, (now_s - self._started_s) / 100), INTERVAL_MAX_S)
        self._stage, self._finished = report.stage, finished
        if stage_is_new or ends_now or now_s - self._written_s >= pause_s:
            self._written_s = now_s
            self._log.info(describe_progress(report))


class ProgressRelay:
    """Hands every report on to several listeners, in order."""

    def __init__(self, listeners: Sequence[Progress]) -> None:
        self._listeners = listeners

    def report(self, report: ProgressReport, /) -> None:
        """Pass the report on."""
        for listener in self._listeners:
            listener.report(report)


def describe_progress(report: ProgressReport) -> str:
    """Write a report as one line: `shards: 52 of 139 shards, 37 %, 812 rows/s, 55.1 MB/s, 92 s left, 8 in flight`.

    Pure.
    """
    amount = f"{report.done:,}" if report.total is None else f"{report.done:,} of {report.total:,}"
    parts = [f"{amount} {report.unit}"]
    if report.total:
        parts.append(f"{min(100, 100 * report.done // report.total)} %")
    if report.rate_rows_s:
        parts.append(f"{report.rate_rows_s:,.0f} rows/s")
    if report.rate_bytes_s:
        parts.append(f"{report.rate_bytes_s / 1e6:,.1f} MB/s")
    if report.eta_s is not None and report.eta_s > 0:
        parts.append(f"{report.eta_s:,.0f} s left")
    if report.in_flight:
        parts.append(f"{report.in_flight} in flight")
    if report.concurrency:
        parts.append(f"{report.concurrency} requests at once")
    if report.note:
        parts.append(report.note)
    return f"{report.stage}: {', '.join(parts)}"
