"""The second pass over the manifest: the slices of one bucket, in manifest order, to its index and its shards.

Streams slice by slice: memory is bounded by a slice, a row group of the index and a run of the placement, plus 20
bytes per row of the bucket that is a duplicate or keeps an earlier place. Writes below the unpublished generation
only: repeating it is safe.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.layout import GenerationLayout
from dataset_packaging.core.ledger import DUPLICATE_REASON
from dataset_packaging.core.receipts import StoredObject
from dataset_packaging.core.shard_plan import PlannedShard, ShardAssigner, ShardTotals
from dataset_packaging.errors import NotFound
from dataset_packaging.io.parquet import ZSTD_LEVEL, open_hashing_sink, read_table, write_table
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.fates import Fates, read_of_bucket
from dataset_packaging.packing.generation import WorkFile
from dataset_packaging.packing.index_schema import (
    FATE_DUPLICATE,
    FATE_KEPT,
    PLACEMENT_SCHEMA,
    REJECTS_SCHEMA,
    TOMBSTONES_SCHEMA,
    index_schema,
)
from dataset_packaging.packing.ingest import SLICE_CODEC

DUPLICATE_DETAIL = "another row of the manifest has the same image_key and stays"

INDEX_ROW_GROUP_BYTES = 16 << 20
PLACEMENT_RUN_ROWS = 1 << 18
PLACEMENT_ROW_GROUP_ROWS = 1 << 13


@dataclass(frozen=True, slots=True)
class PlacedSlice:
    """The rows of the bucket within one part.

    Attributes:
        part: ordinal of the part in manifest order.
        uri: file of the part's slices.
        offset: where the slice starts in the file.
        size_bytes: of the slice.
        stream_bytes: of the Arrow stream that it holds compressed.
        line_base: physical lines of the same file before the block: added to the block's own line numbers.
    """

    part: int
    uri: str
    offset: int
    size_bytes: int
    stream_bytes: int
    line_base: int


@dataclass(frozen=True, slots=True)
class MergeTask:
    """One bucket to merge.

    Attributes:
        dataset: its configuration.
        generation: where to write.
        bucket_id: index into BUCKETS.
        slices: in manifest order.
        partitions: how many fates and tombstones files there are.
        prior: the generation before, or None.
        prior_shards: shards of the bucket there.
        sources: URIs of the manifest files, by number.
    """

    dataset: DatasetConfig
    generation: GenerationLayout
    bucket_id: int
    slices: tuple[PlacedSlice, ...]
    partitions: int
    prior: GenerationLayout | None
    prior_shards: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeReport:
    """One bucket that was merged: rows = placed rows + duplicates; `files` are those of its index and places."""

    bucket_id: int
    rows: int
    duplicates: int
    shards: tuple[PlannedShard, ...]
    files: tuple[WorkFile, ...]


@dataclass(slots=True)
class _Writers:
    """The index, the placement and the duplicates of a bucket while they grow."""

    index: pq.ParquetWriter
    placement: pq.ParquetWriter
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    run: list[pa.Table] = field(default_factory=list)
    run_rows: int = 0
    duplicates: list[pa.Table] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        self.waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        if self.waiting_bytes >= INDEX_ROW_GROUP_BYTES:
            self.flush_index()
        # Taken, not only selected: a column of a slice keeps all of the slice in memory, and a run is long.
        self.run.append(rows.select(PLACEMENT_SCHEMA.names).take(pa.array(np.arange(len(rows)))))
        self.run_rows += len(rows)
        if self.run_rows >= PLACEMENT_RUN_ROWS:
            self.flush_run()

    def flush_index(self) -> None:
        if self.waiting:
            table = pa.concat_tables(self.waiting)
            self.index.write_table(table, row_group_size=max(1, len(table)))
        self.waiting, self.waiting_bytes = [], 0

    def flush_run(self) -> None:
        if self.run:
            table = pa.concat_tables(self.run).cast(PLACEMENT_SCHEMA).sort_by("key_hash")
            self.placement.write_table(table, row_group_size=PLACEMENT_ROW_GROUP_ROWS)
        self.run, self.run_rows = [], 0


def merge_bucket(task: MergeTask) -> MergeReport:
    """Writes the index, the placement and the tombstones of one bucket, and plans its shards."""
    stores = shared_stores(StorageConfig.of(task.dataset))
    bucket = BUCKETS[task.bucket_id]
    packing = task.dataset.packing
    assigner = ShardAssigner(packing.shard_size, packing.max_shard_bytes, task.prior_shards)
    totals = ShardTotals()
    rows = duplicates = 0
    fates = Fates.read(stores, task.generation, task.partitions, task.bucket_id)
    schema = index_schema(task.dataset.sidecar.extension_columns())
    with (
        open_hashing_sink(stores, task.generation.index_uri(bucket)) as index_sink,
        open_hashing_sink(stores, task.generation.placement_uri(bucket)) as placement_sink,
        pq.ParquetWriter(
            pa.PythonFile(index_sink, mode="w"),
            schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            use_dictionary=False,
            write_page_checksum=True,
        ) as index,
        pq.ParquetWriter(pa.PythonFile(placement_sink, mode="w"), PLACEMENT_SCHEMA, compression="zstd") as placement,
    ):
        writers = _Writers(index, placement)
        for placed, table in _read_slices(stores, task.slices):
            rows += len(table)
            duplicates += _place_rows(task, placed, table, fates, assigner, totals, writers)
        writers.flush_index()
        writers.flush_run()
    if writers.duplicates:
        write_table(stores, duplicates_uri(task.generation, task.bucket_id), pa.concat_tables(writers.duplicates))
    files = [
        WorkFile(task.generation.index_uri(bucket), bucket.key, index_sink.stored()),
        WorkFile(task.generation.placement_uri(bucket), bucket.key, placement_sink.stored()),
    ]
    tombstones = _write_tombstones(stores, task, totals)
    if tombstones is not None:
        files.append(WorkFile(task.generation.tombstones_uri(bucket), bucket.key, tombstones))
    return MergeReport(task.bucket_id, rows, duplicates, tuple(totals.planned(bucket)), tuple(files))


def duplicates_uri(generation: GenerationLayout, bucket_id: int) -> str:
    """Returns the reject rows of a bucket's duplicates, before they are gathered."""
    return f"{generation.root}/duplicates/{BUCKETS[bucket_id].key}.parquet"


def _read_slices(stores: Stores, slices: tuple[PlacedSlice, ...]) -> Iterator[tuple[PlacedSlice, pa.Table]]:
    for placed in slices:
        data = stores.get_range(placed.uri, placed.offset, placed.size_bytes)
        stream = pa.decompress(pa.py_buffer(data), placed.stream_bytes, SLICE_CODEC)
        yield placed, pa.ipc.open_stream(stream).read_all()


def _place_rows(
    task: MergeTask,
    placed: PlacedSlice,
    table: pa.Table,
    fates: Fates,
    assigner: ShardAssigner,
    totals: ShardTotals,
    writers: _Writers,
) -> int:
    """Gives the rows of one slice their places; returns how many are duplicates."""
    line = table.schema.get_field_index("line")
    table = table.set_column(
        line, table.schema.field(line), pa.array(table["line"].to_numpy() + placed.line_base, pa.int64())
    )
    decided = fates.of_part(placed.part)
    at = np.searchsorted(table["row"].to_numpy(), decided.row)
    fate = np.zeros(len(table), np.uint8)
    shard = np.full(len(table), -1, np.int32)
    position = np.full(len(table), -1, np.int32)
    fate[at], shard[at], position[at] = decided.fate, decided.shard, decided.position
    new = np.flatnonzero(fate == 0)
    estimated = table["estimated_bytes"].to_numpy()
    shard[new], position[new] = assigner.assign(estimated[new])
    live = np.flatnonzero((fate == 0) | (fate == FATE_KEPT))
    columns = {name: table[name].to_numpy() for name in ("main_hash", "side_hash", "planned_width", "planned_height")}
    area = columns["planned_width"].astype(np.int64) * columns["planned_height"]
    totals.add_live(
        shard[live],
        position[live],
        columns["main_hash"][live],
        columns["side_hash"][live],
        estimated[live],
        area[live],
    )
    if len(live):
        rows = table.drop_columns(["row"])
        rows = rows.add_column(0, pa.field("shard", pa.int32(), nullable=False), pa.array(shard))
        rows = rows.add_column(1, pa.field("position", pa.int32(), nullable=False), pa.array(position))
        writers.add(rows.take(pa.array(live)) if len(live) < len(rows) else rows)
    duplicate = np.flatnonzero(fate == FATE_DUPLICATE)
    if len(duplicate):
        writers.duplicates.append(_duplicate_rows(task, table.take(pa.array(duplicate))))
    return len(duplicate)


def _duplicate_rows(task: MergeTask, rows: pa.Table) -> pa.Table:
    return pa.table(
        {
            "image_key": rows["image_key"],
            "s3_image_path": rows["s3_image_path"],
            "manifest_uri": pa.array(task.sources, pa.string()).take(rows["source"].combine_chunks()),
            "line": rows["line"],
            "reason": pa.array([DUPLICATE_REASON] * len(rows)),
            "detail": pa.array([DUPLICATE_DETAIL] * len(rows)),
        },
        schema=REJECTS_SCHEMA,
    )


def _write_tombstones(stores: Stores, task: MergeTask, totals: ShardTotals) -> StoredObject | None:
    bucket = BUCKETS[task.bucket_id]
    tables = [
        table
        for partition in range(task.partitions)
        for table in read_of_bucket(
            stores, task.generation.tombstones_part_uri(partition), task.bucket_id, TOMBSTONES_SCHEMA.names
        )
    ]
    if task.prior is not None and task.prior_shards:
        with contextlib.suppress(NotFound):
            tables.append(read_table(stores, task.prior.tombstones_uri(bucket)))
    table = pa.concat_tables([TOMBSTONES_SCHEMA.empty_table(), *tables])
    if not len(table):
        return None
    table = table.sort_by([("shard", "ascending"), ("position", "ascending")])
    totals.add_tombstones(
        table["shard"].to_numpy(),
        table["position"].to_numpy(),
        table["main_hash"].to_numpy(),
        table["side_hash"].to_numpy(),
        table["absent"].to_numpy(zero_copy_only=False),
    )
    return write_table(stores, task.generation.tombstones_uri(bucket), table)
