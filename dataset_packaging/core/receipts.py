"""What a worker promises about one shard, as JSON. Pure.

A receipt is written after its object is durable and tells the fate of every planned row: packed, rejected or moved.
Reject lists, corrections and the ledger are derived from receipts and can be rebuilt from them at any time.
"""

from collections import Counter
from dataclasses import dataclass

import msgspec

from dataset_packaging.core.crops import CropCounts
from dataset_packaging.core.merging import MergedColumn

RECEIPT_VERSION = 1


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was when it was written.

    Attributes:
        size_bytes: its length.
        tag: what the store tells of its version (S3: ETag; local: mtime and ctime).
        sha256: hex digest of its bytes: decides where size or tag differ.
    """

    size_bytes: int
    tag: str
    sha256: str


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that was not packed, and why."""

    position: int
    image_key: str
    s3_image_path: str
    manifest_uri: str
    line: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class MovedRow:
    """A row whose decoded size belongs to another bucket; the next generation gives it a place there."""

    position: int
    image_key: str
    s3_image_path: str
    width_px: int
    height_px: int


@dataclass(frozen=True, slots=True)
class ShardReceipt:
    """The receipt of one main shard.

    Attributes:
        dataset: name of the dataset.
        bucket: key of the bucket, such as `512_1024/10000`.
        number: number of the shard.
        fingerprint: of the plan and the configuration that made these bytes.
        object: the shard.
        facts: the table of what verification found, one row per packed row.
        planned_rows: live rows of the plan = packed_rows + len(rejected) + len(moved).
        packed_rows: rows in the shard.
        image_bytes: sum of the lengths of the packed images.
        row_groups: in the shard.
        policy: fingerprint of the verification policy; under another one verdicts do not carry over.
        generation: whose lines the rejected rows name; a later manifest may hold the same rows in other lines.
        rejected: rows with a reason.
        moved: rows that belong to another bucket.
        version: of this format.
    """

    dataset: str
    bucket: str
    number: int
    fingerprint: str
    object: StoredObject
    facts: StoredObject
    planned_rows: int
    packed_rows: int
    image_bytes: int
    row_groups: int
    policy: str
    generation: int
    rejected: tuple[RejectedRow, ...] = ()
    moved: tuple[MovedRow, ...] = ()
    version: int = RECEIPT_VERSION

    @property
    def reject_counts(self) -> dict[str, int]:
        """Rejected rows by reason."""
        return dict(Counter(row.reason for row in self.rejected))


@dataclass(frozen=True, slots=True)
class SidecarReceipt:
    """The receipt of one sidecar.

    Attributes:
        dataset: name of the dataset.
        bucket: key of the bucket.
        number: number of the shard.
        fingerprint: of the main shard's receipt, the plan's sidecar values and the sidecar configuration.
        object: the sidecar.
        rows: in the sidecar; equal to the packed rows of its shard.
        null_counts: nulls by column.
        merged: where merged columns come from.
        crops: what the crops did to captions, by size.
        version: of this format.
    """

    dataset: str
    bucket: str
    number: int
    fingerprint: str
    object: StoredObject
    rows: int
    null_counts: dict[str, int]
    merged: tuple[MergedColumn, ...] = ()
    crops: tuple[CropCounts, ...] = ()
    version: int = RECEIPT_VERSION


@dataclass(frozen=True, slots=True)
class ResizedReceipt:
    """The receipt of the resized images of one shard.

    Attributes:
        dataset: name of the dataset.
        bucket: key of the bucket.
        number: number of the shard.
        size: of the set.
        fingerprint: of the main shard and of what the resize depends on.
        object: the file.
        rows: in it; equal to the packed rows of its shard.
        image_bytes: of the resized images.
        failed: rows without an image, as (row, reason).
        version: of this format.
    """

    dataset: str
    bucket: str
    number: int
    size: int
    fingerprint: str
    object: StoredObject
    rows: int
    image_bytes: int
    failed: tuple[tuple[int, str], ...] = ()
    version: int = RECEIPT_VERSION


def encode_receipt(receipt: ShardReceipt | SidecarReceipt | ResizedReceipt) -> bytes:
    """Returns the receipt as JSON; equal receipts give equal bytes."""
    return msgspec.json.encode(receipt)


def decode_receipt(data: bytes | memoryview) -> ShardReceipt | None:
    """Returns the receipt, or None where the bytes are not one of this version: such a shard counts as not packed."""
    try:
        receipt = msgspec.json.decode(data, type=ShardReceipt)
    except msgspec.DecodeError:
        return None
    balanced = receipt.planned_rows == receipt.packed_rows + len(receipt.rejected) + len(receipt.moved)
    return receipt if balanced and receipt.version == RECEIPT_VERSION else None


def decode_sidecar_receipt(data: bytes | memoryview) -> SidecarReceipt | None:
    """Returns the sidecar's receipt, or None where the bytes are not one of this version."""
    try:
        receipt = msgspec.json.decode(data, type=SidecarReceipt)
    except msgspec.DecodeError:
        return None
    return receipt if receipt.version == RECEIPT_VERSION else None


def decode_resized_receipt(data: bytes | memoryview) -> ResizedReceipt | None:
    """Returns the receipt of resized images, or None where the bytes are not one of this version."""
    try:
        receipt = msgspec.json.decode(data, type=ResizedReceipt)
    except msgspec.DecodeError:
        return None
    return receipt if receipt.version == RECEIPT_VERSION else None
