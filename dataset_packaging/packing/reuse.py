"""What an older version of a shard still tells: its images, their verdicts and its rejects.

A shard that is written anew because captions changed or a row was removed takes its images from the old object instead
of fetching them again. Each image is compared with the sha256 of its fact; whatever does not agree is fetched.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import Layout
from dataset_packaging.core.ledger import RETRIED_REASONS
from dataset_packaging.core.receipts import RejectedRow, ShardReceipt
from dataset_packaging.core.schema import IMAGE_COLUMN, KEY_COLUMN, PATH_COLUMN
from dataset_packaging.errors import NotFound
from dataset_packaging.imaging.verify import Verdict
from dataset_packaging.io.parquet import iter_batches, open_parquet, read_table
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.fetch import CheckedImage, ImageChecker, WantedImage, checksum_mismatch

_BATCH_ROWS = 16


@dataclass(frozen=True, slots=True)
class _Fact:
    """One packed row of the old shard."""

    order: int
    sha256: str
    verdict: Verdict


class OldShard:
    """The packed and rejected rows of a shard's older version, read forward once, in the order of positions."""

    def __init__(
        self,
        file: pq.ParquetFile,
        facts: dict[tuple[str, str], _Fact],
        rejected: tuple[RejectedRow, ...],
        same_policy: bool,
    ) -> None:
        self._images = _images(file)
        self._next = 0
        self._facts = facts
        self._same_policy = same_policy
        self._rejected = {(row.image_key, row.s3_image_path): row for row in rejected} if same_policy else {}

    @classmethod
    def open(cls, stores: Stores, layout: Layout, receipt: ShardReceipt, policy: str) -> "OldShard | None":
        """Opens the old version, or returns None where it or its facts cannot be used."""
        bucket = Bucket.parse(receipt.bucket)
        try:
            file = open_parquet(stores, layout.shard_uri(bucket, receipt.number), verify_checksums=True)
            names = file.read(columns=[KEY_COLUMN, PATH_COLUMN])
            facts = read_table(stores, layout.facts_uri(bucket, receipt.number))
        except (NotFound, pa.ArrowException, OSError):
            return None
        if len(names) != len(facts):
            return None
        keys = zip(names[KEY_COLUMN].to_pylist(), names[PATH_COLUMN].to_pylist(), strict=True)
        known = {
            key: _Fact(order, fact["sha256"], _verdict(fact))
            for order, (key, fact) in enumerate(zip(keys, facts.to_pylist(), strict=True))
        }
        return cls(file, known, receipt.rejected, receipt.policy == policy)

    def holds(self, rows: pa.Table, row: int) -> bool:
        """Tells whether the old shard has an image for a row of the new plan."""
        return _name(rows, row) in self._facts

    def rejects(self, rows: pa.Table) -> Iterator[tuple[int, CheckedImage]]:
        """Yields the rows that were rejected for good, under the same policy and for the same object."""
        for row in range(len(rows)):
            old = self._rejected.get(_name(rows, row))
            if old is not None and old.reason not in RETRIED_REASONS and old.reason != "checksum_mismatch":
                yield row, CheckedImage(None, "", Verdict(old.reason, old.detail))

    def take(self, rows: pa.Table, row: int, wanted: WantedImage, checker: ImageChecker) -> CheckedImage | None:
        """Returns the row's image from the old shard, or None where it must be fetched after all.

        Rows must be asked for in the order of their positions. The verdict carries over under the same policy; under
        another one the bytes are verified again.
        """
        fact = self._facts[_name(rows, row)]
        image = self._read(fact.order)
        if image is None or hashlib.sha256(image).hexdigest() != fact.sha256:
            return None
        if checksum_mismatch(image, fact.sha256, wanted) is not None:
            return None
        if not self._same_policy:
            return checker.verify_only(image, wanted)
        return CheckedImage(image, fact.sha256, fact.verdict)

    def _read(self, order: int) -> memoryview | None:
        try:
            while self._next <= order:
                image = next(self._images)
                self._next += 1
        except (StopIteration, pa.ArrowException, OSError):
            return None
        return image if self._next == order + 1 else None


def _images(file: pq.ParquetFile) -> Iterator[memoryview]:
    for batch in iter_batches(file, [IMAGE_COLUMN], _BATCH_ROWS):
        for image in batch.column(0):
            yield memoryview(image.as_buffer())


def _name(rows: pa.Table, row: int) -> tuple[str, str]:
    return rows[KEY_COLUMN][row].as_py(), rows[PATH_COLUMN][row].as_py()


def _verdict(fact: dict[str, Any]) -> Verdict:
    return Verdict(
        None,
        "",
        fact["format"],
        fact["mode"],
        fact["frames"],
        fact["stored_width"],
        fact["stored_height"],
        fact["width"],
        fact["height"],
        fact["exif_orientation"],
        fact["is_rgba"],
        tuple(fact["warnings"] or ()),
    )
