"""What must hold of what landed, as functions from evidence to findings. Pure.

Asset checks and `verify` both call them: evidence is read from the store, never from what is in memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import pyarrow as pa

from dataset_packaging.core.bucketing import BUCKETS, Bucket, bucket_ids
from dataset_packaging.core.ledger import Ledger
from dataset_packaging.core.reference import columns_of, find_differences
from dataset_packaging.core.schema import IMAGE_COLUMN, PACKAGING_KEY, schema_differences

CheckName = Literal[
    "rows_conserved",
    "unique_keys",
    "schema",
    "bucket_membership",
    "contiguous_shards",
    "reject_fraction",
    "column_names",
    "row_alignment",
    "meta_info_json",
    "ledger_balance",
    "shard_state",
    "sidecar_state",
    "foreign_files",
    "image_bytes",
    "work_files",
    "resized_state",
    "resized_rows",
]

MANIFEST_CHECKS: tuple[CheckName, ...] = ("rows_conserved", "unique_keys")
SHARD_CHECKS: tuple[CheckName, ...] = (
    "shard_state",
    "schema",
    "bucket_membership",
    "rows_conserved",
    "contiguous_shards",
    "foreign_files",
)
SIDECAR_CHECKS: tuple[CheckName, ...] = ("sidecar_state", "column_names", "row_alignment", "meta_info_json")
RESIZED_CHECKS: tuple[CheckName, ...] = ("resized_state", "resized_rows")

PACKAGING_FIELDS = (
    "format",
    "mode",
    "frames",
    "stored_width",
    "stored_height",
    "exif_orientation",
    "bytes",
    "sha256",
    "warnings",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold.

    Attributes:
        check: name of the check.
        bucket: key of the bucket, or None for the whole dataset.
        shard: number of the shard, or None.
        detail: what was expected, what was found, what to do.
    """

    check: CheckName
    bucket: str | None
    shard: int | None
    detail: str

    def __str__(self) -> str:
        place = "" if self.bucket is None else f"{self.bucket} "
        place += "" if self.shard is None else f"shard {self.shard} "
        return f"{self.check}: {place}{self.detail}"


def find_schema_faults(expected: pa.Schema, actual: pa.Schema) -> list[str]:
    """Returns how the schema of a file differs from the declared one."""
    return schema_differences(expected, actual)


def find_name_faults(expected: pa.Schema, actual: pa.Schema) -> list[str]:
    """Returns how the names and types of a sidecar differ from the declared ones, with what was probably meant.

    Where names and types agree: how order, null rules or encodings differ.
    """
    differences = find_differences(columns_of(expected), columns_of(actual))
    return [difference.detail for difference in differences] or schema_differences(expected, actual)


def find_storage_faults(metadata: "pa.parquet.FileMetaData") -> list[str]:
    """Returns column chunks that are not zstd, and an image column with a dictionary or statistics."""
    faults: set[str] = set()
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(leaf)
            if chunk.compression != "ZSTD":
                faults.add(f"column {chunk.path_in_schema} is {chunk.compression}, expected ZSTD")
            if chunk.path_in_schema == IMAGE_COLUMN:
                if chunk.has_dictionary_page or any("DICTIONARY" in encoding for encoding in chunk.encodings):
                    faults.add("the image column has a dictionary")
                if chunk.statistics is not None:
                    faults.add("the image column has statistics")
    return sorted(faults)


def find_strays(bucket: Bucket, width_px: Sequence[int], height_px: Sequence[int]) -> list[str]:
    """Returns rows whose size belongs to another bucket, at most ten of them."""
    if not len(width_px):
        return []
    expected = BUCKETS.index(bucket)
    found = bucket_ids(width_px, height_px)
    strays = [row for row, bucket_id in enumerate(found) if bucket_id != expected]
    return [
        f"row {row} is {width_px[row]} x {height_px[row]}, which is {BUCKETS[found[row]].key}" for row in strays[:10]
    ]


def find_gaps(numbers: Iterable[int]) -> list[str]:
    """Returns how shard numbers differ from 0, 1, 2, ... without a gap."""
    present = sorted(numbers)
    missing = sorted(set(range(present[-1] + 1)) - set(present)) if present else []
    return [f"shard {number} is missing below shard {present[-1]}" for number in missing[:10]]


def find_misalignment(main: Sequence[object], side: Sequence[object], what: str) -> list[str]:
    """Returns where a column of shard and sidecar differ, position by position; null against null differs too."""
    if len(main) != len(side):
        return [f"{what}: {len(main)} rows in the shard, {len(side)} in the sidecar"]
    for row, (left, right) in enumerate(zip(main, side, strict=True)):
        if left is None or right is None or left != right:
            return [f"{what}: row {row} is {left!r} in the shard, {right!r} in the sidecar"]
    return []


def find_meta_info_faults(texts: Iterable[str | None]) -> list[str]:
    """Returns rows whose `meta_info` is not one strict JSON object with a whole `_packaging` block; at most ten."""
    faults: list[str] = []
    for row, text in enumerate(texts):
        if len(faults) == 10:
            break
        try:
            value = msgspec.json.decode(text or "")
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            faults.append(f"row {row}: no strict JSON: {error}")
            continue
        block = value.get(PACKAGING_KEY) if isinstance(value, dict) else None
        if not isinstance(block, dict) or tuple(block) != PACKAGING_FIELDS:
            faults.append(f"row {row}: {PACKAGING_KEY} does not hold {', '.join(PACKAGING_FIELDS)}")
    return faults


def find_imbalance(ledger: Ledger) -> list[Finding]:
    """Returns the lines of the ledger that do not balance."""
    return [
        Finding(
            "ledger_balance",
            line.bucket,
            None,
            f"{line.rows} rows, but {line.packed} packed + {line.rejected_rows} rejected + {line.duplicates} duplicate "
            f"+ {line.pending} pending: {abs(line.imbalance)} rows are "
            f"{'unaccounted for' if line.imbalance > 0 else 'counted twice'}",
        )
        for line in ledger.unbalanced
    ]


def find_reject_excess(ledger: Ledger, max_rejected_fraction: float) -> list[Finding]:
    """Returns the dataset's finding where more rows are rejected than it allows."""
    if ledger.rejected_fraction <= max_rejected_fraction:
        return []
    total = ledger.total
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(total.rejected.items()))
    return [
        Finding(
            "reject_fraction",
            None,
            None,
            f"{total.rejected_rows} of {total.rows - total.duplicates} rows are rejected "
            f"({ledger.rejected_fraction:.2%}; images.max_rejected_fraction is {max_rejected_fraction:.2%}): "
            f"{reasons}; see `dataset-packaging rejects`",
        )
    ]
