"""Progress lines: often enough to be followed, few enough for an event log."""

import logging

from dataset_packaging.orchestration.progress import LogProgress, describe_progress
from dataset_packaging.packing.reports import ProgressReport


def _report(done: int, total: int | None = 1_000_000, stage: str = "shards") -> ProgressReport:
    return ProgressReport(stage, "", done, total, "shards", 100 * done, 1000 * done, 812.4, 55.1e6, 92.0, 8, 16)  # type: ignore[arg-type]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _follow(seconds: int, reports_per_second: int) -> list[str]:
    now_s = 0.0
    lines = _Lines()
    log = logging.Logger("test", logging.INFO)
    log.addHandler(lines)
    progress = LogProgress(log, lambda: now_s)
    for number in range(seconds * reports_per_second):
        now_s = number / reports_per_second
        progress.report(_report(number, total=seconds * reports_per_second * 2))
    return lines.lines


def test_a_line_names_rate_share_time_left_and_what_is_in_flight():
    assert describe_progress(_report(250_000)) == (
        "shards: 250,000 of 1,000,000 shards, 25 %, 812 rows/s, 55.1 MB/s, 92 s left, 8 in flight, 16 requests at once"
    )


def test_a_line_without_a_total_has_no_share():
    assert describe_progress(_report(5, total=None)).startswith("shards: 5 shards, 812 rows/s")


def test_there_is_a_line_every_few_seconds():
    assert len(_follow(60, reports_per_second=10)) == 12


def test_lines_are_bounded_by_time_and_not_by_reports():
    """DAG-09: logging per row or per shard fills the event log."""
    assert len(_follow(600, reports_per_second=2)) <= 120
    assert len(_follow(600, reports_per_second=20)) <= 120
    assert len(_follow(24 * 3600, reports_per_second=1)) < 2000


def test_the_end_of_a_stage_shows_once():
    lines = _Lines()
    log = logging.Logger("test", logging.INFO)
    log.addHandler(lines)
    progress = LogProgress(log, lambda: 0.0)
    for report in (_report(1, 3), _report(2, 3), _report(3, 3), _report(3, 3), _report(0, 3, "sidecars")):
        progress.report(report)
    assert [line.split(",")[0] for line in lines.lines] == [
        "shards: 1 of 3 shards",
        "shards: 3 of 3 shards",
        "sidecars: 0 of 3 shards",
    ]
