"""What a driver costs by itself: CPU time of its own process while a cluster packs many tiny shards.

Usage: RAY_ADDRESS=... python -m benchmarks.driver_cost MANIFEST FOLDER SHARDS
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.ours import benchmark_dataset, warm_up, write_head
from dataset_packaging.config import read_runtime
from dataset_packaging.packing.executor import ray_executor
from dataset_packaging.packing.pipeline import BUCKET_KEYS, Pipeline
from dataset_packaging.packing.reports import SilentProgress


def do_nothing(number: int) -> int:
    """Costs what Ray costs: large shards are a task each, small ones share one."""
    return number


def main(manifest: str, folder_name: str, shards: str) -> None:
    """Packs in shards of one row and prints the figures of each stage as one line of JSON."""
    folder = Path(folder_name).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    dataset = benchmark_dataset(manifest, folder)
    dataset = dataset.model_copy(update={"packing": dataset.packing.model_copy(update={"shard_size": 1})})
    figures: dict[str, float] = {}

    def measure(stage: str, work: Callable[[], object]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        figures[f"{stage}_s"], figures[f"{stage}_cpu_s"] = time.perf_counter() - wall, time.process_time() - cpu

    with ray_executor(read_runtime(os.environ)) as executor:
        for result in executor.map(warm_up, [write_head(manifest, folder / "warm")] * executor.slots):
            result.require_value()
        measure("tasks", lambda: list(executor.map(do_nothing, range(int(shards)))))
        with Pipeline(dataset, lambda: contextlib.nullcontext(executor), SilentProgress(), "benchmark") as pipeline:
            measure("manifest", pipeline.build_manifest)
            measure("pack", lambda: pipeline.pack_buckets(BUCKET_KEYS))
            measure("sidecars", lambda: pipeline.write_sidecars(BUCKET_KEYS))
            measure("verify", pipeline.verify)
            assert pipeline.ledger().total.packed == int(shards)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
