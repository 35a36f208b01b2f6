"""A dataset as SimpleTuner's Parquet metadata backend wants it: image files, one table of names, captions and sizes.

The layout is that of SimpleTuner's documentation/DATALOADER.md, section on Parquet: `filename_column` holds the path
below `instance_data_dir` with its extension, captions are texts and never null, sizes spare it from opening images.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.receipts import ShardReceipt
from dataset_packaging.core.schema import (
    HEIGHT_COLUMN,
    IMAGE_COLUMN,
    KEY_COLUMN,
    META_INFO_COLUMN,
    PACKAGING_KEY,
    WIDTH_COLUMN,
)
from dataset_packaging.errors import ConfigError, NotHandedOff
from dataset_packaging.io.parquet import open_parquet
from dataset_packaging.packing.ledger_step import read_statuses
from dataset_packaging.packing.reports import StageClock
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.verify_step import verify_dataset

CAPTION_COLUMNS = ("full_description", "detailed_description", "short_description", "user_prompt", "keywords")
"""Where a caption is taken from: the first text of the first of these that has one."""

METADATA_SCHEMA = pa.schema(
    [
        pa.field("filename", pa.string(), nullable=False),
        pa.field("caption", pa.string(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
        pa.field("image_key", pa.string(), nullable=False),
    ]
)
_EXTENSIONS = {"JPEG": "jpg", "MPO": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "TIFF": "tif", "BMP": "bmp"}


@dataclass(frozen=True, slots=True)
class SimpleTunerReport:
    """What was written: image files, and rows that have no caption and were left out."""

    folder: Path
    files: int
    without_caption: int


def export_simpletuner(run: Run, folder: Path) -> SimpleTunerReport:
    """Verifies a dataset and writes its images as files, with `metadata.parquet` and `multidatabackend.json`.

    Repeating it writes the same. Raises NotHandedOff where the dataset has findings, ConfigError where the folder
    cannot be written.
    """
    verified = verify_dataset(run, deep=False)
    if verified.findings:
        raise NotHandedOff(
            f"{run.dataset.name} is not handed off: {len(verified.findings)} findings, the first one: "
            f"{verified.findings[0]}; see `dataset-packaging verify`"
        )
    clock = StageClock("verify", "shards", run.progress)
    receipts = [
        state.receipt
        for status in read_statuses(run, run.require_current())
        for state in status.shards
        if state.receipt is not None and state.receipt.packed_rows
    ]
    files = left_out = 0
    try:
        (folder / "images").mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(folder / "metadata.parquet", METADATA_SCHEMA, compression="zstd") as writer:
            for done, receipt in enumerate(receipts, 1):
                rows = [row for row in _write_shard(run, receipt, folder / "images") if row["caption"]]
                left_out += receipt.packed_rows - len(rows)
                files += len(rows)
                writer.write_table(pa.Table.from_pylist(rows, schema=METADATA_SCHEMA))
                clock.report("writing images", done, len(receipts), files, 0)
        text = json.dumps([_backend(run.dataset.name, folder.absolute())], indent=2, ensure_ascii=False)
        (folder / "multidatabackend.json").write_text(text + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return SimpleTunerReport(folder, files, left_out)


def _write_shard(run: Run, receipt: ShardReceipt, images: Path) -> Iterator[dict[str, Any]]:
    """Writes the images of one shard that have a caption and yields their rows; holds one row group."""
    bucket, number = Bucket.parse(receipt.bucket), receipt.number
    side = open_parquet(run.stores, run.layout.sidecar_uri(bucket, number))
    described = side.read(columns=[KEY_COLUMN, META_INFO_COLUMN, *CAPTION_COLUMNS]).to_pylist()
    shard = open_parquet(run.stores, run.layout.shard_uri(bucket, number))
    row = 0
    for group in range(shard.num_row_groups):
        table = shard.read_row_group(group, columns=[KEY_COLUMN, IMAGE_COLUMN, WIDTH_COLUMN, HEIGHT_COLUMN])
        for batch in table.to_batches():
            for at in range(len(batch)):
                key, image, width, height = (batch.column(column)[at] for column in range(4))
                caption = _caption(described[row])
                if caption:
                    kind = msgspec.json.decode(described[row][META_INFO_COLUMN])[PACKAGING_KEY]["format"]
                    extension = _EXTENSIONS.get(kind, kind.lower())
                    name = f"{bucket.scale}-{bucket.ar_id}-{number:06d}-{row:06d}.{extension}"
                    (images / name).write_bytes(image.as_buffer())
                    yield {
                        "filename": name,
                        "caption": caption,
                        "width": width.as_py(),
                        "height": height.as_py(),
                        "image_key": key.as_py(),
                    }
                row += 1


def _caption(row: dict[str, Any]) -> str:
    return next((text for name in CAPTION_COLUMNS for text in row[name] or () if text), "")


def _backend(name: str, folder: Path) -> dict[str, Any]:
    """Returns the entry of SimpleTuner's dataloader configuration."""
    return {
        "id": name,
        "type": "local",
        "dataset_type": "image",
        "instance_data_dir": str(folder / "images"),
        "caption_strategy": "parquet",
        "metadata_backend": "parquet",
        "parquet": {
            "path": str(folder / "metadata.parquet"),
            "filename_column": "filename",
            "caption_column": "caption",
            "width_column": "width",
            "height_column": "height",
            "identifier_includes_extension": True,
        },
        "cache_dir_vae": str(folder / "cache"),
        "resolution": 1.0,
        "resolution_type": "area",
    }
