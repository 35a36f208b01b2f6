"""Manifest to generation: blocks, keys, buckets, plan; published by one pointer, written last.

A generation that a killed run left unpublished is written over.
"""

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
from dataset_packaging.core.ledger import DUPLICATE_REASON
from dataset_packaging.errors import PackagingError
from dataset_packaging.io.jsonl import Block, SourceFile, plan_blocks
from dataset_packaging.io.parquet import open_hashing_sink, read_table, write_table
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.dedupe import KEYS_PER_PARTITION, DedupeTask, dedupe_partition
from dataset_packaging.packing.executor import Executor, map_surviving
from dataset_packaging.packing.fates import Fates
from dataset_packaging.packing.generation import (
    PLAN_SCHEMA,
    BlockRecord,
    BucketRecord,
    GenerationSummary,
    SourceRecord,
    WorkFile,
    owner_of,
)
from dataset_packaging.packing.index_schema import (
    CORRECTIONS_SCHEMA,
    NO_BUCKET,
    PART_REJECTS_SCHEMA,
    PENDING,
    REJECTS_SCHEMA,
)
from dataset_packaging.packing.ingest import IngestReport, IngestTask, ingest_block, place_hashes
from dataset_packaging.packing.merge import (
    DUPLICATE_DETAIL,
    MergeReport,
    MergeTask,
    PlacedSlice,
    duplicates_uri,
    merge_bucket,
)
from dataset_packaging.packing.reports import StageClock

FULL_MERGE_BYTES = 8 << 20
"""Of compressed slices: a task of about half a second; smaller buckets share one."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """The generation that another one grows from.

    Attributes:
        summary: what it holds.
        layout: where.
        places: (bucket id, URI of a file with the places of its keys): the placement, or the index in its stead.
    """

    summary: GenerationSummary
    layout: GenerationLayout
    places: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to build.

    Attributes:
        number: of the new generation.
        ancestor: the generation whose places are kept, or None.
        probed: the generation whose probed and corrected sizes still hold, or None.
        sources: manifest files, in order.
        fingerprint: of sources and settings.
        probing: fingerprint of the settings that decide about rows without a bucket.
        identity: settings that decide where rows stand.
        relocations: rows that get a new place (schema RELOCATIONS_SCHEMA); may be empty.
        retry_reasons: reject reasons of the manifest step whose rows are tried again.
        row_limit: rows to take at most, or None.
    """

    number: int
    ancestor: Ancestor | None
    probed: Ancestor | None
    sources: tuple[SourceFile, ...]
    fingerprint: str
    probing: str
    identity: dict[str, str]
    relocations: pa.Table
    retry_reasons: frozenset[str]
    row_limit: int | None = None


@dataclass(frozen=True, slots=True)
class _Refused:
    """The rows without a bucket: rejected by reason, pending, duplicates."""

    rejected: dict[str, int]
    pending: int
    duplicates: int
    file: WorkFile


@dataclass(slots=True)
class GenerationBuilder:
    """Builds one generation on an executor.

    Attributes:
        dataset: its configuration.
        stores: for what the driver itself reads and writes.
        layout: where generations stand.
        open_executor: gives the executor of the tasks; called when the first one is run.
        clock: hears of each task that ends.
    """

    dataset: DatasetConfig
    stores: Stores
    layout: Layout
    open_executor: Callable[[], Executor]
    clock: StageClock
    _target: GenerationLayout = field(init=False)

    def build(self, request: GenerationRequest) -> GenerationSummary:
        """Writes all files of the generation but the pointer.

        Raises ManifestError for damaged sources, StoreError where the store is down. Nothing is published.
        """
        self._target = self.layout.generation(request.number)
        files = self._write_relocations(request)
        blocks = [block for source in request.sources for block in plan_blocks(self.stores, source)]
        reports = self._ingest(request, blocks)
        partitions = self._dedupe(request, reports)
        line_bases = _line_bases(blocks, reports)
        merged = self._merge(request, reports, line_bases, partitions)
        refused = self._write_rejects(reports, line_bases, merged, partitions)
        files += [self._write_plan(merged), refused.file, *(file for report in merged for file in report.files)]
        return self._write_summary(request, blocks, reports, merged, refused, files)

    def publish(self, number: int) -> None:
        """Makes the generation current. Safe to repeat."""
        self.stores.put(self.layout.current_uri, msgspec.json.encode({"generation": number}))

    def _write_relocations(self, request: GenerationRequest) -> list[WorkFile]:
        """Writes who leaves its place, and the true sizes known so far: earlier corrections and new ones."""
        fresh = request.relocations
        hashes = place_hashes(fresh["image_key"].to_pylist(), fresh["s3_image_path"].to_pylist())
        corrections = pa.table([hashes, fresh["width"], fresh["height"]], schema=CORRECTIONS_SCHEMA)
        if request.probed is not None:
            earlier = read_table(self.stores, request.probed.layout.corrections_uri)
            corrections = pa.concat_tables([corrections, earlier])
        _, first = np.unique(corrections["place_hash"].to_numpy(), return_index=True)
        tables = {
            self._target.relocations_uri: fresh,
            self._target.corrections_uri: corrections.take(pa.array(first)),
        }
        return [WorkFile(uri, None, write_table(self.stores, uri, table)) for uri, table in tables.items()]

    def _ingest(self, request: GenerationRequest, blocks: list[Block]) -> list[IngestReport]:
        source_numbers = {source.uri: number for number, source in enumerate(request.sources)}
        earlier = _earlier_parts(request)

        def task(ordinal: int, block: Block, row_limit: int | None) -> IngestTask:
            return IngestTask(
                self.dataset,
                self._target,
                ordinal,
                source_numbers[block.source_uri],
                block,
                self._target.corrections_uri,
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
        for result in map_surviving(self.open_executor(), ingest_block, tasks):
            report = result.require_value()
            reports.append(report)
            done += result.item.block.end - result.item.block.start
            rows += report.rows
            self.clock.report("reading the manifest", done, total, rows, done)
        return sorted(reports, key=lambda report: report.ordinal)

    def _dedupe(self, request: GenerationRequest, reports: list[IngestReport]) -> int:
        parts = tuple((part.block, part.part) for report in reports for part in report.parts)
        keys = sum(part.rows for report in reports for part in report.parts)
        ancestor = request.ancestor
        if ancestor is not None:
            keys += sum(bucket.rows - bucket.duplicates for bucket in ancestor.summary.buckets)
        partitions = max(1, -(-keys // KEYS_PER_PARTITION))
        tasks = (
            DedupeTask(
                self.dataset,
                self._target,
                partition,
                partitions,
                parts,
                ancestor.places if ancestor else (),
                self._target.relocations_uri if len(request.relocations) else None,
            )
            for partition in range(partitions)
        )
        for done, result in enumerate(map_surviving(self.open_executor(), dedupe_partition, tasks), 1):
            result.require_value()
            self.clock.report("comparing keys", done, partitions, keys * done // partitions, 0, unit="tasks")
        return partitions

    def _merge(
        self, request: GenerationRequest, reports: list[IngestReport], line_bases: list[int], partitions: int
    ) -> list[MergeReport]:
        slices: dict[int, list[PlacedSlice]] = defaultdict(list)
        ordinal = 0
        for report, line_base in zip(reports, line_bases, strict=True):
            for part in report.parts:
                uri = self._target.slices_uri(part.block, part.part)
                for cut in part.slices:
                    slices[cut.bucket_id].append(
                        PlacedSlice(ordinal, uri, cut.offset, cut.size_bytes, cut.stream_bytes, line_base)
                    )
                ordinal += 1
        ancestor = request.ancestor
        prior_shards: Counter[int] = Counter()
        if ancestor is not None:
            prior_shards.update(
                {_bucket_id(record.bucket): record.shards for record in ancestor.summary.buckets if record.shards}
            )
        wanted = sorted(slices.keys() | prior_shards.keys(), key=lambda bucket: -len(slices[bucket]))
        tasks = (
            MergeTask(
                self.dataset,
                self._target,
                bucket_id,
                tuple(slices[bucket_id]),
                partitions,
                ancestor.layout if ancestor else None,
                prior_shards[bucket_id],
                tuple(source.uri for source in request.sources),
            )
            for bucket_id in wanted
        )
        merged: list[MergeReport] = []
        rows = 0
        for result in map_surviving(self.open_executor(), merge_bucket, tasks, _weigh_merge):
            merged.append(result.require_value())
            rows += merged[-1].rows
            self.clock.report("planning shards", len(merged), len(wanted), rows, 0, unit="tasks")
        return sorted(merged, key=lambda report: report.bucket_id)

    def _write_plan(self, merged: list[MergeReport]) -> WorkFile:
        shards = [shard for report in merged for shard in report.shards]
        columns = {
            name: [shard.bucket.key if name == "bucket" else getattr(shard, name) for shard in shards]
            for name in PLAN_SCHEMA.names
        }
        table = pa.table(columns, schema=PLAN_SCHEMA)
        return WorkFile(self._target.plan_uri, None, write_table(self.stores, self._target.plan_uri, table))

    def _write_rejects(
        self, reports: list[IngestReport], line_bases: list[int], merged: list[MergeReport], partitions: int
    ) -> _Refused:
        """Gathers the rows without a bucket, and all duplicates, into one list, file by file."""
        counts: Counter[str] = Counter()
        with (
            open_hashing_sink(self.stores, self._target.rejects_uri) as hashing,
            pq.ParquetWriter(pa.PythonFile(hashing, mode="w"), REJECTS_SCHEMA, compression="zstd") as writer,
        ):
            for table in self._refused_rows(reports, line_bases, partitions):
                reasons = table["reason"].to_pylist()
                counts.update(reasons)
                listed = pa.array([reason != PENDING for reason in reasons], pa.bool_())
                writer.write_table(table.filter(listed).cast(REJECTS_SCHEMA))
            for merge in merged:
                if merge.duplicates:
                    writer.write_table(read_table(self.stores, duplicates_uri(self._target, merge.bucket_id)))
        pending, duplicates = counts.pop(PENDING, 0), counts.pop(DUPLICATE_REASON, 0)
        return _Refused(dict(counts), pending, duplicates, WorkFile(self._target.rejects_uri, None, hashing.stored()))

    def _refused_rows(self, reports: list[IngestReport], line_bases: list[int], partitions: int) -> Iterator[pa.Table]:
        """Yields the rows without a bucket of each part, those whose key stood before as duplicates."""
        fates = Fates.read(self.stores, self._target, partitions, NO_BUCKET)
        ordinal = 0
        for report, line_base in zip(reports, line_bases, strict=True):
            for part in report.parts:
                if part.has_rejects:
                    table = read_table(self.stores, self._target.rejects_part_uri(part.block, part.part))
                    yield _with_duplicates(table, set(fates.of_part(ordinal).row.tolist()), line_base)
                ordinal += 1

    def _write_summary(
        self,
        request: GenerationRequest,
        blocks: list[Block],
        reports: list[IngestReport],
        merged: list[MergeReport],
        refused: _Refused,
        files: list[WorkFile],
    ) -> GenerationSummary:
        source_numbers = {source.uri: number for number, source in enumerate(request.sources)}
        summary = GenerationSummary(
            request.number,
            request.ancestor.summary.number if request.ancestor else None,
            request.fingerprint,
            request.probing,
            owner_of(self.dataset),
            request.identity,
            tuple(SourceRecord(source.uri, source.size_bytes, source.tag) for source in request.sources),
            tuple(
                BlockRecord(
                    source_numbers[block.source_uri], block.start, tuple(part.has_rejects for part in report.parts)
                )
                for block, report in zip(blocks, reports, strict=False)
            ),
            sum(report.rows for report in reports),
            refused.rejected,
            refused.pending,
            sum(report.duplicates for report in merged) + refused.duplicates,
            refused.duplicates,
            (request.probed.summary.probed if request.probed else 0) + sum(report.probed for report in reports),
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
            tuple(files),
        )
        _require_all_rows(summary)
        self.stores.put(self._target.summary_uri, msgspec.json.encode(summary))
        return summary


def _bucket_id(key: str) -> int:
    return BUCKETS.index(Bucket.parse(key))


def _earlier_parts(request: GenerationRequest) -> dict[tuple[str, int], tuple[tuple[str, str | None], ...]]:
    """Returns the keys and rejects files of the same blocks in the generation before, where it probed any.

    Rejects are named only where nothing has changed that decides about them.
    """
    probed = request.probed
    if probed is None or not (probed.summary.probed or probed.summary.rejected):
        return {}
    same = probed.summary.probing == request.probing
    return {
        (probed.summary.sources[block.source].uri, block.start): tuple(
            (
                probed.layout.keys_uri(ordinal, part),
                probed.layout.rejects_part_uri(ordinal, part) if has_rejects and same else None,
            )
            for part, has_rejects in enumerate(block.parts)
        )
        for ordinal, block in enumerate(probed.summary.blocks)
    }


def _with_duplicates(table: pa.Table, duplicates: set[int], line_base: int) -> pa.Table:
    """Returns the rows of a part's list with absolute line numbers; `duplicates` are numbers of rows in the part."""
    lines = pa.array(table["line"].to_numpy() + line_base, pa.int64())
    again = [row in duplicates for row in table["row"].to_pylist()]
    columns = {
        "line": lines,
        "reason": [
            DUPLICATE_REASON if twice else reason
            for twice, reason in zip(again, table["reason"].to_pylist(), strict=True)
        ],
        "detail": [
            DUPLICATE_DETAIL if twice else detail
            for twice, detail in zip(again, table["detail"].to_pylist(), strict=True)
        ],
    }
    for name, values in columns.items():
        field_ = PART_REJECTS_SCHEMA.field(name)
        table = table.set_column(table.schema.get_field_index(name), field_, pa.array(values, field_.type))
    return table.select(REJECTS_SCHEMA.names)


def _weigh_merge(task: MergeTask) -> float:
    return 0.02 + sum(placed.size_bytes for placed in task.slices) / FULL_MERGE_BYTES


def _line_bases(blocks: list[Block], reports: list[IngestReport]) -> list[int]:
    """Returns, for each block, the physical lines of its file before it."""
    lines: Counter[str] = Counter()
    bases: list[int] = []
    for block, report in zip(blocks, reports, strict=False):
        bases.append(lines[block.source_uri])
        lines[block.source_uri] += report.lines
    return bases


def _require_all_rows(summary: GenerationSummary) -> None:
    placed = sum(record.rows for record in summary.buckets)
    refused = sum(summary.rejected.values()) + summary.pending + summary.unplaced_duplicates
    if summary.rows != placed + refused:
        raise PackagingError(
            f"{summary.rows} rows were read, but {placed} have a bucket and {refused} have none: this is a fault of "
            "the program, and nothing was published"
        )
