"""A main shard while it is being written: rows in, row groups out, with the facts and fates of the rows beside."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dataset_packaging.core.bucketing import Bucket, bucket_of
from dataset_packaging.core.receipts import MovedRow, RejectedRow
from dataset_packaging.core.schema import IMAGE_COLUMN, MAIN_SCHEMA
from dataset_packaging.imaging.verify import Verdict
from dataset_packaging.packing.decoder import CheckedImage
from dataset_packaging.packing.index_schema import FACTS_SCHEMA


@dataclass(slots=True)
class ShardContents:
    """Takes the rows of a shard in plan order. Memory: one row group of images.

    Attributes:
        rows: the planned rows, by position.
        bucket: of the shard.
        sources: URIs of the manifest files, by number.
        row_group_bytes: of images, after which a row group is written.
        writer: a Parquet writer of MAIN_SCHEMA.
    """

    rows: pa.Table
    bucket: Bucket
    sources: tuple[str, ...]
    row_group_bytes: int
    writer: Any
    row_groups: int = 0
    image_bytes: int = 0
    rejected: list[RejectedRow] = field(default_factory=list)
    moved: list[MovedRow] = field(default_factory=list)
    _packed: list[tuple[int, int, str, Verdict]] = field(default_factory=list)
    _images: list[memoryview] = field(default_factory=list)
    _group_bytes: int = 0

    def add(self, row: int, checked: CheckedImage) -> None:
        """Takes the next row: packs it, or notes why it is not in the shard."""
        verdict = checked.verdict
        if verdict.reason is not None or checked.data is None:
            self.rejected.append(
                RejectedRow(
                    self._value("position", row),
                    self._value("image_key", row),
                    self._value("s3_image_path", row),
                    self.sources[self._value("source", row)],
                    self._value("line", row),
                    verdict.reason or "fetch_failed",
                    verdict.detail,
                )
            )
        elif bucket_of(verdict.width_px, verdict.height_px) != self.bucket:
            self.moved.append(
                MovedRow(
                    self._value("position", row),
                    self._value("image_key", row),
                    self._value("s3_image_path", row),
                    verdict.width_px,
                    verdict.height_px,
                )
            )
        else:
            self._packed.append((row, len(checked.data), checked.sha256, verdict))
            self._images.append(checked.data)
            self._group_bytes += len(checked.data)
            if self._group_bytes >= self.row_group_bytes:
                self.flush()

    def flush(self) -> None:
        """Writes the row group at hand, if it has rows."""
        if not self._images:
            return
        group = self._packed[-len(self._images) :]
        taken = self.rows.take(pa.array([row for row, _, _, _ in group]))
        arrays: dict[str, pa.Array | pa.ChunkedArray] = {
            IMAGE_COLUMN: _image_column(self._images),
            "width": pa.array([verdict.width_px for _, _, _, verdict in group], pa.int32()),
            "height": pa.array([verdict.height_px for _, _, _, verdict in group], pa.int32()),
            "is_rgba": pa.array([verdict.is_rgba for _, _, _, verdict in group], pa.bool_()),
        }
        columns = [arrays[name] if name in arrays else taken[name] for name in MAIN_SCHEMA.names]
        self.writer.write_table(pa.Table.from_arrays(columns, schema=MAIN_SCHEMA), row_group_size=len(group))
        self.row_groups += 1
        self.image_bytes += self._group_bytes
        self._images, self._group_bytes = [], 0

    def facts(self) -> pa.Table:
        """Returns what verification found, one row per packed row."""
        verdicts = [verdict for _, _, _, verdict in self._packed]
        columns: list[Any] = [
            self.rows["position"].take(pa.array([row for row, _, _, _ in self._packed], pa.int64())),
            [verdict.width_px for verdict in verdicts],
            [verdict.height_px for verdict in verdicts],
            [verdict.is_rgba for verdict in verdicts],
            [verdict.format for verdict in verdicts],
            [verdict.mode for verdict in verdicts],
            [verdict.frames for verdict in verdicts],
            [verdict.stored_width_px for verdict in verdicts],
            [verdict.stored_height_px for verdict in verdicts],
            [verdict.exif_orientation for verdict in verdicts],
            [size_bytes for _, size_bytes, _, _ in self._packed],
            [sha256 for _, _, sha256, _ in self._packed],
            [list(verdict.warnings) for verdict in verdicts],
        ]
        return pa.table(dict(zip(FACTS_SCHEMA.names, columns, strict=True)), schema=FACTS_SCHEMA)

    def _value(self, column: str, row: int) -> Any:
        return self.rows[column][row].as_py()


def _image_column(images: list[memoryview]) -> pa.ChunkedArray:
    """Returns the images as one Arrow column, a chunk each: not a byte of them is copied."""
    chunks = [
        pa.Array.from_buffers(
            pa.binary(), 1, [None, pa.py_buffer(np.array([0, len(image)], np.int32)), pa.py_buffer(image)]
        )
        for image in images
    ]
    return pa.chunked_array(chunks, pa.binary())
