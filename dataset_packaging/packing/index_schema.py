"""The columns of the work files: slices, index, keys, placement, fates, tombstones, rejects, facts. Pure."""

import pyarrow as pa

from dataset_packaging.core.schema import (
    HEIGHT_COLUMN,
    IS_RGBA_COLUMN,
    WIDTH_COLUMN,
    ExtensionColumn,
    sidecar_schema,
)

DECODED_COLUMNS = frozenset({WIDTH_COLUMN, HEIGHT_COLUMN, IS_RGBA_COLUMN})
"""Sidecar columns whose values come from the decoded image, not from the manifest."""

NO_BUCKET = 255
"""Stands for the bucket of rows whose image tells no size: their keys are compared with all others nevertheless."""

PENDING = "pending"
"""Stands for the reason of a row whose size could not be read now, in the lists of parts only."""

_ROW_FIELDS = [
    pa.field("source", pa.int32(), nullable=False),
    pa.field("line", pa.int64(), nullable=False),
    pa.field("planned_width", pa.int32(), nullable=False),
    pa.field("planned_height", pa.int32(), nullable=False),
    pa.field("estimated_bytes", pa.int64(), nullable=False),
    pa.field("expected_sha256", pa.string()),
    pa.field("expected_md5", pa.string()),
    pa.field("expected_bytes", pa.int64()),
    pa.field("key_hash", pa.uint64(), nullable=False),
    pa.field("place_hash", pa.uint64(), nullable=False),
    pa.field("main_hash", pa.uint64(), nullable=False),
    pa.field("side_hash", pa.uint64(), nullable=False),
    pa.field("warnings", pa.list_(pa.string())),
]


def record_fields(extensions: tuple[ExtensionColumn, ...] = ()) -> tuple[pa.Field, ...]:
    """Returns the canonical columns that a manifest row gives, `meta_info` included, in the sidecar's order."""
    return tuple(field for field in sidecar_schema(extensions) if field.name not in DECODED_COLUMNS)


def slice_schema(extensions: tuple[ExtensionColumn, ...] = ()) -> pa.Schema:
    """Returns the schema of a slice: the rows of one part of a block that fall into one bucket, in manifest order."""
    row = pa.field("row", pa.int32(), nullable=False)
    return pa.schema([row, *_ROW_FIELDS, *record_fields(extensions)])


def index_schema(extensions: tuple[ExtensionColumn, ...] = ()) -> pa.Schema:
    """Returns the schema of a bucket's index: every planned row with its place."""
    place = [pa.field("shard", pa.int32(), nullable=False), pa.field("position", pa.int32(), nullable=False)]
    return pa.schema([*place, *_ROW_FIELDS, *record_fields(extensions)])


KEYS_SCHEMA = pa.schema(
    [
        pa.field("key_hash", pa.uint64(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("bucket", pa.uint8(), nullable=False),
        pa.field("image_key", pa.string(), nullable=False),
        pa.field("place_hash", pa.uint64(), nullable=False),
        pa.field("main_hash", pa.uint64(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
    ]
)
"""The keys of one part of a block, sorted by hash; sizes serve the next generation, which need not probe again."""

PLACEMENT_SCHEMA = pa.schema(
    [
        pa.field("key_hash", pa.uint64(), nullable=False),
        pa.field("image_key", pa.string(), nullable=False),
        pa.field("main_hash", pa.uint64(), nullable=False),
        pa.field("side_hash", pa.uint64(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
    ]
)
"""Where each key of a bucket stands, in runs sorted by hash."""

FATE_KEPT = 1
FATE_DUPLICATE = 2

FATES_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.uint8(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("fate", pa.uint8(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
    ]
)
"""Rows of the manifest that are not new: duplicates, and rows that keep their place. Sorted, a row group per bucket."""

TOMBSTONES_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.uint8(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("main_hash", pa.uint64(), nullable=False),
        pa.field("side_hash", pa.uint64(), nullable=False),
        pa.field("absent", pa.bool_(), nullable=False),
    ]
)
"""Places that their rows have left. `absent`: the row never stood in the shard's file."""

CORRECTIONS_SCHEMA = pa.schema(
    [
        pa.field("place_hash", pa.uint64(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
    ]
)
"""True sizes by hash of key and path, sorted."""

RELOCATIONS_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.uint8(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("image_key", pa.string(), nullable=False),
        pa.field("s3_image_path", pa.string(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
    ]
)
"""Rows that leave their place for a new one: moved ones, and rejected ones whose new attempt succeeded."""

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("image_key", pa.string()),
        pa.field("s3_image_path", pa.string()),
        pa.field("manifest_uri", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)
"""The public reject list."""

PART_REJECTS_SCHEMA = REJECTS_SCHEMA.append(pa.field("place_hash", pa.uint64())).append(pa.field("row", pa.int32()))
"""Rows of one part that have no bucket; those that have a key carry their number in the part and the hash of their
place, which spares the next generation a second probe."""

FACTS_SCHEMA = pa.schema(
    [
        pa.field("position", pa.int32(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
        pa.field("is_rgba", pa.bool_(), nullable=False),
        pa.field("format", pa.string(), nullable=False),
        pa.field("mode", pa.string(), nullable=False),
        pa.field("frames", pa.int32(), nullable=False),
        pa.field("stored_width", pa.int32(), nullable=False),
        pa.field("stored_height", pa.int32(), nullable=False),
        pa.field("exif_orientation", pa.int32(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("warnings", pa.list_(pa.string())),
    ]
)
"""What verification found, one row per packed row, in the shard's order."""
