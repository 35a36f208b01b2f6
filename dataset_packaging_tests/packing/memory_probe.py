"""Takes one step with a dataset in a process of its own and tells what memory that took.

Usage: python -m dataset_packaging_tests.packing.memory_probe STEP DATASET.yaml      (the steps are those of `take`)
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from dataset_packaging.config import WORKER_HEAP, load_dataset
from dataset_packaging.packing.executor import SerialExecutor
from dataset_packaging.packing.pipeline import BUCKET_KEYS, Pipeline
from dataset_packaging.packing.reports import SilentProgress


def probe(what: str, yaml: Path) -> dict[str, int]:
    """Runs this module in the environment that workers have; returns what it tells."""
    command = [sys.executable, "-m", __name__, what, str(yaml)]
    environ = {**os.environ, **WORKER_HEAP}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def status_bytes(field: str) -> int:
    """Returns a line of /proc/self/status: VmRSS is what is resident now, VmHWM the most there was.

    `getrusage` tells at least what was resident in the parent process.
    """
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def take(what: str, pipeline: Pipeline) -> None:
    """Takes the step; a check or a verify that finds something is an error."""
    if what == "manifest":
        assert not pipeline.build_manifest().rejected
    elif what == "pack":
        pipeline.build_manifest()
        pipeline.pack_buckets(BUCKET_KEYS)
    elif what == "resize":
        pipeline.write_resized(512, BUCKET_KEYS)
    elif what == "sidecars":
        pipeline.write_sidecars(BUCKET_KEYS)
    elif what == "check":
        found = [*pipeline.check_shards(BUCKET_KEYS).values(), *pipeline.check_sidecars(BUCKET_KEYS).values()]
        assert not any(findings for checks in found for findings in checks.values())
    elif what == "verify":
        assert not pipeline.verify(deep=True).findings


def main(what: str, yaml: str) -> None:
    """Does it, and prints counts and the peak as JSON."""
    dataset = load_dataset(yaml, os.environ)
    with Pipeline(dataset, lambda: contextlib.nullcontext(SerialExecutor()), SilentProgress(), "probe") as pipeline:
        before_bytes = status_bytes("VmRSS")
        take(what, pipeline)
        total = pipeline.ledger().total
    told = {"packed": total.packed, "before_bytes": before_bytes, "peak_bytes": status_bytes("VmHWM")}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
