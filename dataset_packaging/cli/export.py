"""`export hf` and `export simpletuner`: a dataset laid out for another tool."""

import argparse
from pathlib import Path

from dataset_packaging.cli.execution import open_pipeline
from dataset_packaging.cli.outcome import EXIT_DONE, JsonValue, Outcome
from dataset_packaging.cli.tables import format_bytes, format_count, format_items
from dataset_packaging.config import load_dataset
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing.hub_export import HubReport
from dataset_packaging.packing.simpletuner_export import SimpleTunerReport


def run(args: argparse.Namespace) -> Outcome:
    """Verify the dataset and lay it out; safe to repeat."""
    dataset = load_dataset(args.dataset)
    landed = Stores(StorageConfig.of(dataset)).list(f"{dataset.output_prefix}/")
    with open_pipeline(args, dataset, (shard.size_bytes for shard in landed)) as pipeline:
        if args.action == "hf":
            return _tell_hub(dataset.name, pipeline.export_hub(Path(args.folder)))
        return _tell_simpletuner(dataset.name, pipeline.export_simpletuner(Path(args.folder)))


def _tell_hub(name: str, report: HubReport) -> Outcome:
    summary: dict[str, JsonValue] = {
        "dataset": name,
        "folder": str(report.folder),
        "rows": report.rows,
        "files": report.files,
        "files_copied": report.copied,
        "bytes": report.bytes,
    }
    text = (
        f"{name}: {format_count(report.rows)} rows in {format_items(report.files, 'file')} of "
        f"{format_bytes(report.bytes)} stand in {report.folder}, {format_count(report.copied)} of them copied now\n"
        f'look at it:  python -c \'import datasets; print(datasets.load_dataset("{report.folder}")["train"][0])\'\n'
    )
    return Outcome(EXIT_DONE, text, summary)


def _tell_simpletuner(name: str, report: SimpleTunerReport) -> Outcome:
    summary: dict[str, JsonValue] = {
        "dataset": name,
        "folder": str(report.folder),
        "files": report.files,
        "without_caption": report.without_caption,
    }
    text = (
        f"{name}: {format_items(report.files, 'image')} with captions in {report.folder}; "
        f"{format_count(report.without_caption)} rows without a caption are left out\n"
        f"for SimpleTuner:  {report.folder / 'multidatabackend.json'}\n"
    )
    return Outcome(EXIT_DONE, text, summary)
