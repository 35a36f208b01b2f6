"""Takes one step with a dataset in a process of its own and tells what memory that took.

Usage: python -m dataset_packaging_tests.packing.memory_probe pack|sidecars|check|verify|status DATASET.yaml
"""

import contextlib
import json
import os
import sys
from pathlib import Path

from dataset_packaging.config import load_dataset
from dataset_packaging.packing.executor import SerialExecutor
from dataset_packaging.packing.pipeline import BUCKET_KEYS, Pipeline
from dataset_packaging.packing.reports import SilentProgress


def peak_bytes() -> int:
    """Returns the highest resident set size so far; what `getrusage` tells is at least that of the parent process."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def main(what: str, yaml: str) -> None:
    """Does it, and prints counts and the peak as JSON."""
    dataset = load_dataset(yaml, os.environ)
    with Pipeline(dataset, lambda: contextlib.nullcontext(SerialExecutor()), SilentProgress(), "probe") as pipeline:
        if what == "pack":
            pipeline.build_manifest()
            pipeline.pack_buckets(BUCKET_KEYS)
        elif what == "sidecars":
            pipeline.write_sidecars(BUCKET_KEYS)
        elif what == "check":
            found = [*pipeline.check_shards(BUCKET_KEYS).values(), *pipeline.check_sidecars(BUCKET_KEYS).values()]
            assert not any(findings for checks in found for findings in checks.values())
        elif what == "verify":
            assert not pipeline.verify(deep=True).findings
        total = pipeline.ledger().total
    print(json.dumps({"packed": total.packed, "rejected": sum(total.rejected.values()), "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
