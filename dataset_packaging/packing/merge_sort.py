"""Keyed merge sources: rows in any order, sorted by the shard that holds their key. Two passes, like an external sort.

The tasks: the first pass streams pieces of the source and spreads their rows over parts, each a range of shards; the
second sorts one part at a time and finds keys that repeat. Memory: 12 bytes for each row of the dataset (which shard
holds which key), and a run or a part of the source; none of it grows with the source.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import GenerationLayout, MergeLayout
from dataset_packaging.core.schema import KEY_COLUMN
from dataset_packaging.errors import MergeConflict
from dataset_packaging.io.parquet import open_parquet, read_batches
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.ingest import hash_texts
from dataset_packaging.packing.merge_sources import MergeReader, Piece, SourceRows

RUN_BYTES = 64 << 20
"""Rows of a piece that are held before they are written as a run."""

_READ_THREADS = 8
_NAMED_KEYS = 5

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of one part within a run: a range of the run's bytes."""

    part: int
    uri: str
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SpreadTask:
    """One piece of a source to spread over parts: shard s, of all buckets, belongs to part s * parts // shards."""

    dataset: DatasetConfig
    merge: int
    target: MergeLayout
    number: int
    piece: Piece
    parts: int
    shards: int


@dataclass(frozen=True, slots=True)
class SpreadReport:
    """One piece that was spread; counts of its rows."""

    slices: tuple[Slice, ...]
    rows: int
    bad_lines: int
    null_keys: int
    unknown_keys: int


@dataclass(frozen=True, slots=True)
class GatherTask:
    """One part to sort."""

    dataset: DatasetConfig
    target: MergeLayout
    part: int
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class PlacesTask:
    """Which shard holds which key, to be written as one table sorted by hash."""

    dataset: DatasetConfig
    key: str
    generation: GenerationLayout
    target: MergeLayout
    buckets: tuple[tuple[Bucket, int], ...]


def write_places(task: PlacesTask) -> int:
    """Writes the hash of each key of the dataset with its shard; returns the number of rows."""
    stores = shared_stores(StorageConfig.of(task.dataset))
    hashes: list[U64] = []
    shards: list[npt.NDArray[np.int32]] = []
    for bucket, base in task.buckets:
        uri = task.generation.index_uri(bucket)
        columns = ["shard", "key_hash" if task.key == KEY_COLUMN else task.key]
        for batch in read_batches(open_parquet(stores, uri), uri, columns):
            values = batch.column(columns[1])
            hashed = values.to_numpy() if task.key == KEY_COLUMN else hash_texts(values.to_pylist())
            hashes.append(hashed)
            shards.append(batch.column("shard").to_numpy() + np.int32(base))
    hash_ = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
    shard = np.concatenate(shards) if shards else np.zeros(0, np.int32)
    hashes.clear()
    order = np.argsort(hash_, kind="stable")
    table = pa.table({"hash": hash_[order], "shard": shard[order]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    stores.put(task.target.places_uri, memoryview(sink.getvalue()))
    return len(table)


@dataclass(slots=True)
class _Spreader:
    """Rows of a piece that wait for their run."""

    stores: Stores
    task: SpreadTask
    hashes: U64
    shards: npt.NDArray[np.int32]
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    runs: int = 0
    slices: list[Slice] = field(default_factory=list)
    unknown_keys: int = 0
    null_keys: int = 0

    def add(self, rows: SourceRows) -> None:
        table = _as_table(rows)
        present = table.filter(pc.is_valid(table["key"]))
        self.null_keys += len(table) - len(present)
        hashed = hash_texts(present["key"].to_pylist())
        first = np.searchsorted(self.hashes, hashed, "left")
        count = np.searchsorted(self.hashes, hashed, "right") - first
        self.unknown_keys += int((count == 0).sum())
        at = np.repeat(np.arange(len(present)), count)
        step = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
        shard = self.shards[np.repeat(first, count) + step]
        placed = present.take(pa.array(at)).append_column("shard", pa.array(shard, pa.int32()))
        self.waiting.append(placed)
        self.waiting_bytes += placed.nbytes
        if self.waiting_bytes >= RUN_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what waits as one run: a stream of rows for each part."""
        if not self.waiting_bytes:
            return
        table = pa.concat_tables(self.waiting)
        self.waiting, self.waiting_bytes = [], 0
        task = self.task
        part = table["shard"].to_numpy().astype(np.int64) * task.parts // task.shards
        order = np.argsort(part, kind="stable")
        table, part = table.take(pa.array(order)), part[order]
        uri = task.target.run_uri(task.number, self.runs)
        sink = pa.BufferOutputStream()
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(part)], strict=True):
            offset = sink.tell()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.slice(start, end - start).combine_chunks())
            self.slices.append(Slice(int(part[start]), uri, offset, sink.tell() - offset))
        self.stores.put(uri, memoryview(sink.getvalue()))
        self.runs += 1


def _as_table(rows: SourceRows) -> pa.Table:
    """Returns the rows with the values that a column cannot hold as bits of one number, by order of the columns."""
    bad = np.zeros(len(rows), np.uint64)
    for bit, name in enumerate(rows.columns):
        bad |= rows.bad[name].astype(np.uint64) << np.uint64(bit)
    return pa.table(
        {"key": rows.keys, "bad": bad, **{f"v{bit}": rows.columns[n] for bit, n in enumerate(rows.columns)}}
    )


def spread_piece(task: SpreadTask) -> SpreadReport:
    """Writes the runs of one piece. Repeating it writes the same objects."""
    stores = shared_stores(StorageConfig.of(task.dataset))
    places = pa.ipc.open_file(pa.BufferReader(stores.get(task.target.places_uri))).read_all()
    spreader = _Spreader(stores, task, places["hash"].to_numpy(), places["shard"].to_numpy())
    rows = bad_lines = 0
    for batch, bad in MergeReader.of(task.dataset, task.merge).read(stores, task.piece):
        rows += len(batch)
        bad_lines += bad
        spreader.add(batch)
    spreader.flush()
    return SpreadReport(tuple(spreader.slices), rows, bad_lines, spreader.null_keys, spreader.unknown_keys)


def gather_part(task: GatherTask) -> int:
    """Writes the rows of one part, sorted by shard and key, a row group per shard; returns how many rows repeated.

    Raises MergeConflict where rows of the same key have different values.
    """
    stores = shared_stores(StorageConfig.of(task.dataset))
    with ThreadPoolExecutor(_READ_THREADS, "slices") as pool:
        tables = list(pool.map(lambda cut: _read_slice(stores, cut), task.slices))
    rows = pa.concat_tables(tables)
    del tables
    rows = rows.take(pc.sort_indices(rows, [("shard", "ascending"), ("key", "ascending")]))
    same = _repeats(rows)
    unique = rows.filter(pa.array(~same)) if same.any() else rows
    with stores.open_sink(task.target.part_uri(task.part)) as sink:
        writer = pq.ParquetWriter(sink, unique.schema, compression="zstd", compression_level=1)
        shard = unique["shard"].to_numpy()
        starts = np.flatnonzero(np.diff(shard, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(shard)], strict=True):
            writer.write_table(unique.slice(start, end - start), row_group_size=max(1, int(end - start)))
        writer.close()
    return int(same.sum())


def _read_slice(stores: Stores, cut: Slice) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(stores.get_range(cut.uri, cut.offset, cut.size_bytes))).read_all()


def _repeats(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Returns which rows repeat the one before; raises MergeConflict where only the key is the same."""
    same = np.zeros(len(rows), bool)
    if len(rows) < 2:
        return same
    left, right = rows.slice(0, len(rows) - 1), rows.slice(1)
    equal = pc.and_(pc.equal(left["key"], right["key"]), pc.equal(left["shard"], right["shard"]))
    same[1:] = equal.to_numpy()
    others: list[str] = []
    for at in np.flatnonzero(same):
        pair = rows.slice(int(at) - 1, 2).to_pylist()
        if pair[0] != pair[1]:
            others.append(pair[0]["key"])
    if others:
        names = ", ".join(repr(key) for key in dict.fromkeys(others[:_NAMED_KEYS]))
        raise MergeConflict(
            f"the merge source has keys that stand there more than once with different values: {names}"
            + (f" and {len(others) - _NAMED_KEYS} more" if len(others) > _NAMED_KEYS else "")
            + "; keep one row of each key"
        )
    return same
