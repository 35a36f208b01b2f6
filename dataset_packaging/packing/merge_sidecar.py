"""The merges of one sidecar: rows of the sources at their rows of the shard, and where each value came from."""

from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import MergeLayout, shard_name
from dataset_packaging.core.merging import BoolArray, MergedColumn, merge_values
from dataset_packaging.errors import MergeConflict, MergeSourceUnusable, NotFound, ObjectDamaged
from dataset_packaging.io.parquet import read_matching
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.merge_sources import MergeReader, SourceRows
from dataset_packaging.packing.source_versions import ABSENT

PROVENANCE_KEY = "dataset_packaging.merge"
"""Name of the footer entry that says where merged columns come from: a JSON list of `MergedColumn`."""

_NAMED_KEYS = 3


@dataclass(frozen=True, slots=True)
class MergeInput:
    """What a sidecar takes from one merge source.

    Attributes:
        version: of the source, as far as this shard depends on it.
        source: URI of the source, for people.
        target: where a keyed source stands sorted; None for an aligned one.
        part: of the sorted source that holds the shard's rows; None where it has none.
        shard: the shard's number through all buckets.
    """

    version: str
    source: str
    target: MergeLayout | None = None
    part: int | None = None
    shard: int = 0


def merge_columns(
    stores: Stores, dataset: DatasetConfig, bucket: Bucket, number: int, inputs: tuple[MergeInput, ...], table: pa.Table
) -> tuple[pa.Table, tuple[MergedColumn, ...]]:
    """Return the sidecar's table with all merges applied, in order, and where its merged values come from.

    Raises MergeConflict where rows do not fit, MergeSourceUnusable where a source lacks a field.
    """
    merged: list[MergedColumn] = []
    for order, (merge, entry) in enumerate(zip(dataset.sidecar.merge, inputs, strict=True)):
        reader = MergeReader.of(dataset, order)
        place = f"sidecar.merge[{order}]: shard {number} of {bucket.key}"
        keys = table[merge.key].combine_chunks()
        if entry.target is not None:
            rows, matched = _take_keyed(stores, reader, entry, keys)
        else:
            rows, matched = _take_aligned(
                stores, reader, entry, f"{bucket.key}/{shard_name(number)}.parquet", keys, place
            )
        if merge.unmatched == "error" and not matched.all():
            raise MergeConflict(f"{place}: {_name_unmatched(keys, matched, entry.source)}")
        for column, mapping in merge.columns.items():
            field = table.schema.field(column)
            existing = _one_array(table[column])
            values, taken = merge_values(existing, rows.columns[column], matched, merge.mode, merge.unmatched)
            table = table.set_column(table.schema.get_field_index(column), field, values)
            merged.append(
                MergedColumn(
                    column,
                    entry.source,
                    mapping.from_,
                    entry.version,
                    merge.key,
                    merge.mode,
                    merge.unmatched,
                    int(matched.sum()),
                    int((~matched).sum()),
                    taken,
                    int((rows.bad[column] & matched).sum()),
                )
            )
    return table, tuple(merged)


def encode_provenance(merged: tuple[MergedColumn, ...]) -> str:
    """Return the footer entry; pure."""
    return msgspec.json.encode(merged).decode()


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _name_unmatched(keys: pa.Array, matched: BoolArray, source: str) -> str:
    lacking = [keys[int(row)].as_py() for row in np.flatnonzero(~matched)[:_NAMED_KEYS]]
    count = int((~matched).sum())
    names = ", ".join(map(repr, lacking)) + (f" and {count - len(lacking)} more" if count > len(lacking) else "")
    return (
        f"{count} of {len(keys)} rows are not in {source}: {names}; "
        "add them, or set unmatched to skip (keep what is there) or null"
    )


def _take_keyed(stores: Stores, reader: MergeReader, entry: MergeInput, keys: pa.Array) -> tuple[SourceRows, BoolArray]:
    names = list(reader.config.columns)
    if entry.part is None or entry.target is None:
        return _no_rows(reader, keys)
    uri = entry.target.part_uri(entry.part)
    columns = ["shard", "key", "bad", *(f"v{bit}" for bit in range(len(names)))]
    groups = [
        group.filter(pc.equal(group["shard"], entry.shard))
        for group in read_matching(stores, uri, "shard", lambda least, most: least <= entry.shard <= most, columns)
    ]
    if not groups:
        return _no_rows(reader, keys)
    found = pa.concat_tables(groups).combine_chunks()
    at = pc.index_in(keys, value_set=found["key"].combine_chunks())
    matched = at.is_valid().to_numpy(zero_copy_only=False)
    rows = found.take(at)
    bits = rows["bad"].fill_null(0).to_numpy()
    bad = {name: (bits >> np.uint64(bit)) & np.uint64(1) == 1 for bit, name in enumerate(names)}
    return SourceRows(keys, {name: _one_array(rows[f"v{bit}"]) for bit, name in enumerate(names)}, bad), matched


def _no_rows(reader: MergeReader, keys: pa.Array) -> tuple[SourceRows, BoolArray]:
    none = np.zeros(len(keys), bool)
    columns = {name: pa.nulls(len(keys), of.type) for name, of in reader.readers.items()}
    return SourceRows(keys, columns, dict.fromkeys(columns, none)), none


def _take_aligned(
    stores: Stores, reader: MergeReader, entry: MergeInput, relative: str, keys: pa.Array, place: str
) -> tuple[SourceRows, BoolArray]:
    """Reads the shard of the same place; asserts that it has the same rows in the same order."""
    if entry.version == ABSENT:
        return _no_rows(reader, keys)
    uri = f"{reader.config.source_prefix}/{relative}"
    try:
        rows = reader.read_file(stores, uri)
    except NotFound as error:
        raise MergeSourceUnusable(f"{place}: {uri} was there and is gone; run it again") from error
    except ObjectDamaged as error:
        raise MergeSourceUnusable(f"{place}: {uri} cannot be read: {error}") from error
    if len(rows) != len(keys):
        raise MergeConflict(f"{place}: {uri} has {len(rows)} rows, the shard {len(keys)}: it is not row-aligned")
    # Nulls are equal to nothing, not even to each other: a row without a key proves nothing.
    same = pc.fill_null(pc.equal(rows.keys, keys), False).to_numpy(zero_copy_only=False)
    if not same.all():
        row = int(np.flatnonzero(~same)[0])
        raise MergeConflict(
            f"{place}: row {row} of {uri} is {rows.keys[row].as_py()!r}, that of the shard {keys[row].as_py()!r}: "
            f"it is not row-aligned ({int((~same).sum())} rows differ); to join by key, name it as source instead"
        )
    return rows, np.ones(len(keys), bool)
