"""What the plan said before any image was read, against what came out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from dataset_packaging.cli.outcome import JsonValue
from dataset_packaging.cli.requests import requests_of, summarize_requests
from dataset_packaging.cli.tables import (
    Column,
    format_bytes,
    format_count,
    format_dollars,
    format_seconds,
    number_columns,
    render_table,
)
from dataset_packaging.packing.prices import Prices
from dataset_packaging.packing.reports import ManifestReport, ShardsReport
from dataset_packaging.packing.request_estimate import (
    MANIFEST_ROW_BYTES,
    BucketLoad,
    Requests,
    RunLoad,
    blocks_of,
    estimate_requests,
)
from dataset_packaging.packing.work_estimate import WorkEstimate, estimate_work


@dataclass(frozen=True, slots=True)
class Amounts:
    """Predicted or actual. `worker_s` and `requests` are None where this run did only a part of the work.

    Attributes:
        rows: packed.
        shards: of all buckets.
        bytes: of the images.
        buckets: rows by bucket.
        worker_s: seconds of all tasks.
        requests: of the whole run.
    """

    rows: int
    shards: int
    bytes: int
    buckets: dict[str, int]
    worker_s: float | None
    requests: Requests | None

    @property
    def dollars(self) -> float | None:
        """Of the requests, at S3's prices."""
        return None if self.requests is None else Prices().dollars(self.requests)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Both sides, and how sure the predicted time is."""

    predicted: Amounts
    actual: Amounts
    work: WorkEstimate

    @property
    def rows_in_place(self) -> int:
        """Rows that stand in the bucket that the plan said, as far as counts tell."""
        return sum(min(rows, self.actual.buckets.get(key, 0)) for key, rows in self.predicted.buckets.items())


def compare(plan: ManifestReport, shards: ShardsReport, counts: Mapping[str, int], resized: int = 0) -> Prediction:
    """Hold the shards against the plan that was made before any image was read.

    Args:
        plan: Of the run's first manifest step.
        shards: What came out.
        counts: What the run did to its stores.
        resized: Sets of resized images that it made.
    """
    planned = {key: bucket for key, bucket in plan.buckets.items() if bucket.shards}
    made = {key: bucket for key, bucket in shards.buckets.items() if bucket.shards}
    work = WorkEstimate()
    for bucket in planned.values():
        work = work.plus(estimate_work(bucket.rows, bucket.estimated_bytes, bucket.estimated_px, bucket.shards))
    whole = bool(made) and all(bucket.shards_written >= bucket.shards for bucket in made.values())
    load = RunLoad(
        len(plan.sources),
        plan.rows * MANIFEST_ROW_BYTES,
        blocks_of(plan.rows),
        plan.probed,
        tuple(BucketLoad.of_new(bucket.rows, bucket.estimated_bytes, bucket.shards) for bucket in planned.values()),
        resized,
    )
    return Prediction(
        Amounts(
            sum(bucket.rows for bucket in planned.values()),
            sum(bucket.shards for bucket in planned.values()),
            sum(bucket.estimated_bytes for bucket in planned.values()),
            {key: bucket.rows for key, bucket in planned.items() if bucket.rows},
            work.likely_s,
            estimate_requests(load),
        ),
        Amounts(
            sum(bucket.rows for bucket in made.values()),
            sum(bucket.shards for bucket in made.values()),
            sum(bucket.bytes for bucket in made.values()),
            {key: bucket.rows for key, bucket in made.items() if bucket.rows},
            sum(bucket.seconds for bucket in made.values()) if whole else None,
            requests_of(counts) if whole else None,
        ),
        work,
    )


def render_prediction(found: Prediction) -> str:
    """Write both sides as a table."""
    predicted, actual = found.predicted, found.actual
    rows = [
        ("rows", format_count(predicted.rows), format_count(actual.rows)),
        ("rows in the bucket that was planned", format_count(predicted.rows), format_count(found.rows_in_place)),
        ("buckets", format_count(len(predicted.buckets)), format_count(len(actual.buckets))),
        ("shards", format_count(predicted.shards), format_count(actual.shards)),
        ("image bytes", format_bytes(predicted.bytes), format_bytes(actual.bytes)),
    ]
    if actual.worker_s is not None and actual.requests is not None and predicted.requests is not None:
        span = f"{format_seconds(found.work.low_s)} to {format_seconds(found.work.high_s)}"
        rows += [
            ("time of all workers", span, format_seconds(actual.worker_s)),
            ("requests", format_count(_all_of(predicted.requests)), format_count(_all_of(actual.requests))),
            (
                "requests, at S3's prices",
                format_dollars(predicted.dollars or 0.0),
                format_dollars(actual.dollars or 0.0),
            ),
        ]
    return render_table((Column("of the plan"), *number_columns("predicted", "actual")), rows)


def _all_of(requests: Requests) -> int:
    return requests.gets + requests.heads + requests.puts + requests.lists


def summarize_prediction(found: Prediction) -> dict[str, JsonValue]:
    """Say the same to machines."""

    def tell(amounts: Amounts) -> dict[str, JsonValue]:
        return {
            "rows": amounts.rows,
            "shards": amounts.shards,
            "bytes": amounts.bytes,
            "buckets": {**amounts.buckets},
            "worker_seconds": None if amounts.worker_s is None else round(amounts.worker_s, 3),
            "requests": None if amounts.requests is None else summarize_requests(amounts.requests),
            "dollars": amounts.dollars,
        }

    return {
        "predicted": {
            **tell(found.predicted),
            "worker_seconds_low": round(found.work.low_s, 3),
            "worker_seconds_high": round(found.work.high_s, 3),
        },
        "actual": tell(found.actual),
        "rows_in_place": found.rows_in_place,
    }
