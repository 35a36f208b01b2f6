"""The closing tables of a pack, for datasets of any size."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from dataset_packaging.cli.pack_report import CheckFailure, PackResult, render_result, summarize_result
from dataset_packaging.cli.prediction import compare, render_prediction
from dataset_packaging.config import DatasetConfig, parse_dataset
from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.ledger import Ledger, LedgerLine
from dataset_packaging.packing.reports import BucketPlan, BucketShards, ManifestReport, ShardsReport


def _dataset() -> DatasetConfig:
    return parse_dataset("name: photos\nmanifest: m.jsonl\noutput_prefix: out\n", "photos.yaml", Path("/data"), {})


def _result(lines: list[LedgerLine], shards: dict[str, BucketShards], *checks: CheckFailure) -> PackResult:
    return PackResult(
        idle=False, message=None, run_ids=("1",), ledger=Ledger(tuple(lines)), manifest=None,
        shards=ShardsReport(shards, 1.0, {"get": 1}), sidecars=None, failed_checks=checks,
    )  # fmt: skip


def _bucket(rows: int, shards: int) -> BucketShards:
    return BucketShards(
        rows=rows, bytes=rows * 250_000, shards=shards, shards_written=shards, rejects={}, moved=0, pending=0,
        row_groups=shards, seconds=1.0, problems=(),
    )  # fmt: skip


def _table_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(" ")]


def test_a_hundred_million_rows_fit_into_100_columns():
    lines = [
        LedgerLine(bucket.key, 100_000_000, 98_000_000, {"not_found": 1_000_000}, 1_000_000, 0) for bucket in BUCKETS
    ]
    text = render_result(_dataset(), _result(lines, {bucket.key: _bucket(98_000_000, 100_000) for bucket in BUCKETS}))
    assert max(map(cell_len, _table_lines(text))) <= 100
    assert "13,500,000,000" in text
    assert "3.31 PB" in text


def test_fates_that_no_row_has_are_left_out():
    text = render_result(_dataset(), _result([LedgerLine("0_512/10000", 3, 3)], {"0_512/10000": _bucket(3, 1)}))
    (heading, *_) = _table_lines(text)
    assert heading.split() == ["bucket", "rows", "packed", "shards", "written", "bytes"]
    assert "rejected for" not in text


def test_a_part_of_the_work_is_not_held_against_all_of_it():
    plan = ManifestReport(1, False, 8, 0, {}, 0, 0, {"0_512/10000": BucketPlan(8, 0, 2, 2_000_000, 9_000_000)}, (), 1.0)
    whole = compare(plan, ShardsReport({"0_512/10000": replace(_bucket(6, 2), seconds=3.0)}, 1.0, {"get": 9, "put": 8}))
    assert (whole.actual.worker_s, whole.rows_in_place) == (3.0, 6)
    assert whole.actual.dollars == pytest.approx((9 * 0.0004 + 8 * 0.005) / 1000)
    assert "time of all workers" in render_prediction(whole)
    part = compare(plan, ShardsReport({"0_512/10000": replace(_bucket(6, 2), shards_written=1)}, 1.0, {"get": 9}))
    assert part.actual.worker_s is None
    assert "time of all workers" not in render_prediction(part)


def test_pending_rows_and_failed_checks_are_shown():
    lines = [LedgerLine("0_512/10000", 4, 1, {"not_found": 1}, 1, 1)]
    check = CheckFailure("bucket_membership", "0_512/10000", "row 3 is 9 x 9, which is 0_512/10000 " + "x" * 300)
    result = _result(lines, {"0_512/10000": _bucket(1, 1)}, check)
    text = render_result(_dataset(), result)
    assert max(map(cell_len, _table_lines(text))) <= 100
    assert "pending" in text
    assert "bucket_membership" in text
    summary = summarize_result(_dataset(), result)
    assert (summary["pending"], summary["rejected"], summary["duplicates"]) == (1, {"not_found": 1}, 1)
    assert summary["failed_checks"] == [{"check": "bucket_membership", "bucket": "0_512/10000", "detail": check.detail}]
