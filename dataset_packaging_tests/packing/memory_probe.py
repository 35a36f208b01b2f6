"""Packs or looks at a dataset in a process of its own and tells what memory that took.

Usage: python -m dataset_packaging_tests.packing.memory_probe pack|status|resize DATASET.yaml
"""

import contextlib
import json
import os
import sys

from dataset_packaging.config import load_dataset
from dataset_packaging.packing.executor import SerialExecutor
from dataset_packaging.packing.pipeline import BUCKET_KEYS, Pipeline
from dataset_packaging.packing.reports import SilentProgress
from dataset_packaging_tests.packing.peak_memory import peak_bytes, resident_bytes


def main(what: str, yaml: str) -> None:
    """Does it, and prints counts and the peak as JSON."""
    dataset = load_dataset(yaml, os.environ)
    with Pipeline(dataset, lambda: contextlib.nullcontext(SerialExecutor()), SilentProgress(), "probe") as pipeline:
        if what in ("pack", "resize"):
            pipeline.build_manifest()
            pipeline.pack_buckets(BUCKET_KEYS)
        total = pipeline.ledger().total
        told = {"packed": total.packed, "rejected": sum(total.rejected.values()), "peak_bytes": peak_bytes()}
        if what == "resize":
            told["before_bytes"] = resident_bytes()
            pipeline.write_resized(512, BUCKET_KEYS)
            told["resize_bytes"] = peak_bytes()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
