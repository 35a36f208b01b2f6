"""What came of packing a dataset, as tables and as a summary. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dataset_packaging.cli.outcome import JsonValue
from dataset_packaging.cli.prediction import Prediction, compare, render_prediction, summarize_prediction
from dataset_packaging.cli.requests import render_work, source_gets_per_image
from dataset_packaging.cli.tables import (
    Column,
    format_bytes,
    format_count,
    format_fraction,
    number_columns,
    render_table,
)
from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.ledger import Ledger, LedgerLine
from dataset_packaging.packing.reports import BucketShards, ManifestReport, ResizedReport, ShardsReport, SidecarsReport

_CHECKS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """A check that failed; `bucket` is None for one of the whole dataset."""

    check: str
    bucket: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class PackResult:
    """What came of packing a dataset.

    Attributes:
        idle: Whether there was nothing to do, so that no run was made.
        message: Why the run failed, or that there was nothing to do; None where there is nothing to say.
        run_ids: Of the runs that were made.
        ledger: Every row's fate; None where it could not be read.
        manifest: Report of the step; None where it did not get to its end, as with the next two.
        shards: Report of the step.
        sidecars: Report of the step.
        resized: Report of each set of resized images.
        plan: First report of the manifest step, made before any image was read.
        failed_checks: In the order in which they were evaluated.
        counts: What was done to the stores; see `Stores.stats`.
    """

    idle: bool
    message: str | None
    run_ids: tuple[str, ...]
    ledger: Ledger | None
    manifest: ManifestReport | None
    shards: ShardsReport | None
    sidecars: SidecarsReport | None
    failed_checks: tuple[CheckFailure, ...]
    resized: tuple[ResizedReport, ...] = ()
    plan: ManifestReport | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def prediction(self) -> Prediction | None:
        """What was planned against what came out; None where either is not known, or nothing was planned."""
        if self.plan is None or self.shards is None or not self.plan.buckets:
            return None
        return compare(self.plan, self.shards, self.counts, len(self.resized))

    @property
    def images(self) -> int:
        """Images whose fate is known: in the shards, or rejected."""
        buckets = self.shards.buckets.values() if self.shards else ()
        return sum(bucket.rows + sum(bucket.rejects.values()) for bucket in buckets)


def render_result(dataset: DatasetConfig, result: PackResult) -> str:
    """Write what came of a run, or that there was nothing to do; pure."""
    checks = _render_checks(result.failed_checks)
    if result.idle:
        return f"{result.message}\n{checks}"
    sections = [checks]
    if result.ledger is not None:
        shards = result.shards.buckets if result.shards else {}
        sections = [_render_buckets(result.ledger, shards), _render_rejects(result.ledger), checks]
    if result.prediction is not None:
        sections.append(render_prediction(result.prediction))
    sections.append(_render_end(dataset, result))
    return "\n".join(section for section in sections if section)


def _render_buckets(ledger: Ledger, shards: dict[str, BucketShards]) -> str:
    lines = [*((line, [shards[line.bucket]] if line.bucket in shards else []) for line in ledger.lines)]
    total = ledger.total
    fates = {"rows": True, "packed": True, "rejected": total.rejected_rows, "duplicate": total.duplicates,
             "pending": total.pending}  # fmt: skip
    shown = [fate for fate, count in fates.items() if count]
    columns = (Column("bucket"), *number_columns(*shown, "shards", "written", "bytes"))
    rows = [_bucket_row(line.bucket, line, counted, shown) for line, counted in lines]
    totals = _bucket_row("all", total, list(shards.values()), shown)
    return render_table(columns, rows, footer=totals if rows else ())


def _bucket_row(name: str, line: LedgerLine, shards: list[BucketShards], shown: list[str]) -> list[str]:
    fates = {"rows": line.rows, "packed": line.packed, "rejected": line.rejected_rows, "duplicate": line.duplicates,
             "pending": line.pending}  # fmt: skip
    return [
        name,
        *(format_count(fates[fate]) for fate in shown),
        format_count(sum(bucket.shards for bucket in shards)),
        format_count(sum(bucket.shards_written for bucket in shards)),
        format_bytes(sum(bucket.bytes for bucket in shards)),
    ]


def _render_rejects(ledger: Ledger) -> str:
    total = ledger.total
    rows = [
        (reason, format_count(count), format_fraction(count, total.rows))
        for reason, count in sorted(total.rejected.items(), key=lambda item: -item[1])
    ]
    return render_table((Column("rejected for"), *number_columns("rows", "of all rows")), rows)


def _render_checks(checks: tuple[CheckFailure, ...]) -> str:
    rows = [(check.check, check.bucket or "", check.detail) for check in checks[:_CHECKS_SHOWN]]
    table = render_table((Column("failed check"), Column("bucket"), Column("finding")), rows)
    hidden = len(checks) - len(rows)
    return table + (f"and {hidden} more failed checks\n" if hidden else "")


def _render_end(dataset: DatasetConfig, result: PackResult) -> str:
    lines = []
    if result.shards is not None:
        size_bytes = sum(bucket.bytes for bucket in result.shards.buckets.values())
        lines.append(f"shards: {dataset.output_prefix} ({format_bytes(size_bytes)} of images)")
        lines += [_render_resized(dataset, report) for report in result.resized]
        lines.append(f"sidecars: {dataset.sidecar_prefix}")
    if any(uri.startswith("s3://") for uri in (*dataset.manifest, *dataset.prefixes.values())):
        lines.append(render_work(result.counts, result.images))
    lines.append("lineage, checks and history: dataset-packaging ui")
    if result.ledger is not None and not result.message and not result.failed_checks and dataset.source:
        lines.append(f"next: dataset-packaging handoff {dataset.source}")
    return "\n".join(lines) + "\n"


def _render_resized(dataset: DatasetConfig, report: ResizedReport) -> str:
    buckets = report.buckets.values()
    failed = sum(count for bucket in buckets for count in bucket.failed.values())
    told = f", {format_count(failed)} rows without an image" if failed else ""
    size = format_bytes(sum(bucket.bytes for bucket in buckets))
    return f"resized: {dataset.resized_prefix}/{report.size} ({size}{told})"


def summarize_result(dataset: DatasetConfig, result: PackResult) -> dict[str, JsonValue]:
    """Say the same to machines; pure."""
    total = result.ledger.total if result.ledger else None
    shards = list(result.shards.buckets.values()) if result.shards else None
    sidecars = list(result.sidecars.buckets.values()) if result.sidecars else None
    lines = {line.bucket: line for line in result.ledger.lines} if result.ledger else {}
    return {
        "dataset": dataset.name,
        "up_to_date": result.idle,
        "message": result.message,
        "run_ids": [*result.run_ids],
        "generation": result.manifest.generation if result.manifest else None,
        "rows": total.rows if total else None,
        "packed": total.packed if total else None,
        "rejected": {**total.rejected} if total else None,
        "duplicates": total.duplicates if total else None,
        "pending": total.pending if total else None,
        "rejected_fraction": result.ledger.rejected_fraction if result.ledger else None,
        "shards": sum(bucket.shards for bucket in shards) if shards is not None else None,
        "shards_written": sum(bucket.shards_written for bucket in shards) if shards is not None else 0,
        "sidecars_written": sum(bucket.shards_written for bucket in sidecars) if sidecars is not None else 0,
        "resized": {
            str(report.size): {
                "shards_written": sum(bucket.shards_written for bucket in report.buckets.values()),
                "bytes": sum(bucket.bytes for bucket in report.buckets.values()),
                "failed": sum(count for bucket in report.buckets.values() for count in bucket.failed.values()),
            }
            for report in result.resized
        },
        "bytes": sum(bucket.bytes for bucket in shards) if shards is not None else None,
        "buckets": {
            key: _summarize_bucket(line, result.shards.buckets.get(key) if result.shards else None)
            for key, line in lines.items()
        },
        "prediction": summarize_prediction(result.prediction) if result.prediction else None,
        "failed_checks": [
            {"check": check.check, "bucket": check.bucket, "detail": check.detail} for check in result.failed_checks
        ],
        "requests": {**result.counts},
        "source_gets_per_image": source_gets_per_image(result.counts, result.images),
        "output_prefix": dataset.output_prefix,
        "sidecar_prefix": dataset.sidecar_prefix,
        "work_prefix": dataset.work_prefix,
    }


def _summarize_bucket(line: LedgerLine, shards: BucketShards | None) -> JsonValue:
    return {
        "rows": line.rows,
        "packed": line.packed,
        "rejected": {**line.rejected},
        "duplicates": line.duplicates,
        "pending": line.pending,
        "shards": shards.shards if shards else None,
        "shards_written": shards.shards_written if shards else 0,
        "bytes": shards.bytes if shards else None,
    }
