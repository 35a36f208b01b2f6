"""`rejects`: which rows are not in the shards, and why; `--retry` tries them again."""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dataset_packaging.cli.execution import read_pipeline, require_reasons
from dataset_packaging.cli.outcome import EXIT_DONE, JsonValue, Outcome
from dataset_packaging.cli.tables import Column, format_count, format_fraction, number_columns, render_table
from dataset_packaging.config import DatasetConfig, load_dataset
from dataset_packaging.core.layout import Layout
from dataset_packaging.core.ledger import DUPLICATE_REASON, REJECT_REASONS, RETRIED_REASONS
from dataset_packaging.errors import ConfigError, NotFound
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing.reports import RunOptions

_EXAMPLE_FIELDS = ("image_key", "s3_image_path", "manifest_uri", "line", "detail")


@dataclass(frozen=True, slots=True)
class RejectCounts:
    """The reject lists of a dataset, counted.

    Attributes:
        counts: Rows by reason, duplicates among them.
        examples: A few rows of each reason, with the fields of `_EXAMPLE_FIELDS`.
    """

    counts: Mapping[str, int]
    examples: Mapping[str, list[dict[str, Any]]]


def run(args: argparse.Namespace) -> Outcome:
    """Count the rejected rows and show examples; with `--retry`, pack once more."""
    retried = require_reasons("--retry", args.retry, REJECT_REASONS)
    wanted = require_reasons("--reason", args.reason, (*REJECT_REASONS, DUPLICATE_REASON))
    if retried:
        from dataset_packaging.cli.pack import pack_dataset  # here, because Dagster takes its time to load

        return pack_dataset(args, RunOptions(retry_rejected=retried))
    dataset = load_dataset(args.dataset)
    ledger = _read_ledger_summary(dataset)
    found = count_rejects(read_pipeline(dataset).rejects(), args.examples, wanted)
    summary: dict[str, JsonValue] = {
        "dataset": dataset.name,
        "rows": ledger["rows"],
        "rejected_fraction": ledger["rejected_fraction"],
        "max_rejected_fraction": dataset.images.max_rejected_fraction,
        "reasons": {**found.counts},
        "examples": {reason: [*rows] for reason, rows in found.examples.items()},
    }
    return Outcome(EXIT_DONE, _render(dataset, ledger, found), summary)


def count_rejects(rows: Iterable[Mapping[str, Any]], example_count: int, wanted: Iterable[str]) -> RejectCounts:
    """Count rows by reason and keep the first few of each; memory is bounded by the examples.

    Args:
        rows: Of the reject lists.
        example_count: Rows kept of each reason.
        wanted: Only these reasons; all where empty.
    """
    only = set(wanted)
    counts: Counter[str] = Counter()
    examples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        reason = row["reason"]
        if only and reason not in only:
            continue
        counts[reason] += 1
        if len(examples[reason]) < example_count:
            examples[reason].append({name: row[name] for name in _EXAMPLE_FIELDS})
    return RejectCounts(dict(counts.most_common()), {reason: examples[reason] for reason, _ in counts.most_common()})


def _read_ledger_summary(dataset: DatasetConfig) -> dict[str, Any]:
    layout = Layout(dataset.output_prefix, dataset.sidecar_prefix, dataset.work_prefix)
    try:
        document = Stores(StorageConfig.of(dataset)).get(layout.ledger_summary_uri)
    except NotFound:
        raise ConfigError(
            f"{dataset.name} has no ledger yet ({layout.ledger_summary_uri} is missing): pack it first"
        ) from None
    summary: dict[str, Any] = msgspec.json.decode(document)
    return summary


def _render(dataset: DatasetConfig, ledger: Mapping[str, Any], found: RejectCounts) -> str:
    rows_in_all = ledger["rows"]
    if not found.counts:
        return f"{dataset.name}: no rejected rows among {format_count(rows_in_all)}\n"
    rows = [
        (
            reason,
            format_count(count),
            format_fraction(count, rows_in_all),
            "tried again by every pack" if reason in RETRIED_REASONS else "",
        )
        for reason, count in found.counts.items()
    ]
    counts = render_table((Column("reason"), *number_columns("rows", "of all rows"), Column("")), rows)
    examples = [
        (
            reason,
            f"{str(row['manifest_uri']).rsplit('/', 1)[-1]}:{row['line']}",
            str(row["image_key"] or row["s3_image_path"] or ""),
            str(row["detail"] or ""),
        )
        for reason, kept in found.examples.items()
        for row in kept
    ]
    columns = (Column("example of"), Column("line"), Column("row", cut=True), Column("detail", cut=True))
    limit = dataset.images.max_rejected_fraction
    fraction = f"rejected: {ledger['rejected_fraction']:.2%} of all distinct rows; the dataset allows {limit:.2%}\n"
    return "\n".join(section for section in (counts, render_table(columns, examples), fraction) if section)
