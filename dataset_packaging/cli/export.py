"""`export hf`: a dataset laid out as a repository of the Hugging Face Hub."""

import argparse
from pathlib import Path

from dataset_packaging.cli.execution import open_pipeline
from dataset_packaging.cli.outcome import EXIT_DONE, JsonValue, Outcome
from dataset_packaging.cli.tables import format_bytes, format_count, format_items
from dataset_packaging.config import load_dataset
from dataset_packaging.io.store import StorageConfig, Stores


def run(args: argparse.Namespace) -> Outcome:
    """Verify the dataset and lay it out; safe to repeat, what stands there already is kept."""
    dataset = load_dataset(args.dataset)
    landed = Stores(StorageConfig.of(dataset)).list(f"{dataset.output_prefix}/")
    with open_pipeline(args, dataset, (shard.size_bytes for shard in landed)) as pipeline:
        report = pipeline.export_hub(Path(args.folder))
    summary: dict[str, JsonValue] = {
        "dataset": dataset.name,
        "folder": str(report.folder),
        "rows": report.rows,
        "files": report.files,
        "files_copied": report.copied,
        "bytes": report.bytes,
    }
    text = (
        f"{dataset.name}: {format_count(report.rows)} rows in {format_items(report.files, 'file')} of "
        f"{format_bytes(report.bytes)} stand in {report.folder}, {format_count(report.copied)} of them copied now\n"
        f'look at it:  python -c \'import datasets; print(datasets.load_dataset("{report.folder}")["train"][0])\'\n'
    )
    return Outcome(EXIT_DONE, text, summary)
