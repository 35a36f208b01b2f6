"""`pack`: manifest to shards to sidecars, as a run of the Dagster job in this process."""

import argparse
from pathlib import Path

from dataset_packaging.cli.execution import read_execution_options, require_reasons
from dataset_packaging.cli.outcome import JsonValue, Outcome
from dataset_packaging.cli.progress import open_progress
from dataset_packaging.cli.streams import only_own_output
from dataset_packaging.cli.tables import (
    Column,
    format_bytes,
    format_count,
    format_fraction,
    number_columns,
    render_table,
)
from dataset_packaging.config import DatasetConfig, load_dataset
from dataset_packaging.core.ledger import REJECT_REASONS, Ledger, LedgerLine
from dataset_packaging.orchestration.instance import open_instance
from dataset_packaging.orchestration.local_runs import FailedCheck, PackagingOutcome, run_packaging
from dataset_packaging.packing.reports import BucketShards, RunOptions

_CHECKS_SHOWN = 20


def run(args: argparse.Namespace) -> Outcome:
    """Pack what is not packed yet; safe to repeat and to interrupt."""
    options = RunOptions(
        rewrite=args.rewrite,
        rebuild=args.rebuild,
        retry_rejected=require_reasons("--retry-rejected", args.retry_rejected, REJECT_REASONS),
        limit_rows=args.limit,
    )
    return pack_dataset(args, options)


def pack_dataset(args: argparse.Namespace, options: RunOptions) -> Outcome:
    """Run the job with these options and say what came of it."""
    dataset = load_dataset(args.dataset)
    runtime = read_execution_options(args)
    with (
        only_own_output(enabled=not args.debug) as stream,
        open_progress(stream, enabled=not args.no_progress) as progress,
        open_instance(runtime.dagster_home) as instance,
    ):
        packed = run_packaging(Path(args.dataset), instance, options, progress=progress, runtime=runtime)
    notes = (f"dataset-packaging {args.command}: {packed.message}",) if packed.message else ()
    return Outcome(packed.exit_code, _render(dataset, packed), _summarize(dataset, packed), notes)


def _render(dataset: DatasetConfig, packed: PackagingOutcome) -> str:
    checks = _render_checks(packed.failed_checks)
    if packed.up_to_date is not None:
        return f"{packed.up_to_date}\n{checks}"
    sections = [checks]
    if packed.ledger is not None:
        shards = packed.shards.buckets if packed.shards else {}
        sections = [_render_buckets(packed.ledger, shards), _render_rejects(packed.ledger), checks]
    sections.append(_render_end(dataset, packed))
    return "\n".join(section for section in sections if section)


def _render_buckets(ledger: Ledger, shards: dict[str, BucketShards]) -> str:
    rows = [_bucket_row(line.bucket, line, shards.get(line.bucket)) for line in ledger.lines]
    totals = _bucket_row("all", ledger.total, None, tuple(shards.values()))
    columns = (
        Column("bucket"),
        *number_columns("rows", "packed", "rejected", "duplicate", "pending", "shards", "written", "bytes"),
    )
    return render_table(columns, rows, footer=totals if rows else ())


def _bucket_row(
    name: str, line: LedgerLine, shards: BucketShards | None, more: tuple[BucketShards, ...] = ()
) -> tuple[str, ...]:
    counted = (shards,) if shards else more
    return (
        name,
        format_count(line.rows),
        format_count(line.packed),
        format_count(line.rejected_rows),
        format_count(line.duplicates),
        format_count(line.pending),
        format_count(sum(bucket.shards for bucket in counted)),
        format_count(sum(bucket.shards_written for bucket in counted)),
        format_bytes(sum(bucket.bytes for bucket in counted)),
    )


def _render_rejects(ledger: Ledger) -> str:
    total = ledger.total
    rows = [
        (reason, format_count(count), format_fraction(count, total.rows))
        for reason, count in sorted(total.rejected.items(), key=lambda item: -item[1])
    ]
    return render_table((Column("rejected for"), *number_columns("rows", "of all rows")), rows)


def _render_checks(checks: tuple[FailedCheck, ...]) -> str:
    rows = [(check.check, check.bucket or "", check.detail) for check in checks[:_CHECKS_SHOWN]]
    table = render_table((Column("failed check"), Column("bucket"), Column("finding")), rows)
    hidden = len(checks) - len(rows)
    return table + (f"and {hidden} more failed checks\n" if hidden else "")


def _render_end(dataset: DatasetConfig, packed: PackagingOutcome) -> str:
    lines = []
    if packed.shards is not None:
        size_bytes = sum(bucket.bytes for bucket in packed.shards.buckets.values())
        planned = packed.manifest.buckets.values() if packed.manifest else ()
        told = f", the plan said {format_bytes(sum(plan.estimated_bytes for plan in planned))}" if planned else ""
        lines.append(f"shards: {dataset.output_prefix} ({format_bytes(size_bytes)} of images{told})")
        lines.append(f"sidecars: {dataset.sidecar_prefix}")
    lines.append("lineage, checks and history: dataset-packaging ui")
    return "\n".join(lines) + "\n"


def _summarize(dataset: DatasetConfig, packed: PackagingOutcome) -> dict[str, JsonValue]:
    total = packed.ledger.total if packed.ledger else None
    shards = list(packed.shards.buckets.values()) if packed.shards else None
    sidecars = list(packed.sidecars.buckets.values()) if packed.sidecars else None
    lines = {line.bucket: line for line in packed.ledger.lines} if packed.ledger else {}
    return {
        "dataset": dataset.name,
        "up_to_date": packed.up_to_date is not None,
        "message": packed.message or packed.up_to_date,
        "run_ids": [*packed.run_ids],
        "generation": packed.manifest.generation if packed.manifest else None,
        "rows": total.rows if total else None,
        "packed": total.packed if total else None,
        "rejected": {**total.rejected} if total else None,
        "duplicates": total.duplicates if total else None,
        "pending": total.pending if total else None,
        "rejected_fraction": packed.ledger.rejected_fraction if packed.ledger else None,
        "shards": sum(bucket.shards for bucket in shards) if shards is not None else None,
        "shards_written": sum(bucket.shards_written for bucket in shards) if shards is not None else 0,
        "sidecars_written": sum(bucket.shards_written for bucket in sidecars) if sidecars is not None else 0,
        "bytes": sum(bucket.bytes for bucket in shards) if shards is not None else None,
        "buckets": {
            key: _summarize_bucket(line, packed.shards.buckets.get(key) if packed.shards else None)
            for key, line in lines.items()
        },
        "failed_checks": [
            {"asset": check.asset, "check": check.check, "bucket": check.bucket, "detail": check.detail}
            for check in packed.failed_checks
        ],
        "requests": {**packed.shards.counts} if packed.shards else {},
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
