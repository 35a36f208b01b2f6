"""`schema export` and `schema diff`: names and types of sidecars, as a file and against each other."""

import argparse
from pathlib import Path

from dataset_packaging.cli.outcome import EXIT_DONE, EXIT_FINDINGS, JsonValue, Outcome
from dataset_packaging.cli.storage import load_stores, open_stores, read_s3_options, require_uri
from dataset_packaging.cli.tables import Column, format_items, render_table
from dataset_packaging.config import load_dataset
from dataset_packaging.core.reference import encode_schema_file, find_differences
from dataset_packaging.errors import ConfigError
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.reference import (
    Reference,
    contract_reference,
    declared_columns,
    find_dataset_differences,
    read_reference,
)

_DATASET_SUFFIXES = (".yaml", ".yml")


def run(args: argparse.Namespace) -> Outcome:
    """Export a schema, or compare two; of Parquet files only footers are read."""
    stores = load_stores(args.dataset) if args.dataset else open_stores(read_s3_options(args))
    return _export(args, stores) if args.action == "export" else _diff(args, stores)


def _export(args: argparse.Namespace, stores: Stores) -> Outcome:
    reference = contract_reference() if args.source is None else _read_side(stores, args.source)
    text = encode_schema_file(reference.columns, reference.source)
    summary: dict[str, JsonValue] = {
        "source": reference.source,
        "file": args.output,
        "columns": [{"name": name, "type": kind} for name, kind in reference.columns],
        "disagreements": [*reference.disagreements],
    }
    exit_code = EXIT_FINDINGS if reference.disagreements else EXIT_DONE
    notes = tuple(f"the family disagrees with itself: {line}" for line in reference.disagreements)
    if args.output is None:
        return Outcome(exit_code, text, summary, notes)
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{args.output}: cannot be written: {error.strerror}") from error
    told = f"wrote {args.output}: {format_items(len(reference.columns), 'column')} of {reference.source}\n"
    return Outcome(exit_code, told, summary, notes)


def _diff(args: argparse.Namespace, stores: Stores) -> Outcome:
    reference, actual = _read_side(stores, args.reference), _read_side(stores, args.actual)
    differences = (
        find_dataset_differences(load_dataset(args.actual), reference.columns)
        if args.actual.endswith(_DATASET_SUFFIXES)
        else find_differences(reference.columns, actual.columns)
    )
    disagreements = [f"{side.source}: {line}" for side in (reference, actual) for line in side.disagreements]
    rows = [(difference.kind, difference.column, difference.detail) for difference in differences]
    text = render_table((Column("difference"), Column("column"), Column("what")), rows)
    text += "".join(f"disagrees with itself: {line}\n" for line in disagreements)
    summary: dict[str, JsonValue] = {
        "reference": reference.source,
        "actual": actual.source,
        "differences": [
            {"kind": difference.kind, "column": difference.column, "detail": difference.detail}
            for difference in differences
        ],
        "disagreements": [*disagreements],
    }
    if differences or disagreements:
        return Outcome(EXIT_FINDINGS, text, summary)
    return Outcome(EXIT_DONE, f"the same {format_items(len(reference.columns), 'column')}\n", summary)


def _read_side(stores: Stores, text: str) -> Reference:
    """Read a family, a shard, a schema file, or what a dataset declares."""
    if text.endswith(_DATASET_SUFFIXES):
        return Reference(text, declared_columns(load_dataset(text)), 0, 0, ())
    return read_reference(stores, require_uri(text))
