"""Looks for cliffs: CPU time per image of unusual datasets against a typical one, everything on, in one process.

Each case is packed by a process of its own (manifest, shards, sidecars), in turn, in as many rounds as asked; medians.
Run: ``python -m benchmarks.cliffs [--rounds N] [--case NAME]``.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.corpus import photograph
from benchmarks.ours import benchmark_dataset, pack, warm_up, write_head
from dataset_packaging.core.bucketing import ASPECT_RATIOS, BUCKETS, SCALES
from dataset_packaging.packing.executor import SerialExecutor

_PIXELS_OF_SCALE = dict(zip(SCALES, (150_000, 600_000, 1_600_000, 3_000_000, 5_000_000), strict=True))
_TYPICAL = "typical"


@dataclass(frozen=True, slots=True)
class _Row:
    path: Path
    width_px: int
    height_px: int


@dataclass(frozen=True, slots=True)
class _Case:
    """A dataset: what it is, how its rows are made in a folder, and how many of them a shard holds."""

    title: str
    build: Callable[[Path], Sequence[_Row]]
    shard_size: int = 1000


def _write_photograph(folder: Path, number: int, width_px: int, height_px: int) -> _Row:
    """Three of ten are progressive, as in the benchmark corpus."""
    path = folder / f"{number}.jpg"
    image = photograph(random.Random(number), width_px, height_px)
    image.save(path, quality=88, progressive=number % 10 < 3)
    return _Row(path, width_px, height_px)


def _typical(folder: Path, rows: int = 300) -> list[_Row]:
    files = [_write_photograph(folder, number, 1640 - 7 * number, 1160 - 5 * number) for number in range(30)]
    return [files[number % len(files)] for number in range(rows)]


def _of_every_bucket(folder: Path, rows_of_each: int) -> list[_Row]:
    rows: list[_Row] = []
    for number, bucket in enumerate(BUCKETS):
        ratio = ASPECT_RATIOS[number % len(ASPECT_RATIOS)]
        width_px = round((_PIXELS_OF_SCALE[bucket.scale] * ratio) ** 0.5)
        rows += [_write_photograph(folder, number, width_px, round(width_px / ratio))] * rows_of_each
    return rows


def _one_pixel(folder: Path) -> list[_Row]:
    path = folder / "pixel.png"
    Image.new("RGB", (1, 1), (1, 2, 3)).save(path)
    return [_Row(path, 1, 1)] * 100_000


def _huge_png(folder: Path) -> list[_Row]:
    path = folder / "huge.png"
    Image.new("RGB", (20_000, 10_000), (90, 120, 150)).save(path)
    return [_Row(path, 20_000, 10_000)]


_CASES = {
    _TYPICAL: _Case("300 photographs of 1.9 megapixels in one shard", _typical),
    "oversized": _Case("1,200 of them in one shard", lambda folder: _typical(folder, 1200), 1200),
    "halved": _Case("the same in two", lambda folder: _typical(folder, 1200), 600),
    "pixels": _Case("100,000 images of one pixel in 100 shards", _one_pixel),
    "png": _Case("a PNG of 200 megapixels", _huge_png),
    "jpeg": _Case(
        "a progressive JPEG of 196 megapixels", lambda folder: [_write_photograph(folder, 0, 14_000, 14_000)]
    ),
    "twenty": _Case("135 buckets of 20 photographs", lambda folder: _of_every_bucket(folder, 20)),
    "one": _Case("135 buckets of one photograph", lambda folder: _of_every_bucket(folder, 1)),
}


def measure(case: _Case) -> dict[str, float]:
    """Packs a case in this process; returns CPU seconds, images and megapixels. Imports are not counted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "images").mkdir()
        rows = case.build(folder / "images")
        manifest = folder / "rows.jsonl"
        manifest.write_text("".join(_lines(rows)))
        warm_up(write_head(str(manifest), folder / "warm"))
        dataset = benchmark_dataset(str(manifest), folder / "job")
        dataset = dataset.model_copy(
            update={"packing": dataset.packing.model_copy(update={"shard_size": case.shard_size})}
        )
        began_s = time.process_time()
        packed = pack(dataset, SerialExecutor())["rows"]
        cpu_s = time.process_time() - began_s
    if packed != len(rows):
        raise AssertionError(f"{packed} of {len(rows)} images were packed")
    return {"cpu_s": cpu_s, "images": len(rows), "megapixels": sum(row.width_px * row.height_px for row in rows) / 1e6}


def _lines(rows: Iterable[_Row]) -> Iterable[str]:
    for number, row in enumerate(rows):
        facts = {"s3_image_path": f"file://{row.path}", "width": row.width_px, "height": row.height_px}
        yield json.dumps({"id": f"{number:07d}", "caption": "a photograph", **facts}) + "\n"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cliffs", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", choices=_CASES, help="pack this one here and print its figures as JSON")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(_CASES[options.case])))
        return
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in _CASES}
    for number in range(options.rounds):
        for name in _CASES:
            print(f"round {number + 1} of {options.rounds}: {_CASES[name].title}", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "benchmarks.cliffs", "--case", name]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            runs[name].append(json.loads(done.stdout.splitlines()[-1]))
    table = Table("dataset", "CPU ms per image", "× typical", "CPU ms per megapixel")
    typical_ms, _ = _costs(runs[_TYPICAL])
    for name, figures in runs.items():
        image_ms, megapixel_ms = _costs(figures)
        table.add_row(_CASES[name].title, f"{image_ms:.2f}", f"{image_ms / typical_ms:.2f}", f"{megapixel_ms:.1f}")
    Console(width=100).print(table)


def _costs(runs: Sequence[dict[str, float]]) -> tuple[float, float]:
    """Returns milliseconds of CPU per image and per megapixel."""
    cpu_ms = 1000 * statistics.median(run["cpu_s"] for run in runs)
    return cpu_ms / runs[0]["images"], cpu_ms / runs[0]["megapixels"]


if __name__ == "__main__":
    main()
