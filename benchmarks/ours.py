"""Our job on a manifest: plan, pack, sidecars and ledger on Ray, with the start of Ray and all imports apart.

Usage: python -m benchmarks.ours MANIFEST FOLDER
"""

import contextlib
import itertools
import json
import os
import shutil
import sys
import time
from pathlib import Path

import psutil

from dataset_packaging.config import DatasetConfig, parse_dataset, read_runtime
from dataset_packaging.packing.executor import Executor, SerialExecutor, ray_executor
from dataset_packaging.packing.pipeline import BUCKET_KEYS, Pipeline
from dataset_packaging.packing.reports import SilentProgress

_DATASET = """\
name: benchmark
manifest: {manifest}
output_prefix: {folder}/main
sidecar_prefix: {folder}/sidecar
work_prefix: {folder}/work
mapping:
  constants: {{task: text to image generation, data_source: benchmark}}
  direct:
    image_key: id
    full_description: {{from: caption, cast: list_string}}
    aesthetic_score: metadata.scores.aesthetic
images: {{max_rejected_fraction: 0.2}}
"""


def benchmark_dataset(manifest: str, folder: Path) -> DatasetConfig:
    """Returns the configuration that the benchmark packs with."""
    return parse_dataset(_DATASET.format(manifest=manifest, folder=folder), "benchmark.yaml", folder, os.environ)


def warm_up(manifest: Path) -> None:
    """Packs a few rows in the calling process, so that what it imports and opens once is told apart from the job."""
    folder = manifest.parent / f"warm-{os.getpid()}"
    dataset = benchmark_dataset(str(manifest), folder)
    pack(dataset, SerialExecutor())
    time.sleep(0.3)  # so that one worker does not take what is meant for another


def write_head(manifest: str, folder: Path) -> Path:
    """Writes the first rows of a manifest, enough to warm up with, and returns their path."""
    folder.mkdir(parents=True)
    head = folder / "head.jsonl"
    with Path(manifest).open() as lines:
        head.write_text("".join(itertools.islice(lines, 3)))
    return head


def tree_cpu_s() -> float:
    """Returns the CPU seconds that this process and those that it has started have taken, Ray's daemons included."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def main(manifest: str, folder_name: str) -> None:
    """Runs the job and prints its figures as one line of JSON."""
    folder = Path(folder_name).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    dataset = benchmark_dataset(manifest, folder)
    began = time.perf_counter()
    with ray_executor(read_runtime(os.environ)) as executor:
        head = write_head(manifest, folder / "warm")
        warm_up(head)
        for result in executor.map(warm_up, [head] * executor.slots):
            result.require_value()
        started, cpu_before_s = time.perf_counter(), tree_cpu_s()
        figures = pack(dataset, executor)
        job_s, job_cpu_s = time.perf_counter() - started, tree_cpu_s() - cpu_before_s
    print(json.dumps({"job_s": job_s, "job_cpu_s": job_cpu_s, "start_s": started - began, **figures}))


def pack(dataset: DatasetConfig, executor: Executor) -> dict[str, object]:
    """Runs every step and returns counts and the seconds of each step."""
    with Pipeline(dataset, lambda: contextlib.nullcontext(executor), SilentProgress(), "benchmark") as pipeline:
        stages: dict[str, float] = {}
        clock = time.perf_counter()
        pipeline.build_manifest()
        stages["manifest_s"] = time.perf_counter() - clock
        clock = time.perf_counter()
        pipeline.pack_buckets(BUCKET_KEYS)
        stages["pack_s"] = time.perf_counter() - clock
        clock = time.perf_counter()
        pipeline.write_sidecars(BUCKET_KEYS)
        stages["sidecars_s"] = time.perf_counter() - clock
        total = pipeline.ledger().total
    return {"rows": total.packed, "refused": sum(total.rejected.values()), **stages}


if __name__ == "__main__":
    main(*sys.argv[1:])
