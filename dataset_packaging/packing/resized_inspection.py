"""What landed of the resized images of one shard, read again and held against the shard. Runs in a task; reads only."""

from dataclasses import dataclass

import pyarrow as pa

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.crops import plan_crop
from dataset_packaging.core.invariants import (
    CheckName,
    Finding,
    find_misalignment,
    find_schema_faults,
    find_storage_faults,
)
from dataset_packaging.core.layout import Layout, ResizedLayout
from dataset_packaging.core.receipts import ResizedReceipt, ShardReceipt
from dataset_packaging.core.schema import HEIGHT_COLUMN, IMAGE_COLUMN, KEY_COLUMN, RESIZED_SCHEMA, WIDTH_COLUMN
from dataset_packaging.errors import NotFound, ObjectDamaged, PreconditionFailed
from dataset_packaging.imaging.header import read_header
from dataset_packaging.io.parquet import damage_told, open_parquet, read_batches
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.status import hash_object

_BATCH_ROWS = 16
_FAULTS_MAX = 10
_MAIN_COLUMNS = [KEY_COLUMN, WIDTH_COLUMN, HEIGHT_COLUMN]


@dataclass(frozen=True, slots=True)
class ResizedInspectTask:
    """The resized images of one shard to look at.

    Attributes:
        dataset: its configuration.
        size: of the set.
        main: receipt of the main shard.
        receipt: of the resized images.
        deep: whether to read every byte: the hash of the file and the header of each image.
    """

    dataset: DatasetConfig
    size: int
    main: ShardReceipt
    receipt: ResizedReceipt
    deep: bool = False


def inspect_resized(task: ResizedInspectTask) -> tuple[Finding, ...]:
    """Reads footers, small columns and, if deep, images, and returns what does not hold."""
    dataset, bucket, number = task.dataset, Bucket.parse(task.main.bucket), task.main.number
    stores = shared_stores(StorageConfig.of(dataset))
    uri = ResizedLayout(dataset.resized_prefix, dataset.work_prefix, task.size).shard_uri(bucket, number)
    main_uri = Layout(dataset.output_prefix, dataset.sidecar_prefix, dataset.work_prefix).shard_uri(bucket, number)
    findings: list[Finding] = []

    def find(check: CheckName, details: list[str]) -> None:
        findings.extend(Finding(check, bucket.key, number, f"resized {task.size}: {detail}") for detail in details)

    try:
        find("resized_rows", _find_row_faults(stores, uri, main_uri, task.size))
        if task.deep:
            if hash_object(stores, uri) != task.receipt.object.sha256:
                told = "its bytes are not those of its receipt, though size and time are: pack with --rebuild"
                find("resized_state", [told])
            find("resized_rows", _find_image_faults(stores, uri))
    except (NotFound, ObjectDamaged, PreconditionFailed) as error:
        find("resized_rows", [f"it or its shard cannot be read: {error.detail}; run pack again"])
    return tuple(findings)


def _find_row_faults(stores: Stores, uri: str, main_uri: str, size: int) -> list[str]:
    """Compares keys, sizes and geometry, row by row, and schema and settings of the file."""
    file = open_parquet(stores, uri, verify_checksums=True)
    faults = find_schema_faults(RESIZED_SCHEMA, file.schema_arrow)
    if faults:
        return faults
    faults = find_storage_faults(file.metadata)
    with damage_told(uri):
        table = file.read(columns=[name for name in RESIZED_SCHEMA.names if name != IMAGE_COLUMN])
    main = open_parquet(stores, main_uri, verify_checksums=True)
    with damage_told(main_uri):
        planned = main.read(columns=_MAIN_COLUMNS)
    faults += find_misalignment(planned[KEY_COLUMN].to_pylist(), table[KEY_COLUMN].to_pylist(), KEY_COLUMN)
    return faults or _find_geometry_faults(planned, table, size)


def _find_geometry_faults(main: pa.Table, table: pa.Table, size: int) -> list[str]:
    names = [
        "source_width", "source_height", "resized_width", "resized_height", WIDTH_COLUMN, HEIGHT_COLUMN,
        "crop_left", "crop_top",
    ]  # fmt: skip
    told = zip(*(table[name].to_pylist() for name in names), strict=True)
    errors = table["resize_error"].to_pylist()
    sides = zip(main[WIDTH_COLUMN].to_pylist(), main[HEIGHT_COLUMN].to_pylist(), strict=True)
    faults = []
    for row, ((width, height), values, error) in enumerate(zip(sides, told, errors, strict=True)):
        geometry = plan_crop(width, height, size)
        crop = (geometry.resized_width_px, geometry.resized_height_px, geometry.target_width_px,
                geometry.target_height_px, geometry.left_px, geometry.top_px)  # fmt: skip
        expected = (width, height, *((None,) * len(crop) if error is not None else crop))
        if values != expected:
            faults.append(f"row {row}: geometry {values}, expected {expected}")
    return faults[:_FAULTS_MAX]


def _find_image_faults(stores: Stores, uri: str) -> list[str]:
    """Looks at every image's header: a WebP of the size that its row tells, none where the row tells why."""
    file = open_parquet(stores, uri, verify_checksums=True)
    columns = [IMAGE_COLUMN, WIDTH_COLUMN, HEIGHT_COLUMN, "resize_error"]
    faults: list[str] = []
    row = 0
    for batch in read_batches(file, uri, columns, _BATCH_ROWS):
        for image, width, height, error in zip(*(batch.column(name) for name in columns), strict=True):
            if not image.is_valid:
                if not error.is_valid:
                    faults.append(f"row {row}: no image, and no reason")
            else:
                header = read_header(memoryview(image.as_buffer()))
                found = header.format, header.width_px, header.height_px
                if found != ("WEBP", width.as_py(), height.as_py()):
                    faults.append(f"row {row}: {found}, expected a WEBP of {width} x {height}")
            row += 1
    return faults[:_FAULTS_MAX]
