"""Progress on a terminal, in a log, and on a stream whose reader has gone."""

import os
import pty
import threading
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from dataset_packaging.cli.progress import describe_report, open_progress
from dataset_packaging.packing.reports import ProgressReport

HALF = ProgressReport(
    stage="shards", note="packing", done=52, total=139, unit="shards", rows=12_340, bytes=900_000_000,
    rate_rows_s=812.4, rate_bytes_s=55_100_000.0, eta_s=92.0, in_flight=4, concurrency=16,
)  # fmt: skip
START = replace(HALF, done=0, total=None, rows=0, bytes=0, rate_rows_s=0.0, rate_bytes_s=0.0, eta_s=None, in_flight=0)


def test_a_report_is_one_line_with_rates_and_time_left():
    line = describe_report(HALF)
    assert line.startswith(
        "shards: 52 of 139 shards (37 %), 12,340 rows, 812 rows/s, 55.1 MB/s, 1:32 left, 4 in flight"
    )
    assert "None" not in describe_report(START)


def test_a_note_from_the_data_cannot_break_the_line():
    assert describe_report(replace(HALF, note="a\nb\x1b[2J")).isprintable()


def test_without_a_terminal_stages_start_and_end_with_a_line():
    log = StringIO()
    with open_progress(log) as progress:
        progress.report(START)
        for done in range(1, 140):
            progress.report(replace(HALF, done=done))
        progress.report(replace(HALF, stage="sidecars", done=0))
    lines = log.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == ["shards", "shards", "sidecars"]
    assert "139 of 139 shards (100 %)" in lines[1]


class _Log(StringIO):
    """Text that tells when it has so many lines."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self._wanted = wanted
        self.reached = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        if self.getvalue().count("\n") >= self._wanted:
            self.reached.set()
        return count


@pytest.mark.parametrize("reports", [(), (HALF,)], ids=["before-the-first-report", "between-reports"])
def test_without_a_terminal_silence_is_never_long(reports: tuple[ProgressReport, ...]):
    log = _Log(4)
    with open_progress(log, line_interval_s=0.01) as progress:
        for report in reports:
            progress.report(report)
        assert log.reached.wait(30)


def test_a_reader_that_has_gone_does_not_stop_the_work():
    read_end, write_end = os.pipe()
    os.close(read_end)
    # Closing the stream flushes it: what could not be written must not come up again.
    with os.fdopen(write_end, "w", buffering=1) as stream, open_progress(stream) as progress:
        progress.report(HALF)
        progress.report(replace(HALF, done=139))


def test_on_a_terminal_there_is_a_bar():
    terminal, behind = pty.openpty()
    with os.fdopen(behind, "w") as stream, open_progress(stream) as progress:
        progress.report(START)
        progress.report(HALF)
    shown = b""
    while b"1:32 left" not in shown:
        shown += os.read(terminal, 65536)
    os.close(terminal)
    assert "━" in shown.decode(errors="replace")
    assert b"52 of 139 shards" in shown


def test_disabled_progress_shows_nothing():
    log = StringIO()
    with open_progress(log, enabled=False, line_interval_s=0.001) as progress:
        progress.report(HALF)
    assert log.getvalue() == ""


def test_the_log_file_of_a_run_in_the_background_has_lines(tmp_path: Path):
    with (tmp_path / "log").open("w") as stream, open_progress(stream) as progress:
        progress.report(HALF)
    assert (tmp_path / "log").read_text().endswith("\n")
