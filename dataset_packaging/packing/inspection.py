"""What landed in one shard and its sidecar, read again and held against the invariants. Runs in a task; reads only.

Memory is bounded by the small columns of a shard, without `meta_info`; that and images pass by in small batches.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.invariants import (
    CheckName,
    Finding,
    find_meta_info_faults,
    find_misalignment,
    find_name_faults,
    find_schema_faults,
    find_storage_faults,
    find_strays,
)
from dataset_packaging.core.layout import Layout
from dataset_packaging.core.receipts import ShardReceipt, SidecarReceipt
from dataset_packaging.core.schema import IMAGE_COLUMN, MAIN_SCHEMA, META_INFO_COLUMN, PACKAGING_KEY, sidecar_schema
from dataset_packaging.errors import NotFound, ObjectDamaged, PreconditionFailed
from dataset_packaging.io.parquet import READ_BYTES, damage_told, open_parquet, read_values
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.status import hash_object

_ALIGNED = ("image_key", "s3_image_path", "width", "height", "is_rgba")


@dataclass(frozen=True, slots=True)
class InspectTask:
    """One shard to look at.

    Attributes:
        dataset: its configuration.
        receipt: of the main shard.
        side_receipt: of the sidecar; None where it is not done.
        main: whether to look at the main shard.
        side: whether to look at the sidecar.
        deep: whether to read every byte: the hashes of both files, and of every image in them.
    """

    dataset: DatasetConfig
    receipt: ShardReceipt
    side_receipt: SidecarReceipt | None
    main: bool = True
    side: bool = True
    deep: bool = False


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found in one shard; `bytes` counts the images that were hashed."""

    bucket: str
    number: int
    rows: int
    bytes: int
    findings: tuple[Finding, ...]


def inspect_shard(task: InspectTask) -> Inspection:
    """Reads footers, small columns and, if deep, images, and returns what does not hold."""
    stores = shared_stores(StorageConfig.of(task.dataset))
    layout = Layout(task.dataset.output_prefix, task.dataset.sidecar_prefix, task.dataset.work_prefix)
    bucket, number = Bucket.parse(task.receipt.bucket), task.receipt.number
    findings: list[Finding] = []

    def find(check: CheckName, details: list[str]) -> None:
        findings.extend(Finding(check, bucket.key, number, detail) for detail in details)

    if task.deep:
        _hash_objects(stores, layout, task, bucket, find)
    try:
        main = _read_main(stores, layout, task, bucket, find)
    except (NotFound, ObjectDamaged, PreconditionFailed) as error:
        find("schema", [f"the shard cannot be read: {error.detail}; run pack again"])
        return Inspection(bucket.key, number, 0, 0, tuple(findings))
    hashed = 0
    if task.side:
        try:
            _check_side(stores, layout, task, bucket, main, find)
            if task.deep:
                hashed = _hash_images(stores, layout, bucket, number, find)
        except (NotFound, ObjectDamaged, PreconditionFailed) as error:
            find("row_alignment", [f"sidecar or shard cannot be read: {error}; run pack again"])
    return Inspection(bucket.key, number, len(main), hashed, tuple(findings))


def _hash_objects(
    stores: Stores, layout: Layout, task: InspectTask, bucket: Bucket, find: Callable[[CheckName, list[str]], None]
) -> None:
    """Compares the files with their receipts byte by byte: finds what changed without touching size or tag."""
    number = task.receipt.number
    expected: list[tuple[CheckName, str, str]] = []
    if task.main:
        expected.append(("shard_state", layout.shard_uri(bucket, number), task.receipt.object.sha256))
    if task.side_receipt is not None:
        expected.append(("sidecar_state", layout.sidecar_uri(bucket, number), task.side_receipt.object.sha256))
    for check, uri, sha256 in expected:
        try:
            if hash_object(stores, uri) != sha256:
                find(check, ["its bytes are not those of its receipt, though size and time are: pack with --rebuild"])
        except (NotFound, PreconditionFailed) as error:
            find(check, [f"it cannot be read: {error.detail}; run pack again"])


def _read_main(
    stores: Stores, layout: Layout, task: InspectTask, bucket: Bucket, find: Callable[[CheckName, list[str]], None]
) -> pa.Table:
    uri = layout.shard_uri(bucket, task.receipt.number)
    file = open_parquet(stores, uri, verify_checksums=True)
    with damage_told(uri):
        table = file.read(columns=[*_ALIGNED])
    if task.main:
        find("schema", find_schema_faults(MAIN_SCHEMA, file.schema_arrow) + find_storage_faults(file.metadata))
        find("bucket_membership", find_strays(bucket, table["width"].to_pylist(), table["height"].to_pylist()))
        expected = task.receipt.planned_rows - len(task.receipt.rejected) - len(task.receipt.moved)
        if len(table) != expected:
            find("rows_conserved", [f"{len(table)} rows in the shard, {expected} packed by its receipt"])
    return table


def _check_side(
    stores: Stores,
    layout: Layout,
    task: InspectTask,
    bucket: Bucket,
    main: pa.Table,
    find: Callable[[CheckName, list[str]], None],
) -> None:
    uri = layout.sidecar_uri(bucket, task.receipt.number)
    file = open_parquet(stores, uri, verify_checksums=True, buffer_bytes=READ_BYTES)
    declared = sidecar_schema(task.dataset.sidecar.extension_columns())
    find("column_names", find_name_faults(declared, file.schema_arrow) + find_storage_faults(file.metadata))
    with damage_told(uri):
        table = file.read(columns=[*_ALIGNED])
    for name in _ALIGNED:
        side = table[name].to_pylist() if table.column_names.count(name) == 1 else []
        find("row_alignment", find_misalignment(main[name].to_pylist(), side, name))
    find("meta_info_json", find_meta_info_faults(_meta_info(file, uri)))


def _meta_info(file: pq.ParquetFile, uri: str) -> Iterator[str | None]:
    if file.schema_arrow.names.count(META_INFO_COLUMN) == 1:
        yield from (value.as_py() for value in read_values(file, uri, META_INFO_COLUMN))


def _sha256(text: str | None) -> str:
    try:
        return str(msgspec.json.decode(text or "")[PACKAGING_KEY]["sha256"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""


def _hash_images(
    stores: Stores, layout: Layout, bucket: Bucket, number: int, find: Callable[[CheckName, list[str]], None]
) -> int:
    """Compares every image with the hash that the sidecar tells of its row; returns the bytes that were hashed."""
    uri, side_uri = layout.shard_uri(bucket, number), layout.sidecar_uri(bucket, number)
    images = read_values(open_parquet(stores, uri, verify_checksums=True, buffer_bytes=READ_BYTES), uri, IMAGE_COLUMN)
    texts = _meta_info(open_parquet(stores, side_uri, verify_checksums=True, buffer_bytes=READ_BYTES), side_uri)
    size = 0
    for row, image in enumerate(images):
        data = image.as_buffer()
        size += data.size
        digest = hashlib.sha256(data).hexdigest()
        if digest != _sha256(next(texts, None)):
            find("image_bytes", [f"row {row}: the image's sha256 is {digest}, not the one of its sidecar"])
    return size
