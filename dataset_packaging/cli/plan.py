"""`plan`: what `pack` would do."""

import argparse
from pathlib import Path

from dataset_packaging.cli.execution import open_pipeline, read_pipeline
from dataset_packaging.cli.outcome import EXIT_DONE, JsonValue, Outcome
from dataset_packaging.cli.requests import describe_requests, summarize_requests
from dataset_packaging.cli.sampling import read_sample
from dataset_packaging.cli.tables import (
    Column,
    format_bytes,
    format_count,
    format_dollars,
    format_fraction,
    format_items,
    format_seconds,
    number_columns,
    render_table,
)
from dataset_packaging.config import DatasetConfig, load_dataset
from dataset_packaging.io.jsonl import expand_sources
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing.executor import available_cpus
from dataset_packaging.packing.preview import PlanPreview
from dataset_packaging.packing.prices import Prices, read_prices


def run(args: argparse.Namespace) -> Outcome:
    """Show the plan; writes nothing below the dataset's prefixes."""
    dataset = load_dataset(args.dataset)
    stores = Stores(StorageConfig.of(dataset))
    prices = Prices() if args.prices is None else read_prices(Path(args.prices))
    if args.sample is not None:
        preview = _preview_sample(dataset, stores, args.sample, prices)
    else:
        sources = expand_sources(stores, dataset.manifest)
        with open_pipeline(args, dataset, (source.size_bytes for source in sources)) as pipeline:
            preview = pipeline.preview(prices=prices)
    sections = (_render_head(dataset, preview), _render_buckets(preview), _render_rows(preview), _render_cost(preview))
    return Outcome(EXIT_DONE, "\n".join(section for section in sections if section), _summarize(dataset, preview))


def _preview_sample(dataset: DatasetConfig, stores: Stores, wanted: int, prices: Prices) -> PlanPreview:
    each = -(-wanted // len(dataset.manifest))
    samples = [read_sample(stores, uri, each) for uri in dataset.manifest]
    total_rows = sum(sample.estimated_rows for sample in samples)
    lines = [line for sample in samples for line in sample.lines]
    return read_pipeline(dataset).preview_sample(lines, total_rows, prices)


def _render_head(dataset: DatasetConfig, preview: PlanPreview) -> str:
    files = format_items(len(preview.sources), "file")
    if preview.sampled_rows is not None:
        return (
            f"{dataset.name}: about {format_count(preview.rows)} rows\nto {dataset.output_prefix}\n"
            f"told from {format_items(preview.sampled_rows, 'row')}; duplicates are not looked for; nothing has been "
            "written\n"
        )
    standing = "the published plan holds as it is" if preview.unchanged else "a new plan would be published"
    return (
        f"{dataset.name}: {format_count(preview.rows)} rows of {files}\nto {dataset.output_prefix}\n"
        f"{standing}; nothing has been written\n"
    )


def _render_buckets(preview: PlanPreview) -> str:
    rows = [
        (
            key,
            format_count(bucket.rows),
            format_count(bucket.shards),
            format_count(bucket.kept),
            format_count(bucket.rewritten),
            format_count(bucket.added),
            format_bytes(bucket.estimated_bytes),
        )
        for key, bucket in preview.buckets.items()
    ]
    buckets = preview.buckets.values()
    totals = (
        "all",
        format_count(sum(bucket.rows for bucket in buckets)),
        format_count(preview.shards),
        format_count(sum(bucket.kept for bucket in buckets)),
        format_count(sum(bucket.rewritten for bucket in buckets)),
        format_count(sum(bucket.added for bucket in buckets)),
        format_bytes(preview.estimated_bytes),
    )
    columns = (Column("bucket"), *number_columns("rows", "shards", "kept", "rewritten", "added", "about"))
    return render_table(columns, rows, footer=totals if rows else ())


def _render_rows(preview: PlanPreview) -> str:
    fates = [*preview.rejected.items()]
    if preview.duplicates:
        fates.append(("duplicate_key", preview.duplicates))
    if preview.pending:
        fates.append(("pending: size cannot be read now", preview.pending))
    rows = [(fate, format_count(count), format_fraction(count, preview.rows)) for fate, count in fates]
    table = render_table((Column("rows without a place"), *number_columns("rows", "share")), rows)
    reasons = [(reason, format_count(count)) for reason, count in preview.reasons.items()]
    due = render_table((Column("why shards are written", cut=True), *number_columns("shards")), reasons)
    return "\n".join(section for section in (table, due) if section)


def _render_cost(preview: PlanPreview) -> str:
    return (
        f"requests: about {describe_requests(preview.requests)}; on S3 {format_dollars(preview.dollars)}\n"
        f"{_render_time(preview)}"
    )


def _render_time(preview: PlanPreview) -> str:
    work, cpus = preview.work, available_cpus()
    if not work.high_s:
        return "time: no image is to be fetched\n"
    return (
        f"time: about {format_seconds(work.likely_s)} of one CPU, from {format_seconds(work.low_s)} (baseline JPEG) to "
        f"{format_seconds(work.high_s)} (WebP);\n"
        f"      {format_seconds(work.likely_s / cpus)} on the {format_items(cpus, 'CPU')} of this machine, "
        "more where the network is slower than they are\n"
    )


def _summarize(dataset: DatasetConfig, preview: PlanPreview) -> dict[str, JsonValue]:
    return {
        "dataset": dataset.name,
        "rows": preview.rows,
        "duplicates": preview.duplicates,
        "rejected": {**preview.rejected},
        "pending": preview.pending,
        "shards": preview.shards,
        "estimated_bytes": preview.estimated_bytes,
        "unchanged": preview.unchanged,
        "buckets": {
            key: {
                "rows": bucket.rows,
                "shards": bucket.shards,
                "kept": bucket.kept,
                "rewritten": bucket.rewritten,
                "added": bucket.added,
                "estimated_bytes": bucket.estimated_bytes,
            }
            for key, bucket in preview.buckets.items()
        },
        "reasons": {**preview.reasons},
        "requests": summarize_requests(preview.requests),
        "dollars": preview.dollars,
        "cpu_seconds": {
            "low": round(preview.work.low_s, 1),
            "likely": round(preview.work.likely_s, 1),
            "high": round(preview.work.high_s, 1),
        },
        "sources": [*preview.sources],
        "sampled_rows": preview.sampled_rows,
    }
