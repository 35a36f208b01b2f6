"""One Ray node with two CPUs against two nodes with one each, and what the driver itself costs.

Both clusters stand at the same time and take turns, so that the ratio holds on a busy machine. The driver's figure is
the CPU time of its process, which bounds how many shards one driver can look after whatever the cluster does.
Run: ``python -m benchmarks.cluster [--rounds N] [--shards N]``.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.corpus import CorpusSpec, build_corpus
from dataset_packaging_tests.servers.ray_nodes import RayNodes

ONE_NODE, TWO_NODES = "1 node, 2 CPUs", "2 nodes, 1 CPU each"
IMAGES_OF_THE_CASE_AT_HAND = 100_000_000
ROWS_PER_SHARD = 1000


def main() -> None:
    """Prints the two tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=350, help="photographs of the first table, packed twice over")
    parser.add_argument("--shards", type=int, default=1000, help="shards of the second table, of one small image each")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    manifest = build_corpus(options.out.resolve(), CorpusSpec(images=options.images))
    with ExitStack() as stack:
        clusters = {ONE_NODE: stack.enter_context(RayNodes()), TWO_NODES: stack.enter_context(RayNodes())}
        clusters[ONE_NODE].add_worker(cpus=2)
        for _ in range(2):
            clusters[TWO_NODES].add_worker(cpus=1)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.out)))
        _compare(clusters, manifest, folder, options.rounds)
        for way in ("in the cluster", "through Ray's client port"):
            _tell_driver(clusters[ONE_NODE], way, folder, options.shards)


def _compare(clusters: Mapping[str, RayNodes], manifest: Path, folder: Path, rounds: int) -> None:
    times: dict[str, list[dict[str, float]]] = {name: [] for name in clusters}
    for _ in range(rounds):
        for name, cluster in clusters.items():
            times[name].append(_run("benchmarks.ours", cluster.driver_environ(), str(manifest), str(folder / "job")))
    table = Table("cluster", "job s, median", "rows/s", "against one node")
    base = statistics.median(run["job_s"] for run in times[ONE_NODE])
    for name, runs in times.items():
        seconds = statistics.median(run["job_s"] for run in runs)
        table.add_row(name, f"{seconds:.1f}", f"{runs[0]['rows'] / seconds:.0f}", f"{seconds / base:.3f}")
    Console().print(table)


def _tell_driver(cluster: RayNodes, way: str, folder: Path, shards: int) -> None:
    manifest = _write_small_dataset(folder, shards)
    address = cluster.address if way == "in the cluster" else cluster.client_address
    figures = _run(
        "benchmarks.driver_cost", cluster.driver_environ(address), str(manifest), str(folder / "small"), str(shards)
    )
    table = Table("driver, " + way, "CPU s per 1,000 shards", "wall s")
    for stage in ("tasks", "manifest", "pack", "sidecars", "verify"):
        table.add_row(stage, f"{figures[stage + '_cpu_s'] * 1000 / shards:.2f}", f"{figures[stage + '_s']:.1f}")
    Console().print(table)
    shard_cpu_s = (figures["tasks_cpu_s"] + figures["pack_cpu_s"] + figures["sidecars_cpu_s"]) / shards
    minutes = IMAGES_OF_THE_CASE_AT_HAND / ROWS_PER_SHARD * shard_cpu_s / 60
    print(
        f"With a task for each shard one driver looks after at most {1 / shard_cpu_s:.0f} shards/s: "
        f"{IMAGES_OF_THE_CASE_AT_HAND:,} images in shards of {ROWS_PER_SHARD:,} cost it {minutes:.0f} CPU minutes."
    )


def _write_small_dataset(folder: Path, shards: int) -> Path:
    Image.new("RGB", (64, 64), (1, 2, 3)).save(folder / "small.png")
    manifest = folder / "small.jsonl"
    row = {"s3_image_path": f"file://{folder}/small.png", "width": 64, "height": 64}
    manifest.write_text("".join(json.dumps({"id": f"{number:07d}", **row}) + "\n" for number in range(shards)))
    return manifest


def _run(module: str, environ: Mapping[str, str], *arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, check=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
