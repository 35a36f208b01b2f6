"""The manifest step alone on a generated manifest: rows per second, and how much memory its processes take.

One row in a thousand repeats the key of one half a million rows before it, so that the duplicate search has work.
Usage: python -m benchmarks.manifest_memory ROWS FOLDER [ROW_BYTES]      (by default 2000 bytes: 1000000 rows make 2 GB)
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.ours import benchmark_dataset
from benchmarks.tree import pss_bytes
from dataset_packaging.config import read_runtime
from dataset_packaging.packing.executor import ray_executor
from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging.packing.reports import SilentProgress
from dataset_packaging_tests.manifests import ManifestSpec, write_manifest

_SIZES_PX = tuple((200 + 37 * number % 1900, 200 + 91 * number % 1900) for number in range(400))
_LOOK_S = 0.2


@dataclass(slots=True)
class PeakMemory:
    """High-water marks of resident memory, as the kernel keeps them, in bytes.

    Attributes:
        driver_bytes: of this process.
        workers: of Ray's worker processes, by process.
        together_bytes: the most that all processes, Ray's own services included, were seen to take at one time.
    """

    driver_bytes: int = 0
    together_bytes: int = 0
    workers: dict[int, int] = field(default_factory=dict)

    @property
    def largest_worker_bytes(self) -> int:
        """The largest of Ray's worker processes; 0 if none was seen."""
        return max(self.workers.values(), default=0)

    def look(self) -> None:
        """Reads the marks of this process and of the Ray processes that it has started."""
        own = psutil.Process()
        self.driver_bytes = _high_water_bytes(own.pid)
        together_bytes = pss_bytes(own.pid)
        for child in own.children(recursive=True):
            with suppress(psutil.Error, FileNotFoundError, ProcessLookupError, StopIteration):
                together_bytes += pss_bytes(child.pid)
                if child.name().startswith("ray::"):
                    self.workers[child.pid] = _high_water_bytes(child.pid)
        self.together_bytes = max(self.together_bytes, together_bytes)


def _high_water_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) << 10


@contextmanager
def peak_memory() -> Iterator[PeakMemory]:
    """Watches this process and its Ray workers during the block. Linux only."""
    peak, ended = PeakMemory(), threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            peak.look()

    watcher = threading.Thread(target=watch, name="peak-memory")
    watcher.start()
    try:
        yield peak
        peak.look()
    finally:
        ended.set()
        watcher.join()


def main(rows: int, folder: Path, row_bytes: int = 2000) -> None:
    """Writes a manifest if there is none, builds its index and plan, and prints the figures as one line of JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / f"{rows}x{row_bytes}.jsonl"
    if not manifest.exists():
        spec = ManifestSpec(rows, row_bytes, sizes=_SIZES_PX, duplicate_every=1000, duplicate_distance=500_000)
        with ProcessPoolExecutor(1) as other:  # what it holds is not the driver's
            other.submit(write_manifest, manifest, spec).result()
    dataset = benchmark_dataset(str(manifest), folder)
    mapping = dataset.mapping.model_copy(update={"base_uri": f"file://{folder}/"})
    dataset = dataset.model_copy(update={"mapping": mapping})
    with ray_executor(read_runtime(os.environ)) as executor, peak_memory() as peak:
        started = time.perf_counter()
        with Pipeline(dataset, lambda: nullcontext(executor), SilentProgress(), f"memory-{os.getpid()}") as pipeline:
            report = pipeline.build_manifest()
        seconds = time.perf_counter() - started
    if report.rejected:
        raise AssertionError(f"rows were rejected, which costs less: {report.rejected}")
    figures = {
        "rows": report.rows,
        "duplicates": report.duplicates,
        "manifest_bytes": manifest.stat().st_size,
        "seconds": round(seconds, 1),
        "rows_per_s": round(report.rows / seconds),
        "driver_bytes": peak.driver_bytes,
        "largest_worker_bytes": peak.largest_worker_bytes,
        "workers": len(peak.workers),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]).resolve(), *map(int, sys.argv[3:]))
