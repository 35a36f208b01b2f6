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
        shards=ShardsReport(shards, 1.0), sidecars=None, failed_checks=checks,
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
    whole = compare(
        plan, ShardsReport({"0_512/10000": replace(_bucket(6, 2), seconds=3.0)}, 1.0), {"get": 8, "head": 1, "put": 8}
    )
    assert (whole.actual.worker_s, whole.rows_in_place) == (3.0, 6)
    assert whole.actual.dollars == pytest.approx((9 * 0.0004 + 8 * 0.005) / 1000)
    assert "time of all workers" in render_prediction(whole)
    part = compare(plan, ShardsReport({"0_512/10000": replace(_bucket(6, 2), shards_written=1)}, 1.0), {"get": 9})
    assert part.actual.worker_s is None
    assert "time of all workers" not in render_prediction(part)


def test_what_was_asked_of_s3_is_told_on_two_lines():
    dataset = _dataset().model_copy(update={"output_prefix": "s3://b/out"})
    counts = {"get": 1200, "source_get": 303, "head": 2, "put": 200, "list": 82, "retries": 7, "throttled": 5,
              "grant_calls": 6}  # fmt: skip
    result = replace(_result([LedgerLine("0_512/10000", 300, 300)], {"0_512/10000": _bucket(300, 1)}), counts=counts)
    text = render_result(dataset, result)
    told = text[text.index("requests: ") :].splitlines()[:2]
    assert told[0].startswith("requests: 1,200 GET, 2 HEAD, 200 PUT, 82 LIST; at S3's prices <$0.01")
    assert told[1].split("; ") == [
        "          1.01 GET per image, manifest included",
        "7 tried again, 5 throttled",
        "6 grant calls",
    ]
    assert max(map(len, told)) <= 100
    assert "requests: " not in render_result(_dataset(), result)
    assert summarize_result(dataset, result)["requests"] == counts


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
