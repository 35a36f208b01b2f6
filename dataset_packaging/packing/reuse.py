"""What an older version of a shard still tells: its images, their verdicts and its rejects.

A shard that is written anew because captions changed, a row was removed or its facts were lost takes its images from
the old object instead of fetching them again. The object is the one of its receipt; each image is compared with the
sha256 of its fact besides, and whatever does not agree is fetched.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import Layout
from dataset_packaging.core.receipts import RejectedRow, ShardReceipt
from dataset_packaging.core.schema import IMAGE_COLUMN, KEY_COLUMN, PATH_COLUMN
from dataset_packaging.errors import NotFound, ObjectDamaged, PreconditionFailed
from dataset_packaging.imaging.verify import Verdict
from dataset_packaging.io.parquet import READ_BYTES, damage_told, open_parquet, read_values
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.decoder import CheckedImage, WantedImage, checksum_mismatch
from dataset_packaging.packing.fetch import ImageChecker


@dataclass(frozen=True, slots=True)
class _Fact:
    """One packed row of the old shard; without facts, `sha256` is empty and the image is verified again."""

    order: int
    sha256: str
    verdict: Verdict | None


class OldShard:
    """The packed and rejected rows of a shard's older version, read forward once, in the order of positions."""

    def __init__(
        self,
        images: Iterator[memoryview],
        facts: dict[tuple[str, str], _Fact],
        rejected: tuple[RejectedRow, ...],
        same_policy: bool,
    ) -> None:
        self._images = images
        self._next = 0
        self._facts = facts
        self._same_policy = same_policy
        self._rejected = {(row.image_key, row.s3_image_path): row for row in rejected} if same_policy else {}

    @classmethod
    def open(cls, stores: Stores, layout: Layout, receipt: ShardReceipt, policy: str) -> "OldShard | None":
        """Opens the old version, or returns None where it cannot be used."""
        bucket = Bucket.parse(receipt.bucket)
        uri = layout.shard_uri(bucket, receipt.number)
        try:
            file = open_parquet(stores, uri, verify_checksums=True, buffer_bytes=READ_BYTES)
            with damage_told(uri):
                names = file.read(columns=[KEY_COLUMN, PATH_COLUMN])
        except (NotFound, ObjectDamaged, PreconditionFailed):
            return None
        facts = _read_facts(stores, layout.facts_uri(bucket, receipt.number), receipt)
        keys = zip(names[KEY_COLUMN].to_pylist(), names[PATH_COLUMN].to_pylist(), strict=True)
        known = {
            key: _Fact(order, facts[order]["sha256"], _verdict(facts[order])) if facts else _Fact(order, "", None)
            for order, key in enumerate(keys)
        }
        images = (
            memoryview(image.as_buffer()).cast("B")  # decoders refuse the signed bytes that Arrow announces
            for image in read_values(file, uri, IMAGE_COLUMN)
        )
        return cls(images, known, receipt.rejected, receipt.policy == policy)

    def holds(self, rows: pa.Table, row: int) -> bool:
        """Tells whether the old shard has an image for a row of the new plan."""
        return _name(rows, row) in self._facts

    def rejects(self, rows: pa.Table, retried: frozenset[str]) -> Iterator[tuple[int, CheckedImage]]:
        """Yields the rows that were rejected under the same policy and for the same object, and are not `retried`.

        What the manifest said of the object's bytes may have changed: that is compared again.
        """
        for row in range(len(rows)):
            old = self._rejected.get(_name(rows, row))
            if old is not None and old.reason not in retried and old.reason != "checksum_mismatch":
                yield row, CheckedImage(None, "", Verdict(old.reason, old.detail))

    def take(self, rows: pa.Table, row: int, wanted: WantedImage, checker: ImageChecker) -> CheckedImage | None:
        """Returns the row's image from the old shard, or None where it must be fetched after all.

        Rows must be asked for in the order of their positions. The verdict carries over under the same policy; under
        another one the bytes are verified again.
        """
        fact = self._facts[_name(rows, row)]
        image = self._read(fact.order)
        if image is None:
            return None
        sha256 = hashlib.sha256(image).hexdigest()
        if fact.sha256 and sha256 != fact.sha256:
            return None
        if checksum_mismatch(image, sha256, wanted) is not None:
            return None
        if fact.verdict is None or not self._same_policy:
            return checker.verify_only(image, wanted)
        return CheckedImage(image, sha256, fact.verdict)

    def _read(self, order: int) -> memoryview | None:
        image = None
        try:
            while self._next <= order:
                image = next(self._images, None)
                self._next += 1
        except (ObjectDamaged, PreconditionFailed):
            self._images = iter(())
        return image


def _read_facts(stores: Stores, uri: str, receipt: ShardReceipt) -> list[dict[str, Any]]:
    """Returns the facts of the packed rows, or none where they are not the ones of the receipt."""
    try:
        data = stores.get(uri)
    except NotFound:
        return []
    if hashlib.sha256(data).hexdigest() != receipt.facts.sha256:
        return []
    rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(data)).to_pylist()
    return rows


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
