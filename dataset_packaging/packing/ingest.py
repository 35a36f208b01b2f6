"""The first pass over the manifest: one block of lines to slices by bucket, keys and rejects. Runs in a task.

Writes below the unpublished generation only, and always the same bytes under the same names: repeating it is safe.
"""

import hashlib
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import BUCKETS, bucket_ids
from dataset_packaging.core.layout import GenerationLayout
from dataset_packaging.core.records import MappedRows, RecordMapper, RowReject
from dataset_packaging.core.shard_plan import ESTIMATED_BYTES_PER_PX
from dataset_packaging.io.jsonl import Block, BlockReader
from dataset_packaging.io.parquet import read_table, write_table
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.index_schema import (
    KEYS_SCHEMA,
    NO_BUCKET,
    PART_REJECTS_SCHEMA,
    PENDING,
    record_fields,
    slice_schema,
)
from dataset_packaging.packing.probe import PendingRow, ProbeCache, probe_sizes

PART_BYTES = 24 << 20
"""Lines that are mapped at once; their Python objects take about six times as much."""

SLICE_CODEC = "lz4"
"""Slices are read once and dropped: half of zstd's time."""

KEYS_ROW_GROUP_ROWS = 4096
"""Small, so that a hash range of the keys can be read without the rest."""


@dataclass(frozen=True, slots=True)
class IngestTask:
    """One block to map.

    Attributes:
        dataset: its configuration.
        generation: where to write.
        ordinal: number of the block in manifest order.
        source: number of the block's file among the generation's sources.
        block: which bytes.
        corrections_uri: true sizes known from earlier packing, or None.
        prior_parts: (keys, rejects) files of the same block in an earlier generation: its probed sizes still hold, and
            where a rejects file is named, its verdicts too.
        retry_reasons: reject reasons whose rows are probed again.
        row_limit: rows to take at most, or None.
    """

    dataset: DatasetConfig
    generation: GenerationLayout
    ordinal: int
    source: int
    block: Block
    corrections_uri: str | None
    prior_parts: tuple[tuple[str, str | None], ...]
    retry_reasons: frozenset[str]
    row_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of one bucket within a part: bytes `[offset, offset + size_bytes)` of its file.

    They are one Arrow stream of `stream_bytes`, compressed as a whole: buffer by buffer takes three times as long.
    """

    bucket_id: int
    offset: int
    size_bytes: int
    stream_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class PartReport:
    """One part that was written.

    Attributes:
        block: number of the block.
        part: number of the part in the block.
        rows: that have a key.
        slices: rows by bucket.
        has_rejects: whether there are rows without a bucket.
    """

    block: int
    part: int
    rows: int
    slices: tuple[Slice, ...]
    has_rejects: bool


@dataclass(frozen=True, slots=True)
class IngestReport:
    """One block that was mapped.

    Attributes:
        ordinal: number of the block.
        lines: physical lines, blank ones included.
        rows: non-blank lines.
        parts: in order.
        probed: objects whose header was read.
        line_bytes: bytes of the lines.
    """

    ordinal: int
    lines: int
    rows: int
    parts: tuple[PartReport, ...]
    probed: int
    line_bytes: int


@dataclass(frozen=True, slots=True)
class _Unplaced:
    """A row without a bucket; `row`: its number in the part where it has a key."""

    reject: RowReject
    row: int | None = None
    place_hash: int | None = None


@dataclass(slots=True)
class _Totals:
    rows: int = 0
    line_bytes: int = 0
    probed: int = 0
    parts: list[PartReport] = field(default_factory=list)


def ingest_block(task: IngestTask) -> IngestReport:
    """Maps the lines of one block and writes its slices, keys and rejects.

    Memory is bounded by `PART_BYTES`, whatever the block's size. Raises ManifestError for a damaged stream and
    TransientStoreError where the store is down.
    """
    stores = shared_stores(StorageConfig.of(task.dataset))
    dataset = task.dataset
    mapper = RecordMapper(dataset.mapping, dataset.sidecar.extension_columns(), dataset.images.dimensions)
    corrections = read_corrections(stores, task.corrections_uri)
    cache = ProbeCache.read(stores, task.prior_parts, task.retry_reasons)
    reader = BlockReader(stores, task.block)
    totals = _Totals()
    for number, lines in enumerate(_parts(reader, task.row_limit)):
        totals.line_bytes += sum(len(line) for _, line in lines)
        mapped = mapper.map_lines(lines, task.block.source_uri)
        totals.rows += mapped.rows
        _write_part(task, stores, mapped, number, corrections, cache, totals)
    return IngestReport(
        task.ordinal,
        reader.line_count,
        totals.rows,
        tuple(totals.parts),
        totals.probed,
        totals.line_bytes,
    )


def read_corrections(stores: Stores, uri: str | None) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """Returns (hashes, sorted; sizes of shape (n, 2): width and height in pixels); 16 bytes per correction."""
    if uri is None:
        return np.zeros(0, np.uint64), np.zeros((0, 2), np.int32)
    table = read_table(stores, uri)
    sizes = np.stack([table["width"].to_numpy(), table["height"].to_numpy()], axis=1)
    return table["place_hash"].to_numpy(), sizes


def hash_texts(texts: list[str]) -> npt.NDArray[np.uint64]:
    """Returns a 64-bit BLAKE2b hash of each text: equal on every machine and version."""
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(text.encode(), digest_size=8).digest() for text in texts])
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def place_hashes(keys: list[str], paths: list[str]) -> npt.NDArray[np.uint64]:
    """Returns a 64-bit hash of each (key, path): a correction holds only while both stay as they are."""
    return hash_texts([f"{key}\0{path}" for key, path in zip(keys, paths, strict=True)])


def _parts(reader: BlockReader, row_limit: int | None) -> Iterator[list[tuple[int, bytes]]]:
    lines: list[tuple[int, bytes]] = []
    size = 0
    for line in itertools.islice(reader, row_limit):
        lines.append(line)
        size += len(line[1])
        if size >= PART_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _write_part(
    task: IngestTask,
    stores: Stores,
    mapped: MappedRows,
    number: int,
    corrections: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]],
    cache: ProbeCache,
    totals: _Totals,
) -> None:
    places = place_hashes(mapped.image_key, mapped.s3_image_path)
    width, height = _known_sizes(task.dataset, mapped, places, corrections, cache)
    sizes = np.full(len(places), -1, np.int64)
    rejects = [_Unplaced(reject) for reject in mapped.rejects]
    unknown = np.flatnonzero((width <= 0) | (height <= 0))
    if len(unknown):
        found = probe_sizes(
            stores,
            task.dataset,
            [PendingRow(int(row), mapped.s3_image_path[row], int(places[row])) for row in unknown],
            cache,
        )
        totals.probed += found.probed
        for row, size in found.sizes.items():
            width[row], height[row] = size.width_px, size.height_px
            sizes[row] = size.size_bytes
        pending = {row: (PENDING, detail) for row, detail in found.pending.items()}
        for row, (reason, detail) in sorted((found.rejected | pending).items()):
            reject = RowReject(mapped.line[row], reason, detail, mapped.image_key[row], mapped.s3_image_path[row])
            rejects.append(_Unplaced(reject, row, int(places[row])))
    placed = np.flatnonzero((width > 0) & (height > 0))
    table = _slice_table(task, mapped, places, width, height, sizes)
    bucket = np.full(len(places), NO_BUCKET, np.uint8)
    bucket[placed] = bucket_ids(width[placed], height[placed])
    order = placed[np.argsort(bucket[placed], kind="stable")]
    slices = _write_slices(task, stores, number, table, order, bucket[order])
    _write_keys(task, stores, number, table, bucket)
    if rejects:
        write_table(stores, task.generation.rejects_part_uri(task.ordinal, number), _rejects_table(task.block, rejects))
    totals.parts.append(PartReport(task.ordinal, number, len(places), slices, bool(rejects)))


def _known_sizes(
    dataset: DatasetConfig,
    mapped: MappedRows,
    places: npt.NDArray[np.uint64],
    corrections: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]],
    cache: ProbeCache,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Returns width and height of each row, 0 where unknown: corrected, else probed before, else the manifest's."""
    if dataset.images.dimensions == "probe":
        width = np.zeros(len(places), np.int32)
        height = np.zeros(len(places), np.int32)
    else:
        width = np.array([size or 0 for size in mapped.width_px], np.int32)
        height = np.array([size or 0 for size in mapped.height_px], np.int32)
        half = (width == 0) | (height == 0)
        width[half] = height[half] = 0
    for hashes, sizes, everywhere in ((cache.hashes, cache.sizes, False), (*corrections, True)):
        if len(hashes):
            at = np.minimum(np.searchsorted(hashes, places), len(hashes) - 1)
            hit = (hashes[at] == places) & (everywhere | (width == 0))
            width[hit], height[hit] = sizes[at[hit], 0], sizes[at[hit], 1]
    return width, height


def _slice_table(
    task: IngestTask,
    mapped: MappedRows,
    places: npt.NDArray[np.uint64],
    width: npt.NDArray[np.int32],
    height: npt.NDArray[np.int32],
    probed_bytes: npt.NDArray[np.int64],
) -> pa.Table:
    rows = len(places)
    expected = pa.array(mapped.expected_bytes, pa.int64())
    told = pc.fill_null(expected, -1).to_numpy(zero_copy_only=False)
    from_area = (width.astype(np.float64) * height * ESTIMATED_BYTES_PER_PX).astype(np.int64)
    estimated = np.where(told >= 0, told, np.where(probed_bytes >= 0, probed_bytes, from_area))
    columns: dict[str, pa.Array] = {
        "row": pa.array(np.arange(rows, dtype=np.int32)),
        "source": pa.array(np.full(rows, task.source, np.int32)),
        "line": pa.array(mapped.line, pa.int64()),
        "planned_width": pa.array(width),
        "planned_height": pa.array(height),
        "estimated_bytes": pa.array(estimated),
        "expected_sha256": pa.array(mapped.expected_sha256, pa.string()),
        "expected_md5": pa.array(mapped.expected_md5, pa.string()),
        "expected_bytes": expected,
        "key_hash": pa.array(hash_texts(mapped.image_key)),
        "place_hash": pa.array(places),
        "main_hash": pa.array(np.frombuffer(b"".join(mapped.main_hash), "<u8")[::2].astype(np.uint64)),
        "side_hash": pa.array(np.frombuffer(b"".join(mapped.side_hash), "<u8")[::2].astype(np.uint64)),
        "warnings": pa.array(mapped.warnings, pa.list_(pa.string())),
        "image_key": pa.array(mapped.image_key, pa.string()),
        "s3_image_path": pa.array(mapped.s3_image_path, pa.string()),
        "meta_info": pa.array(mapped.meta_info, pa.string()),
    }
    extensions = task.dataset.sidecar.extension_columns()
    for column in record_fields(extensions):
        if column.name not in columns:
            columns[column.name] = pa.array(mapped.columns[column.name], column.type)
    schema = slice_schema(extensions)
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _write_slices(
    task: IngestTask,
    stores: Stores,
    number: int,
    table: pa.Table,
    order: npt.NDArray[np.int64],
    bucket: npt.NDArray[np.uint8],
) -> tuple[Slice, ...]:
    bounds = np.searchsorted(bucket, np.arange(len(BUCKETS) + 1))
    by_bucket = table.take(order).combine_chunks()
    sink = io.BytesIO()
    slices: list[Slice] = []
    for bucket_id in range(len(BUCKETS)):
        start, end = int(bounds[bucket_id]), int(bounds[bucket_id + 1])
        if start == end:
            continue
        offset = sink.tell()
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(by_bucket.slice(start, end - start))
        data = stream.getvalue()
        sink.write(pa.compress(data, SLICE_CODEC))
        slices.append(Slice(bucket_id, offset, sink.tell() - offset, data.size, end - start))
    if slices:
        stores.put(task.generation.slices_uri(task.ordinal, number), sink.getbuffer())
    return tuple(slices)


def _write_keys(task: IngestTask, stores: Stores, number: int, table: pa.Table, bucket: npt.NDArray[np.uint8]) -> None:
    by_hash = np.argsort(table["key_hash"].to_numpy(), kind="stable")
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "row": pa.array(by_hash.astype(np.int32)),
        "bucket": pa.array(bucket[by_hash]),
        "width": table["planned_width"].take(by_hash),
        "height": table["planned_height"].take(by_hash),
    }
    arrays = [columns[name] if name in columns else table[name].take(by_hash) for name in KEYS_SCHEMA.names]
    keys = pa.Table.from_arrays(arrays, schema=KEYS_SCHEMA)
    write_table(stores, task.generation.keys_uri(task.ordinal, number), keys, KEYS_ROW_GROUP_ROWS)


def _rejects_table(block: Block, unplaced: list[_Unplaced]) -> pa.Table:
    rejects = [each.reject for each in unplaced]
    return pa.table(
        {
            "image_key": [reject.image_key for reject in rejects],
            "s3_image_path": [reject.s3_image_path for reject in rejects],
            "manifest_uri": [block.source_uri] * len(rejects),
            "line": [reject.line for reject in rejects],
            "reason": [reject.reason for reject in rejects],
            "detail": [reject.detail for reject in rejects],
            "place_hash": [each.place_hash for each in unplaced],
            "row": [each.row for each in unplaced],
        },
        schema=PART_REJECTS_SCHEMA,
    )
