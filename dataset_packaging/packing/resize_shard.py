"""The resized images of one shard: its images, row by row, to a Parquet object of the same rows and its receipt.

Runs in a task. The order of durability is object, then receipt; names and bytes are fixed, so that repeating is safe.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.crops import CropGeometry, plan_crop
from dataset_packaging.core.layout import Layout, ResizedLayout
from dataset_packaging.core.receipts import ResizedReceipt, ShardReceipt, encode_receipt
from dataset_packaging.core.schema import HEIGHT_COLUMN, IMAGE_COLUMN, KEY_COLUMN, RESIZED_SCHEMA, WIDTH_COLUMN
from dataset_packaging.errors import ObjectDamaged
from dataset_packaging.imaging.resize import Resize, resize_image
from dataset_packaging.io.parquet import open_hashing_sink, open_parquet, read_batches, shard_writer
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores

_BATCH_ROWS = 8
_BUFFER_BYTES = 1 << 20
_READ_COLUMNS = [KEY_COLUMN, IMAGE_COLUMN, WIDTH_COLUMN, HEIGHT_COLUMN]


@dataclass(frozen=True, slots=True)
class ResizeTask:
    """The resized images of one shard to make.

    Attributes:
        dataset: its configuration.
        size: of the set.
        receipt: of the main shard.
        fingerprint: of everything that reaches the bytes; goes to the receipt.
    """

    dataset: DatasetConfig
    size: int
    receipt: ShardReceipt
    fingerprint: str


def resize_shard(task: ResizeTask) -> ResizedReceipt:
    """Writes the resized images of one shard and returns their receipt, which is durable then.

    Memory: a few images of the shard, one decode, and a row group of resized ones. Raises ObjectDamaged where the shard
    does not hold what its receipt says.
    """
    dataset, bucket, number = task.dataset, Bucket.parse(task.receipt.bucket), task.receipt.number
    stores = shared_stores(StorageConfig.of(dataset))
    layout = ResizedLayout(dataset.resized_prefix, dataset.work_prefix, task.size)
    main = Layout(dataset.output_prefix, dataset.sidecar_prefix, dataset.work_prefix)
    with (
        open_hashing_sink(stores, layout.shard_uri(bucket, number)) as hashing,
        shard_writer(pa.PythonFile(hashing, mode="w"), RESIZED_SCHEMA, IMAGE_COLUMN) as writer,
    ):
        pages = _Pages(writer, dataset.packing.row_group_bytes)
        for key, image, width_px, height_px in _read_rows(stores, main.shard_uri(bucket, number), task.receipt):
            geometry = plan_crop(width_px, height_px, task.size)
            pages.add(key, geometry, resize_image(image, _wish(dataset, geometry)))
        pages.flush()
    receipt = ResizedReceipt(
        dataset.name,
        bucket.key,
        number,
        task.size,
        task.fingerprint,
        hashing.stored(),
        pages.rows,
        pages.image_bytes,
        tuple(pages.failed),
    )
    stores.put(layout.receipt_uri(bucket, number), encode_receipt(receipt))
    return receipt


def _read_rows(stores: Stores, uri: str, receipt: ShardReceipt) -> Iterator[tuple[str, memoryview, int, int]]:
    """Yields key, image, width and height of every row; the image is valid until the next row is asked for."""
    file = open_parquet(stores, uri, verify_checksums=True, buffer_bytes=_BUFFER_BYTES)
    rows = 0
    for batch in read_batches(file, uri, _READ_COLUMNS, _BATCH_ROWS):
        keys, images, widths, heights = (batch.column(name) for name in _READ_COLUMNS)
        for row in range(len(batch)):
            yield keys[row].as_py(), memoryview(images[row].as_buffer()), widths[row].as_py(), heights[row].as_py()
        rows += len(batch)
    if rows != receipt.packed_rows:
        raise ObjectDamaged(uri, f"{rows} rows, {receipt.packed_rows} by its receipt; run pack again")


def _wish(dataset: DatasetConfig, geometry: CropGeometry) -> Resize:
    left, top = geometry.left_px, geometry.top_px
    return Resize(
        (geometry.resized_width_px, geometry.resized_height_px),
        (left, top, left + geometry.target_width_px, top + geometry.target_height_px),
        dataset.images.formats,
        dataset.images.max_pixels,
        dataset.images.orientation == "upright",
    )


@dataclass(slots=True)
class _Pages:
    """Gathers rows and writes them as row groups of `row_group_bytes` of images."""

    writer: pq.ParquetWriter
    row_group_bytes: int
    rows: int = 0
    image_bytes: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)
    _gathered: list[dict[str, Any]] = field(default_factory=list)
    _gathered_bytes: int = 0

    def add(self, key: str, geometry: CropGeometry, made: bytes | str) -> None:
        row: dict[str, Any] = {
            KEY_COLUMN: key,
            "source_width": geometry.source_width_px,
            "source_height": geometry.source_height_px,
        }
        if isinstance(made, str):
            self.failed.append((self.rows, made))
            row["resize_error"] = made
        else:
            row |= {
                IMAGE_COLUMN: made,
                WIDTH_COLUMN: geometry.target_width_px,
                HEIGHT_COLUMN: geometry.target_height_px,
                "resized_width": geometry.resized_width_px,
                "resized_height": geometry.resized_height_px,
                "crop_left": geometry.left_px,
                "crop_top": geometry.top_px,
            }
            self.image_bytes += len(made)
            self._gathered_bytes += len(made)
        self.rows += 1
        self._gathered.append(row)
        if self._gathered_bytes >= self.row_group_bytes:
            self.flush()

    def flush(self) -> None:
        if self._gathered:
            table = pa.Table.from_pylist(self._gathered, RESIZED_SCHEMA)
            self.writer.write_table(table, row_group_size=len(table))
            self._gathered, self._gathered_bytes = [], 0
