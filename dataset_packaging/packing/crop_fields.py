"""The crop-aware fields of one sidecar: from its captions and sizes, or from the audit columns of resized sets."""

from collections.abc import Sequence

import pyarrow as pa

from dataset_packaging.config import CropsConfig, DatasetConfig, ResizedSet
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.crops import (
    CAPTION_COLUMN,
    META_COLUMN,
    CropCounts,
    CropGeometry,
    CroppedCaption,
    crop_caption,
    crop_column,
    describe_crops,
    plan_crop,
)
from dataset_packaging.core.layout import shard_name
from dataset_packaging.core.schema import HEIGHT_COLUMN, KEY_COLUMN, WIDTH_COLUMN
from dataset_packaging.errors import MergeConflict, MergeSourceUnusable, NotFound, ObjectDamaged
from dataset_packaging.io.parquet import damage_told, open_parquet
from dataset_packaging.io.store import Stores


def add_crop_fields(
    stores: Stores, dataset: DatasetConfig, bucket: Bucket, number: int, table: pa.Table
) -> tuple[pa.Table, tuple[CropCounts, ...]]:
    """Return the sidecar's table with the crop fields of every row that has a structured caption, and what was counted.

    Reads the same shard of each resized set that the dataset names. Raises MergeConflict where it has other rows,
    MergeSourceUnusable where it cannot be read.
    """
    crops = dataset.sidecar.crops
    if crops is None:
        return table, ()
    keys = table[KEY_COLUMN].to_pylist()
    widths, heights = table[WIDTH_COLUMN].to_pylist(), table[HEIGHT_COLUMN].to_pylist()
    relative = f"{bucket.key}/{shard_name(number)}.parquet"
    audited: dict[int, list[CropGeometry | str]] = {}
    for entry in crops.resized:
        audited[entry.size] = _read_geometries(stores, entry, relative, keys, widths, heights)
    texts: dict[str, list[str | None]] = {column: [] for column in (META_COLUMN, *map(crop_column, crops.sizes))}
    counts = {size: CropCounts(size) for size in crops.sizes}
    for row, caption in enumerate(table[CAPTION_COLUMN].to_pylist()):
        if caption is None:
            for values in texts.values():
                values.append(None)
            continue
        cropped: dict[int, tuple[CropGeometry | None, CroppedCaption | None, str]] = {}
        for size in crops.sizes:
            cropped[size] = _crop_row(crops, size, caption, widths[row], heights[row], audited, row)
            counts[size] = counts[size].plus(cropped[size][1])
            made = cropped[size][1]
            texts[crop_column(size)].append(None if made is None else made.text)
        texts[META_COLUMN].append(describe_crops(widths[row], heights[row], cropped))
    for column, values in texts.items():
        place = table.schema.get_field_index(column)
        table = table.set_column(place, table.schema.field(column), pa.array(values, pa.string()))
    return table, tuple(counts.values())


def _crop_row(
    crops: CropsConfig,
    size: int,
    caption: str,
    width_px: int,
    height_px: int,
    audited: dict[int, list[CropGeometry | str]],
    row: int,
) -> tuple[CropGeometry | None, CroppedCaption | None, str]:
    geometry = audited[size][row] if size in audited else plan_crop(width_px, height_px, size)
    if isinstance(geometry, str):
        return None, None, geometry
    return geometry, crop_caption(caption, geometry, crops.box_fields), ""


def _read_geometries(
    stores: Stores, entry: ResizedSet, relative: str, keys: Sequence[str], widths: Sequence[int], heights: Sequence[int]
) -> list[CropGeometry | str]:
    """Returns the geometry of each row, or why it has none."""
    uri = f"{entry.prefix}/{relative}"
    names = list(entry.columns.model_dump().values())
    try:
        file = open_parquet(stores, uri)
        missing = [name for name in (KEY_COLUMN, *names) if name not in file.schema_arrow.names]
        if missing:
            raise MergeSourceUnusable(f"the resized set has no column {', '.join(missing)} in {uri}; see crops.resized")
        with damage_told(uri):
            table = file.read(columns=[KEY_COLUMN, *dict.fromkeys(names)])
    except (NotFound, ObjectDamaged) as error:
        raise MergeSourceUnusable(f"{uri} of the resized set cannot be read: {error}") from error
    found = table[KEY_COLUMN].to_pylist()
    if found != list(keys):
        differ = sum(left != right for left, right in zip(found, keys, strict=False)) + abs(len(found) - len(keys))
        raise MergeConflict(
            f"{uri} has other rows than the shard ({differ} differ): the resized set is not row-aligned"
        )
    columns = [table[name].to_pylist() for name in names]
    return [
        _geometry(width_px, height_px, values)
        for width_px, height_px, *values in zip(widths, heights, *columns, strict=True)
    ]


def _geometry(width_px: int, height_px: int, values: Sequence[object]) -> CropGeometry | str:
    """Returns the geometry that the audit columns tell, in the order of `ResizedColumns`."""
    sizes = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(sizes) < len(values):
        return "the resized set does not tell its geometry"
    target_width, target_height, resized_width, resized_height, left, top = sizes
    try:
        return CropGeometry(width_px, height_px, resized_width, resized_height, target_width, target_height, left, top)
    except ValueError:
        return f"the resized set tells an impossible geometry: {sizes}"
