"""Progress on stderr: a bar on a terminal, a line every few seconds elsewhere. It never stops the work it shows."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, TextIO

from dataset_packaging.cli.streams import discard_output
from dataset_packaging.cli.tables import (
    WIDTH_COLUMNS,
    format_bytes,
    format_count,
    format_items,
    format_seconds,
    printable,
)

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from dataset_packaging.packing.reports import ProgressReport

LINE_INTERVAL_S = 5.0


class ProgressDisplay(Protocol):
    """What the pipeline reports to; `report` may be called from any thread."""

    def report(self, report: "ProgressReport", /) -> None:
        """Show how far one stage is; returns at once and never raises."""


def open_progress(
    stream: TextIO, *, enabled: bool = True, line_interval_s: float = LINE_INTERVAL_S
) -> AbstractContextManager[ProgressDisplay]:
    """Show reports on `stream` while the context is open: a bar where it is a terminal, else lines.

    A stream that can no longer be written (its reader has gone) ends the display and nothing else.

    Args:
        stream: Usually stderr; stdout is kept for results.
        enabled: False shows nothing.
        line_interval_s: Where there is no terminal, a line appears at least this often.
    """
    if not enabled:
        return nullcontext(_NoDisplay())
    lasting = _LastingStream(stream)
    return _open_bar(lasting) if stream.isatty() else _open_lines(lasting, line_interval_s)


def describe_report(report: "ProgressReport") -> str:
    """Write a report as one line: `shards: 52 of 139 shards (37 %), 812 rows/s, 55.1 MB/s, 1:32 left`; pure."""
    return f"{report.stage}: " + ", ".join([describe_amount(report), *describe_rates(report)])


def describe_amount(report: "ProgressReport") -> str:
    """Write how much of a stage is done: `52 of 139 shards (37 %)`; pure."""
    write = format_bytes if report.unit == "bytes" else format_count
    unit = "" if report.unit == "bytes" else f" {report.unit}"
    if not report.total:
        return f"{write(report.done)}{unit}"
    percent = min(100, 100 * report.done // report.total)
    return f"{write(report.done)} of {write(report.total)}{unit} ({percent} %)"


def describe_rates(report: "ProgressReport") -> list[str]:
    """Write what is known of rates, time left, tasks in flight and the note, one text each; pure."""
    parts = []
    if report.unit != "rows" and report.rows:
        parts.append(format_items(report.rows, "row"))
    if report.rate_rows_s:
        parts.append(f"{report.rate_rows_s:,.0f} rows/s")
    if report.rate_bytes_s:
        parts.append(f"{report.rate_bytes_s / 1e6:,.1f} MB/s")
    if report.eta_s is not None and not _is_complete(report):
        parts.append(f"{format_seconds(report.eta_s)} left")
    if report.in_flight:
        parts.append(f"{report.in_flight} in flight")
    if report.note:
        parts.append(printable(report.note, WIDTH_COLUMNS))
    return parts


def _is_complete(report: "ProgressReport") -> bool:
    return report.total is not None and report.done >= report.total


class _NoDisplay:
    def report(self, report: "ProgressReport", /) -> None:
        pass


class _LastingStream:
    """A text stream whose loss is nobody's error: after the first failed write it drops everything."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        if not self._lost:
            try:
                self._stream.write(text)
            except OSError:
                self._lose()
        return len(text)

    def flush(self) -> None:
        if not self._lost:
            try:
                self._stream.flush()
            except OSError:
                self._lose()

    def _lose(self) -> None:
        self._lost = True
        discard_output(self._stream)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


class _LineDisplay:
    """Prints a stage's first report, its last one, and in between the newest whenever `tick` is called."""

    def __init__(self, stream: _LastingStream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._newest: ProgressReport | None = None
        self._printed: ProgressReport | None = None
        self._is_end_printed = False

    def report(self, report: "ProgressReport", /) -> None:
        with self._lock:
            stage_is_new = self._newest is None or self._newest.stage != report.stage
            if stage_is_new:
                self._print_newest()
            self._is_end_printed &= not stage_is_new and _is_complete(report)
            self._newest = report
            if stage_is_new or _is_complete(report):
                self._print_newest()

    def tick(self) -> None:
        """Print where things stand, changed or not: silence would look like a hang."""
        with self._lock:
            if self._newest is None:
                self._print("starting")
            else:
                self._print(describe_report(self._newest))
                self._printed = self._newest

    def close(self) -> None:
        """Print the last report of the last stage."""
        with self._lock:
            self._print_newest()

    def _print_newest(self) -> None:
        if self._newest is None or self._newest == self._printed or self._is_end_printed:
            return
        self._print(describe_report(self._newest))
        self._printed = self._newest
        self._is_end_printed = _is_complete(self._newest)

    def _print(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


@contextmanager
def _open_lines(stream: _LastingStream, interval_s: float) -> Iterator[ProgressDisplay]:
    display = _LineDisplay(stream)
    closed = threading.Event()

    def tick_until_closed() -> None:
        while not closed.wait(interval_s):
            display.tick()

    ticker = threading.Thread(target=tick_until_closed, name="progress", daemon=True)
    ticker.start()
    try:
        yield display
    finally:
        closed.set()
        ticker.join()
        display.close()


class _BarDisplay:
    """One bar for each stage, in the order in which they first report."""

    def __init__(self, bars: "Progress") -> None:
        self._bars = bars
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}

    def report(self, report: "ProgressReport", /) -> None:
        with self._lock:
            if report.stage not in self._tasks:
                self._tasks[report.stage] = self._bars.add_task(report.stage, total=None, amount="", rates="")
            self._bars.update(
                self._tasks[report.stage],
                total=report.total,
                completed=report.done,
                amount=describe_amount(report),
                rates="  ".join(describe_rates(report)),
            )


@contextmanager
def _open_bar(stream: _LastingStream) -> Iterator[ProgressDisplay]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[amount]}", markup=False),
        TextColumn("{task.fields[rates]}", markup=False),
        console=Console(file=stream, force_terminal=True, markup=False),  # type: ignore[arg-type]
        refresh_per_second=5,
    )
    with bars:
        yield _BarDisplay(bars)
