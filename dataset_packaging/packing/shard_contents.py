"""A main shard while it is being written: rows in, row groups out, with the facts and fates of the rows beside."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dataset_packaging.core.bucketing import Bucket, bucket_of
from dataset_packaging.core.receipts import MovedRow, RejectedRow
from dataset_packaging.core.schema import IMAGE_COLUMN, MAIN_SCHEMA
from dataset_packaging.imaging.verify import Verdict
from dataset_packaging.packing.fetch import CheckedImage
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
    _facts: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in FACTS_SCHEMA.names})
    _chosen: list[int] = field(default_factory=list)
    _images: list[memoryview] = field(default_factory=list)
    _verdicts: list[Verdict] = field(default_factory=list)
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
            self._pack(row, checked.data, checked.sha256, verdict)

    def flush(self) -> None:
        """Writes the row group at hand, if it has rows."""
        if not self._chosen:
            return
        taken = self.rows.take(pa.array(self._chosen))
        arrays: dict[str, pa.Array] = {
            IMAGE_COLUMN: _binary_array(self._images),
            "width": pa.array([verdict.width_px for verdict in self._verdicts], pa.int32()),
            "height": pa.array([verdict.height_px for verdict in self._verdicts], pa.int32()),
            "is_rgba": pa.array([verdict.is_rgba for verdict in self._verdicts], pa.bool_()),
        }
        columns = [arrays[name] if name in arrays else taken[name] for name in MAIN_SCHEMA.names]
        self.writer.write_table(pa.Table.from_arrays(columns, schema=MAIN_SCHEMA), row_group_size=len(self._chosen))
        self.row_groups += 1
        self._chosen, self._images, self._verdicts, self._group_bytes = [], [], [], 0

    def facts(self) -> pa.Table:
        """Returns what verification found, one row per packed row."""
        return pa.table(self._facts, schema=FACTS_SCHEMA)

    def _pack(self, row: int, image: memoryview, sha256: str, verdict: Verdict) -> None:
        self._chosen.append(row)
        self._images.append(image)
        self._verdicts.append(verdict)
        self._group_bytes += len(image)
        self.image_bytes += len(image)
        facts = (
            self._value("position", row),
            verdict.width_px,
            verdict.height_px,
            verdict.is_rgba,
            verdict.format,
            verdict.mode,
            verdict.frames,
            verdict.stored_width_px,
            verdict.stored_height_px,
            verdict.exif_orientation,
            len(image),
            sha256,
            list(verdict.warnings),
        )
        for name, value in zip(FACTS_SCHEMA.names, facts, strict=True):
            self._facts[name].append(value)
        if self._group_bytes >= self.row_group_bytes:
            self.flush()

    def _value(self, column: str, row: int) -> Any:
        return self.rows[column][row].as_py()


def _binary_array(images: list[memoryview]) -> pa.Array:
    """Returns one Arrow binary array; its bytes are copied once, its offsets are built directly."""
    offsets = np.zeros(len(images) + 1, np.int32)
    np.cumsum([len(image) for image in images], out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(images), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(images))]
    )
