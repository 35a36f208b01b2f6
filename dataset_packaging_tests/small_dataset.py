"""A small packed dataset for tests that begin where packing ends: made-up pictures, three buckets, several shards."""

import io
import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from dataset_packaging.config import DatasetConfig, parse_dataset
from dataset_packaging.packing.executor import Executor, SerialExecutor
from dataset_packaging.packing.pipeline import BUCKET_KEYS, Pipeline
from dataset_packaging.packing.reports import SidecarsReport, SilentProgress

SIZES = ((64, 64), (96, 64), (600, 600))
"""Square, 3:2 and a larger square: buckets 0_512/10000, 0_512/15000, 512_1024/10000."""

YAML = """
name: small
manifest: rows.jsonl
output_prefix: out/main
sidecar_prefix: out/side
work_prefix: out/work
mapping:
  base_uri: images/
  direct: {image_key: id, full_description: {from: [caption], cast: list_string}}
packing: {shard_size: 4}
images: {max_rejected_fraction: 0.5}
"""


def picture_bytes(number: int, size: tuple[int, int]) -> bytes:
    """Returns a small PNG that no other number has."""
    buffer = io.BytesIO()
    Image.new("RGB", size, (number * 37 % 256, number * 91 % 256, number * 13 % 256)).save(buffer, "PNG")
    return buffer.getvalue()


def write_rows(folder: Path, rows: int, extra: Callable[[int], dict[str, object]] = lambda number: {}) -> None:
    """Writes a manifest of so many rows and their pictures; `extra` gives more fields of a row."""
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(rows):
        size = SIZES[number % len(SIZES)]
        (images / f"{number}.png").write_bytes(picture_bytes(number, size))
        row = {"id": f"key-{number:04d}", "url": f"{number}.png", "width": size[0], "height": size[1]}
        lines.append(json.dumps(row | {"caption": f"caption {number}"} | extra(number)))
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")


def small_dataset(folder: Path, more_yaml: str = "") -> DatasetConfig:
    """Returns the configuration of the dataset in a folder; `more_yaml` is added to its YAML."""
    return parse_dataset(YAML + more_yaml, str(folder / "small.yaml"), folder, {})


def serial() -> AbstractContextManager[Executor]:
    """Opens an executor that runs tasks in this process."""
    return nullcontext(SerialExecutor())


def open_pipeline(dataset: DatasetConfig) -> Pipeline:
    """Returns a pipeline that runs in this process."""
    return Pipeline(dataset, serial, SilentProgress(), run_id="test")


def pack(dataset: DatasetConfig) -> SidecarsReport:
    """Packs the dataset, all steps."""
    with open_pipeline(dataset) as pipeline:
        pipeline.build_manifest()
        pipeline.pack_buckets(BUCKET_KEYS)
        return pipeline.write_sidecars(BUCKET_KEYS)


def sidecar_paths(folder: Path) -> list[Path]:
    """Returns the sidecars of a packed dataset, in order."""
    return sorted((folder / "out" / "side").rglob("*.parquet"))


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Writes a Parquet file anew with a changed table."""
    pq.write_table(change(pq.read_table(path)), path, compression="zstd")


def read_sidecars(folder: Path, columns: Iterable[str] | None = None) -> list[dict[str, object]]:
    """Returns all rows of the sidecars, by image_key."""
    names = None if columns is None else ["image_key", *columns]
    rows = [row for path in sidecar_paths(folder) for row in pq.ParquetFile(path).read(columns=names).to_pylist()]
    return sorted(rows, key=lambda row: row["image_key"])
