"""`verify`: everything that landed, read again."""

import argparse
from collections import Counter

from dataset_packaging.cli.execution import open_pipeline
from dataset_packaging.cli.outcome import EXIT_DONE, EXIT_FINDINGS, JsonValue, Outcome
from dataset_packaging.cli.tables import (
    Column,
    format_bytes,
    format_count,
    format_items,
    format_seconds,
    number_columns,
    render_table,
)
from dataset_packaging.config import load_dataset
from dataset_packaging.core.invariants import Finding
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing.reports import VerifyReport

_FINDINGS_SHOWN = 50


def run(args: argparse.Namespace) -> Outcome:
    """Check a dataset; reads only."""
    dataset = load_dataset(args.dataset)
    landed = Stores(StorageConfig.of(dataset)).list(f"{dataset.output_prefix}/")
    with open_pipeline(args, dataset, (shard.size_bytes for shard in landed)) as pipeline:
        report = pipeline.verify(deep=args.deep)
    text = render_findings(report.findings) + _render_summary(dataset.name, report, deep=args.deep)
    summary: dict[str, JsonValue] = {
        "dataset": dataset.name,
        "deep": bool(args.deep),
        "shards": report.shards,
        "rows": report.rows,
        "image_bytes": report.bytes,
        "seconds": round(report.seconds, 3),
        "findings": summarize_findings(report.findings),
    }
    return Outcome(EXIT_FINDINGS if report.findings else EXIT_DONE, text, summary)


def summarize_findings(findings: tuple[Finding, ...]) -> JsonValue:
    """Say findings to machines; pure."""
    return [
        {"check": finding.check, "bucket": finding.bucket, "shard": finding.shard, "detail": finding.detail}
        for finding in findings
    ]


def render_findings(findings: tuple[Finding, ...]) -> str:
    """Write findings as a table, the first of them only where they are many; pure."""
    rows = [
        (finding.check, finding.bucket or "", "" if finding.shard is None else str(finding.shard), finding.detail)
        for finding in findings[:_FINDINGS_SHOWN]
    ]
    columns = (Column("check"), Column("bucket"), *number_columns("shard"), Column("finding"))
    table = render_table(columns, rows)
    if len(findings) > _FINDINGS_SHOWN:
        counts = Counter(finding.check for finding in findings)
        table += f"{_FINDINGS_SHOWN} of {format_count(len(findings))} findings are shown; by check: "
        table += ", ".join(f"{check} {format_count(count)}" for check, count in counts.items()) + "\n"
    return f"{table}\n" if table else ""


def _render_summary(name: str, report: VerifyReport, *, deep: bool) -> str:
    found = format_items(len(report.findings), "finding") if report.findings else "everything holds"
    images = f", {format_bytes(report.bytes)} of images hashed" if deep else ""
    return (
        f"{name}: {found} in {format_items(report.shards, 'shard')} with {format_items(report.rows, 'row')}{images}, "
        f"{format_seconds(report.seconds)}\n"
    )
