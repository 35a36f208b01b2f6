"""The rows that the plan puts into one shard, read from the index of its bucket."""

import pyarrow as pa

from dataset_packaging.core.layout import GenerationLayout
from dataset_packaging.core.shard_plan import PlannedShard
from dataset_packaging.errors import IndexDamaged, NotFound, ObjectDamaged
from dataset_packaging.io.parquet import matching_groups, open_parquet
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.decoder import WantedImage

_REMEDY = "run pack again: it is rebuilt from the manifest"
WANTED_COLUMNS = ("s3_image_path", "estimated_bytes", "expected_bytes", "expected_sha256", "expected_md5")


def read_planned_rows(
    stores: Stores, generation: GenerationLayout, shard: PlannedShard, columns: list[str]
) -> pa.Table:
    """Returns the live rows of a shard by position; `columns` must hold shard and position.

    Raises IndexDamaged where the index cannot be read, lacks a column or does not hold as many rows as were planned; a
    store that is down is no damage, and raises its own error.
    """
    uri = generation.index_uri(shard.bucket)
    try:
        file = open_parquet(stores, uri, verify_checksums=True)
        known = file.schema_arrow
        if lacking := [name for name in columns if name not in known.names]:
            raise IndexDamaged(
                f"the plan was made before {', '.join(lacking)} was declared; run pack, or the asset manifest, again"
            )
        groups = [
            group.filter(pa.array(group["shard"].to_numpy() == shard.number))
            for group in matching_groups(file, uri, "shard", lambda least, most: least <= shard.number <= most, columns)
        ]
        if not groups:
            groups = [known.empty_table().select(columns)]
    except (NotFound, ObjectDamaged) as error:
        raise IndexDamaged(f"{error}; {_REMEDY}") from error
    rows = pa.concat_tables(groups)
    position = rows["position"].to_numpy()
    if (position[1:] < position[:-1]).any():
        rows = rows.sort_by("position")
    if len(rows) != shard.live_rows:
        raise IndexDamaged(
            f"{uri} holds {len(rows)} rows of shard {shard.number}, the plan {shard.live_rows}; {_REMEDY}"
        )
    return rows.combine_chunks()


def wanted_images(rows: pa.Table) -> list[WantedImage]:
    """Returns what is to be fetched for each row, in order; the table holds WANTED_COLUMNS."""
    columns = (rows[name].to_pylist() for name in WANTED_COLUMNS)
    return [WantedImage(*values) for values in zip(*columns, strict=True)]
