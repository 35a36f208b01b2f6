"""Between the passes: all keys are compared once, with each other and with the places of the generation before.

Keys are compared in partitions of the hash space, one task each. Every keys and placement file is sorted by hash (in
runs), so that a task reads its range only. Rows of equal hash are compared by the key itself: a collision of hashes
never costs a row. A task holds about 110 bytes per key of its partition.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.layout import GenerationLayout
from dataset_packaging.io.parquet import read_matching, read_table, write_table
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.index_schema import (
    FATE_DUPLICATE,
    FATE_KEPT,
    FATES_SCHEMA,
    TOMBSTONES_SCHEMA,
)

KEYS_PER_PARTITION = 2_000_000
"""A partition then takes about 220 MB."""

_PRIOR = -1
"""The part number of rows that the generation before planned: they sort first."""


@dataclass(frozen=True, slots=True)
class DedupeTask:
    """One partition of the hash space.

    Attributes:
        dataset: its configuration.
        generation: where to write.
        partition: number of the partition.
        partitions: how many there are.
        parts: (block, part) of every part, in manifest order.
        prior_places: (bucket id, URI of its placement or index) of the generation before; none without one.
        relocations_uri: rows that leave their place, or None.
    """

    dataset: DatasetConfig
    generation: GenerationLayout
    partition: int
    partitions: int
    parts: tuple[tuple[int, int], ...]
    prior_places: tuple[tuple[int, str], ...]
    relocations_uri: str | None


@dataclass(frozen=True, slots=True)
class DedupeReport:
    """One partition that was compared."""

    partition: int
    keys: int
    kept: int
    duplicates: int
    tombstones: int


@dataclass(frozen=True, slots=True)
class _Keys:
    """All keys of a partition, sorted by hash, earlier places first, then manifest order."""

    hash: npt.NDArray[np.uint64]
    part: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    bucket: npt.NDArray[np.uint8]
    main_hash: npt.NDArray[np.uint64]
    side_hash: npt.NDArray[np.uint64]
    shard: npt.NDArray[np.int32]
    position: npt.NDArray[np.int32]
    key: pa.ChunkedArray


def dedupe_partition(task: DedupeTask) -> DedupeReport:
    """Decides which rows of one partition are duplicates, which keep a place, and which places become empty.

    The first row of a key in manifest order stays; where an earlier generation planned the key, the row with the
    planned values stays, else the first. Reads keys and placements, writes fates and tombstones of the unpublished
    generation: repeating it is safe.
    """
    stores = shared_stores(StorageConfig.of(task.dataset))
    keys = _read_keys(stores, task)
    relocated = _is_relocated(stores, task.relocations_uri, keys)
    fate, place_of, gone = _decide(keys, relocated)
    decided = np.flatnonzero(fate)
    fates = pa.table(
        {
            "bucket": keys.bucket[decided],
            "part": keys.part[decided],
            "row": keys.row[decided],
            "fate": fate[decided],
            "shard": np.where(place_of[decided] >= 0, keys.shard[place_of[decided]], -1).astype(np.int32),
            "position": np.where(place_of[decided] >= 0, keys.position[place_of[decided]], -1).astype(np.int32),
        },
        schema=FATES_SCHEMA,
    )
    _write_by_bucket(stores, task.generation.fates_uri(task.partition), fates, ["bucket", "part", "row"])
    left = np.flatnonzero(gone)
    tombstones = pa.table(
        {
            "bucket": keys.bucket[left],
            "shard": keys.shard[left],
            "position": keys.position[left],
            "main_hash": keys.main_hash[left],
            "side_hash": keys.side_hash[left],
            "absent": relocated[left],
        },
        schema=TOMBSTONES_SCHEMA,
    )
    _write_by_bucket(
        stores, task.generation.tombstones_part_uri(task.partition), tombstones, ["bucket", "shard", "position"]
    )
    kept = int((fate == FATE_KEPT).sum())
    return DedupeReport(task.partition, len(keys.hash), kept, len(decided) - kept, len(left))


def _read_keys(stores: Stores, task: DedupeTask) -> _Keys:
    low = task.partition * (1 << 64) // task.partitions
    high = (task.partition + 1) * (1 << 64) // task.partitions - 1
    tables: list[pa.Table] = []

    def read(uri: str, columns: list[str], constants: dict[str, tuple[int, pa.DataType]]) -> None:
        for table in read_matching(stores, uri, "key_hash", lambda least, most: most >= low and least <= high, columns):
            inside = (table["key_hash"].to_numpy() >= low) & (table["key_hash"].to_numpy() <= high)
            chosen = table.filter(pa.array(inside))
            for name, (value, kind) in constants.items():
                chosen = chosen.append_column(name, pa.array(np.full(len(chosen), value), kind))
            tables.append(chosen.select(_SCHEMA.names).cast(_SCHEMA))

    for bucket_id, uri in task.prior_places:
        read(
            uri,
            ["key_hash", "image_key", "main_hash", "side_hash", "shard", "position"],
            {"part": (_PRIOR, pa.int32()), "row": (0, pa.int32()), "bucket": (bucket_id, pa.uint8())},
        )
    for ordinal, (block, part) in enumerate(task.parts):
        read(
            task.generation.keys_uri(block, part),
            ["key_hash", "image_key", "main_hash", "row", "bucket"],
            {
                "part": (ordinal, pa.int32()),
                "side_hash": (0, pa.uint64()),
                "shard": (-1, pa.int32()),
                "position": (-1, pa.int32()),
            },
        )
    table = pa.concat_tables([_SCHEMA.empty_table(), *tables])
    hashes = table["key_hash"].to_numpy()
    part = table["part"].to_numpy()
    row = table["row"].to_numpy()
    order = np.lexsort((row, part, hashes))
    return _Keys(
        hashes[order],
        part[order],
        row[order],
        table["bucket"].to_numpy()[order],
        table["main_hash"].to_numpy()[order],
        table["side_hash"].to_numpy()[order],
        table["shard"].to_numpy()[order],
        table["position"].to_numpy()[order],
        table["image_key"].take(pa.array(order)),
    )


_SCHEMA = pa.schema(
    [
        ("key_hash", pa.uint64()),
        ("part", pa.int32()),
        ("row", pa.int32()),
        ("bucket", pa.uint8()),
        ("main_hash", pa.uint64()),
        ("side_hash", pa.uint64()),
        ("shard", pa.int32()),
        ("position", pa.int32()),
        ("image_key", pa.string()),
    ]
)


def _is_relocated(stores: Stores, uri: str | None, keys: _Keys) -> npt.NDArray[np.bool_]:
    """Tells which earlier places their rows leave, though nothing stands in the shard's file for them.

    Rows are told by their place, not by their key: a list that was used already, or that is of an older plan, names
    places that are empty by now and moves nothing.
    """
    if uri is None:
        return np.zeros(len(keys.hash), np.bool_)
    table = read_table(stores, uri, ["bucket", "shard", "position"])
    named = _place_numbers(*(table[name].to_numpy() for name in ("bucket", "shard", "position")))
    relocated: npt.NDArray[np.bool_] = np.isin(_place_numbers(keys.bucket, keys.shard, keys.position), named)
    relocated &= keys.part == _PRIOR
    return relocated


def _place_numbers(
    bucket: npt.NDArray[np.uint8], shard: npt.NDArray[np.int32], position: npt.NDArray[np.int32]
) -> npt.NDArray[np.uint64]:
    """Returns one number per place: 8 bits of bucket, 24 of shard, 32 of position. Pure."""
    folded: npt.NDArray[np.uint64] = (
        (bucket.astype(np.uint64) << np.uint64(56))
        | ((shard.astype(np.uint64) & np.uint64(0xFFFFFF)) << np.uint64(32))
        | (position.astype(np.uint64) & np.uint64(0xFFFFFFFF))
    )
    return folded


def _decide(
    keys: _Keys, relocated: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Returns per key: its fate (0: new), the row whose place it keeps (-1: none), and whether it leaves its place."""
    count = len(keys.hash)
    fate = np.zeros(count, np.uint8)
    place_of = np.full(count, -1, np.int64)
    prior = keys.part == _PRIOR
    gone = prior.copy()
    starts = np.flatnonzero(np.concatenate(([True], keys.hash[1:] != keys.hash[:-1]))) if count else np.zeros(0, int)
    ends = np.append(starts[1:], count)
    # Nearly every run of equal hashes is an earlier place and the same row again, or a row and its duplicate.
    pairs = starts[ends - starts == 2]
    same = pc.equal(keys.key.take(pa.array(pairs)), keys.key.take(pa.array(pairs + 1))).to_numpy()
    returning = same & prior[pairs] & ~prior[pairs + 1]
    stays = returning & ~relocated[pairs] & (keys.bucket[pairs] == keys.bucket[pairs + 1])
    fate[pairs[stays] + 1] = FATE_KEPT
    place_of[pairs[stays] + 1] = pairs[stays]
    gone[pairs[stays]] = False
    fate[pairs[same & ~prior[pairs]] + 1] = FATE_DUPLICATE
    odd = np.flatnonzero(ends - starts > 2)
    for start, end in zip(starts[odd].tolist(), ends[odd].tolist(), strict=True):
        _decide_run(keys, range(start, end), relocated, fate, place_of, gone)
    return fate, place_of, gone


def _decide_run(
    keys: _Keys,
    run: range,
    relocated: npt.NDArray[np.bool_],
    fate: npt.NDArray[np.uint8],
    place_of: npt.NDArray[np.int64],
    gone: npt.NDArray[np.bool_],
) -> None:
    """Decides the rows of one run of equal hashes, key by key."""
    texts = keys.key.slice(run.start, len(run)).to_pylist()
    members: dict[str, list[int]] = defaultdict(list)
    for index, text in zip(run, texts, strict=True):
        members[text].append(index)
    for indices in members.values():
        earlier = [index for index in indices if keys.part[index] == _PRIOR]
        rows = [index for index in indices if keys.part[index] != _PRIOR]
        if not rows:
            continue
        chosen = rows[0]
        if earlier:
            planned = earlier[0]
            chosen = next((index for index in rows if keys.main_hash[index] == keys.main_hash[planned]), chosen)
            if not relocated[planned] and keys.bucket[chosen] == keys.bucket[planned]:
                fate[chosen] = FATE_KEPT
                place_of[chosen] = planned
                gone[planned] = False
        for index in rows:
            if index != chosen:
                fate[index] = FATE_DUPLICATE


def _write_by_bucket(stores: Stores, uri: str, table: pa.Table, order: list[str]) -> None:
    """Writes a table sorted by bucket; small row groups keep most buckets apart."""
    write_table(stores, uri, table.sort_by([(name, "ascending") for name in order]), 1 << 16)
