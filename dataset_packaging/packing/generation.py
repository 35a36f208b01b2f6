"""Manifest to generation: blocks, keys, buckets, plan; published by one pointer, written last.

Nothing reads a generation that `CURRENT.json` does not name. A generation that a killed run left is written over with
the same bytes.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import BUCKETS, Bucket
from dataset_packaging.core.layout import GenerationLayout, Layout
from dataset_packaging.core.shard_plan import PlannedShard
from dataset_packaging.errors import IndexDamaged, NotFound, PackagingError
from dataset_packaging.io.jsonl import Block, SourceFile, plan_blocks
from dataset_packaging.io.parquet import read_table, write_table
from dataset_packaging.io.store import ObjectInfo, Stores
from dataset_packaging.packing.dedupe import KEYS_PER_PARTITION, DedupeTask, dedupe_partition
from dataset_packaging.packing.executor import Executor
from dataset_packaging.packing.index_schema import CORRECTIONS_SCHEMA, REJECTS_SCHEMA
from dataset_packaging.packing.ingest import IngestReport, IngestTask, ingest_block, place_hashes
from dataset_packaging.packing.merge import MergeReport, MergeTask, PlacedSlice, duplicates_uri, merge_bucket


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A file as it was read or written."""

    uri: str
    size_bytes: int
    tag: str


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """A block as it was read: which bytes of which source, and the parts that it gave (True: with rejects)."""

    source: int
    start: int
    parts: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class BucketRecord:
    """A bucket of the generation: rows = planned live rows + duplicates."""

    bucket: str
    rows: int
    duplicates: int
    shards: int
    estimated_bytes: int


@dataclass(frozen=True, slots=True)
class GenerationSummary:
    """What a generation was made of and what it holds.

    Attributes:
        number: 1-based.
        prior: number of the generation that it grew from, or None.
        fingerprint: of sources and settings.
        identity: settings that decide where rows stand.
        sources: in manifest order.
        blocks: in manifest order.
        rows: non-blank lines.
        rejected: rows without a bucket, by reason (duplicates are apart).
        pending: rows without a bucket whose size could not be read.
        duplicates: rows whose key stood before.
        probed: objects whose header was read, in this or an earlier generation.
        buckets: those with rows or shards.
        files: plan, index and places as they were written: a difference shows damage.
    """

    number: int
    prior: int | None
    fingerprint: str
    identity: dict[str, str]
    sources: tuple[SourceRecord, ...]
    blocks: tuple[BlockRecord, ...]
    rows: int
    rejected: dict[str, int]
    pending: int
    duplicates: int
    probed: int
    buckets: tuple[BucketRecord, ...]
    files: tuple[SourceRecord, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """The generation that `CURRENT.json` names, with its plan."""

    summary: GenerationSummary
    layout: GenerationLayout
    shards: tuple[PlannedShard, ...]

    def of_bucket(self, bucket: Bucket) -> list[PlannedShard]:
        """Returns the planned shards of a bucket, by number."""
        return [shard for shard in self.shards if shard.bucket == bucket]


PLAN_SCHEMA = pa.schema(
    [
        ("bucket", pa.string()),
        ("number", pa.int32()),
        ("rows", pa.int32()),
        ("live_rows", pa.int32()),
        ("estimated_bytes", pa.int64()),
        ("estimated_px", pa.int64()),
        ("fingerprint", pa.string()),
        ("sidecar_fingerprint", pa.string()),
    ]
)


def read_current(stores: Stores, layout: Layout) -> Published | None:
    """Returns the published generation, or None where there is none. Raises IndexDamaged where it cannot be read."""
    try:
        pointer = msgspec.json.decode(stores.get(layout.current_uri))
    except NotFound:
        return None
    except msgspec.DecodeError as error:
        raise IndexDamaged(f"{layout.current_uri} is damaged ({error}): restore it or use a new work_prefix") from error
    return read_generation(stores, layout, int(pointer["generation"]))


def read_generation(stores: Stores, layout: Layout, number: int) -> Published:
    """Returns one generation with its plan. Raises IndexDamaged where a file of it cannot be read."""
    generation = layout.generation(number)
    try:
        summary = msgspec.json.decode(stores.get(generation.summary_uri), type=GenerationSummary)
        plan = read_table(stores, generation.plan_uri)
    except (NotFound, msgspec.DecodeError, pa.ArrowException) as error:
        raise IndexDamaged(f"generation {number} below {layout.work_prefix} cannot be read: {error}") from error
    shards = tuple(
        PlannedShard(Bucket.parse(bucket), *values)
        for bucket, *values in zip(*(plan[name].to_pylist() for name in PLAN_SCHEMA.names), strict=True)
    )
    return Published(summary, generation, shards)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to build.

    Attributes:
        number: of the new generation.
        prior: the generation that it grows from, or None.
        sources: manifest files, in order.
        fingerprint: of sources and settings.
        identity: settings that decide where rows stand.
        relocations: rows that get a new place (schema RELOCATIONS_SCHEMA); may be empty.
        retry_reasons: reject reasons of the manifest step whose rows are tried again.
        row_limit: rows to take at most, or None.
    """

    number: int
    prior: Published | None
    sources: tuple[SourceFile, ...]
    fingerprint: str
    identity: dict[str, str]
    relocations: pa.Table
    retry_reasons: frozenset[str]
    row_limit: int | None = None


@dataclass(slots=True)
class GenerationBuilder:
    """Builds one generation on an executor.

    Attributes:
        report: called after each task with (what, done, total, rows so far, bytes so far).
    """

    dataset: DatasetConfig
    stores: Stores
    layout: Layout
    executor: Executor
    report: Callable[[str, int, int, int, int], None]
    _target: GenerationLayout = field(init=False)

    def build(self, request: GenerationRequest) -> GenerationSummary:
        """Writes all files of the generation but the pointer.

        Raises ManifestError for damaged sources, StoreError where the store is down. Nothing is published.
        """
        self._target = self.layout.generation(request.number)
        corrections_uri, relocations_uri = self._write_relocations(request)
        blocks = [block for source in request.sources for block in plan_blocks(self.stores, source)]
        reports = self._ingest(request, blocks, corrections_uri)
        partitions = self._dedupe(request, reports, relocations_uri)
        line_bases = _line_bases(blocks, reports)
        merged = self._merge(request, blocks, reports, line_bases, partitions)
        files = [self._write_plan(merged), *(info for report in merged for info in report.files)]
        self._write_rejects(reports, line_bases, merged)
        return self._write_summary(request, blocks, reports, merged, files)

    def publish(self, number: int) -> None:
        """Makes the generation current. Safe to repeat."""
        self.stores.put(self.layout.current_uri, msgspec.json.encode({"generation": number}))

    def _write_relocations(self, request: GenerationRequest) -> tuple[str | None, str | None]:
        """Writes who leaves its place, and the true sizes known so far: earlier corrections and new ones."""
        fresh = request.relocations
        hashes = place_hashes(fresh["image_key"].to_pylist(), fresh["s3_image_path"].to_pylist())
        tables = [pa.table([hashes, fresh["width"], fresh["height"]], schema=CORRECTIONS_SCHEMA)]
        if request.prior is not None:
            with contextlib.suppress(NotFound):
                tables.append(read_table(self.stores, request.prior.layout.corrections_uri))
        table = pa.concat_tables(tables)
        write_table(self.stores, self._target.relocations_uri, fresh)
        if not len(table):
            return None, None
        _, first = np.unique(table["place_hash"].to_numpy(), return_index=True)
        write_table(self.stores, self._target.corrections_uri, table.take(pa.array(first)))
        return self._target.corrections_uri, self._target.relocations_uri if len(fresh) else None

    def _ingest(
        self, request: GenerationRequest, blocks: list[Block], corrections_uri: str | None
    ) -> list[IngestReport]:
        source_numbers = {source.uri: number for number, source in enumerate(request.sources)}
        earlier = self._earlier_parts(request)

        def task(ordinal: int, block: Block, row_limit: int | None) -> IngestTask:
            return IngestTask(
                self.dataset,
                self._target,
                ordinal,
                source_numbers[block.source_uri],
                block,
                corrections_uri,
                earlier.get((block.source_uri, block.start), ()),
                request.retry_reasons,
                row_limit,
            )

        total = sum(block.end - block.start for block in blocks)
        done = rows = 0
        reports: list[IngestReport] = []
        if request.row_limit is not None:
            for ordinal, block in enumerate(blocks):
                left = request.row_limit - rows
                if left <= 0:
                    break
                reports.append(ingest_block(task(ordinal, block, left)))
                rows += reports[-1].rows
            return reports
        tasks = (task(ordinal, block, None) for ordinal, block in enumerate(blocks))
        for result in self.executor.map(ingest_block, tasks):
            report = result.require_value()
            reports.append(report)
            done += result.item.block.end - result.item.block.start
            rows += report.rows
            self.report("reading the manifest", done, total, rows, done)
        return sorted(reports, key=lambda report: report.ordinal)

    def _earlier_parts(self, request: GenerationRequest) -> dict[tuple[str, int], tuple[tuple[str, str | None], ...]]:
        """Returns the keys and rejects files of the same blocks in the generation before, where it probed any."""
        prior = request.prior
        if prior is None or not (prior.summary.probed or prior.summary.rejected):
            return {}
        return {
            (prior.summary.sources[block.source].uri, block.start): tuple(
                (
                    prior.layout.keys_uri(ordinal, part),
                    prior.layout.rejects_part_uri(ordinal, part) if has_rejects else None,
                )
                for part, has_rejects in enumerate(block.parts)
            )
            for ordinal, block in enumerate(prior.summary.blocks)
        }

    def _dedupe(self, request: GenerationRequest, reports: list[IngestReport], relocations_uri: str | None) -> int:
        parts = tuple((part.block, part.part) for report in reports for part in report.parts)
        keys = sum(part.rows for report in reports for part in report.parts)
        prior = request.prior
        prior_buckets: tuple[int, ...] = ()
        if prior is not None:
            keys += sum(bucket.rows - bucket.duplicates for bucket in prior.summary.buckets)
            prior_buckets = tuple(
                BUCKETS.index(Bucket.parse(record.bucket)) for record in prior.summary.buckets if record.shards
            )
        partitions = max(1, -(-keys // KEYS_PER_PARTITION))
        tasks = (
            DedupeTask(
                self.dataset,
                self._target,
                partition,
                partitions,
                parts,
                prior.layout if prior else None,
                prior_buckets,
                relocations_uri,
            )
            for partition in range(partitions)
        )
        for done, result in enumerate(self.executor.map(dedupe_partition, tasks), 1):
            result.require_value()
            self.report("comparing keys", done, partitions, keys * done // partitions, 0)
        return partitions

    def _merge(
        self,
        request: GenerationRequest,
        blocks: list[Block],
        reports: list[IngestReport],
        line_bases: list[int],
        partitions: int,
    ) -> list[MergeReport]:
        slices: dict[int, list[PlacedSlice]] = defaultdict(list)
        ordinal = 0
        for report, line_base in zip(reports, line_bases, strict=True):
            for part in report.parts:
                uri = self._target.slices_uri(part.block, part.part)
                for cut in part.slices:
                    slices[cut.bucket_id].append(PlacedSlice(ordinal, uri, cut.offset, cut.size_bytes, line_base))
                ordinal += 1
        prior = request.prior
        prior_shards = Counter(BUCKETS.index(shard.bucket) for shard in prior.shards) if prior else Counter()
        wanted = sorted(slices.keys() | prior_shards.keys(), key=lambda bucket: -len(slices[bucket]))
        tasks = (
            MergeTask(
                self.dataset,
                self._target,
                bucket_id,
                tuple(slices[bucket_id]),
                partitions,
                prior.layout if prior else None,
                prior_shards[bucket_id],
                tuple(source.uri for source in request.sources),
            )
            for bucket_id in wanted
        )
        merged: list[MergeReport] = []
        rows = 0
        for result in self.executor.map(merge_bucket, tasks):
            merged.append(result.require_value())
            rows += merged[-1].rows
            self.report("planning shards", len(merged), len(wanted), rows, 0)
        return sorted(merged, key=lambda report: report.bucket_id)

    def _write_plan(self, merged: list[MergeReport]) -> ObjectInfo:
        shards = [shard for report in merged for shard in report.shards]
        columns = {
            name: [shard.bucket.key if name == "bucket" else getattr(shard, name) for shard in shards]
            for name in PLAN_SCHEMA.names
        }
        return write_table(self.stores, self._target.plan_uri, pa.table(columns, schema=PLAN_SCHEMA))

    def _write_rejects(self, reports: list[IngestReport], line_bases: list[int], merged: list[MergeReport]) -> None:
        """Gathers the rows that the manifest step refused into one list, file by file."""

        def tables() -> Iterator[pa.Table]:
            for report, line_base in zip(reports, line_bases, strict=True):
                for part in report.parts:
                    if part.has_rejects:
                        uri = self._target.rejects_part_uri(part.block, part.part)
                        table = read_table(self.stores, uri, REJECTS_SCHEMA.names)
                        lines = pa.array(table["line"].to_numpy() + line_base, pa.int64())
                        yield table.set_column(3, REJECTS_SCHEMA.field("line"), lines)
            for merge in merged:
                if merge.duplicates:
                    yield read_table(self.stores, duplicates_uri(self._target, merge.bucket_id))

        with (
            self.stores.open_sink(self._target.rejects_uri) as sink,
            pq.ParquetWriter(sink, REJECTS_SCHEMA, compression="zstd") as writer,
        ):
            for table in tables():
                writer.write_table(table.cast(REJECTS_SCHEMA))

    def _write_summary(
        self,
        request: GenerationRequest,
        blocks: list[Block],
        reports: list[IngestReport],
        merged: list[MergeReport],
        files: list[ObjectInfo],
    ) -> GenerationSummary:
        source_numbers = {source.uri: number for number, source in enumerate(request.sources)}
        rejected: Counter[str] = Counter()
        for report in reports:
            rejected.update(report.rejected)
        earlier = request.prior.summary.probed if request.prior else 0
        summary = GenerationSummary(
            request.number,
            request.prior.summary.number if request.prior else None,
            request.fingerprint,
            request.identity,
            tuple(SourceRecord(source.uri, source.size_bytes, source.tag) for source in request.sources),
            tuple(
                BlockRecord(
                    source_numbers[block.source_uri], block.start, tuple(part.has_rejects for part in report.parts)
                )
                for block, report in zip(blocks, reports, strict=False)
            ),
            sum(report.rows for report in reports),
            dict(rejected),
            sum(report.pending for report in reports),
            sum(report.duplicates for report in merged),
            earlier + sum(report.probed for report in reports),
            tuple(
                BucketRecord(
                    BUCKETS[report.bucket_id].key,
                    report.rows,
                    report.duplicates,
                    len(report.shards),
                    sum(shard.estimated_bytes for shard in report.shards),
                )
                for report in merged
            ),
            tuple(SourceRecord(info.uri, info.size_bytes, info.tag) for info in files),
        )
        placed = sum(record.rows for record in summary.buckets)
        if summary.rows != placed + sum(rejected.values()) + summary.pending:
            raise PackagingError(
                f"{summary.rows} rows were read, but {placed} have a bucket, {sum(rejected.values())} are rejected and "
                f"{summary.pending} pending: this is a fault of the program, and nothing was published"
            )
        self.stores.put(self._target.summary_uri, msgspec.json.encode(summary))
        return summary


def _line_bases(blocks: list[Block], reports: list[IngestReport]) -> list[int]:
    """Returns, for each block, the physical lines of its file before it."""
    lines: Counter[str] = Counter()
    bases: list[int] = []
    for block, report in zip(blocks, reports, strict=False):
        bases.append(lines[block.source_uri])
        lines[block.source_uri] += report.lines
    return bases
