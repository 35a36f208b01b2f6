"""One shard: planned rows to bytes, verdicts, a Parquet object, its facts and its receipt. Runs in a task.

The order of durability is object, facts, receipt. All three have fixed names and, for the same rows, the same bytes:
a repeat, a retry or a second worker changes nothing. Memory: look-ahead, one row group, one decode.
"""

import hashlib
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket, bucket_of
from dataset_packaging.core.layout import GenerationLayout, Layout
from dataset_packaging.core.receipts import MovedRow, RejectedRow, ShardReceipt, StoredObject, encode_receipt
from dataset_packaging.core.schema import IMAGE_COLUMN, MAIN_SCHEMA
from dataset_packaging.core.shard_plan import PlannedShard
from dataset_packaging.errors import AccessDenied, IndexDamaged, NoGrant, TransientStoreError
from dataset_packaging.imaging.verify import Verdict
from dataset_packaging.io.parquet import open_parquet, read_matching, shard_writer, write_table
from dataset_packaging.io.store import Sink, StorageConfig, Stores, shared_stores
from dataset_packaging.packing.fetch import CheckedImage, ImageChecker, WantedImage, image_policy
from dataset_packaging.packing.index_schema import DECODED_COLUMNS, FACTS_SCHEMA
from dataset_packaging.packing.reuse import OldShard

EARLY_FETCHES = 200
"""The run is given up where more than half of its first fetches are denied."""


@dataclass(frozen=True, slots=True)
class PackTask:
    """One shard to pack.

    Attributes:
        dataset: its configuration.
        generation: the published generation whose index holds the rows.
        shard: the line of the plan.
        fingerprint: of plan and configuration; goes to the receipt.
        policy: fingerprint of the verification policy; goes to the receipt.
        sources: URIs of the manifest files, by number.
        old: the receipt of what stands at the shard's place, whose images may be used again; or None.
        poison: reason and detail of rows whose decode is known to kill a worker, by position.
        publish_denied: whether to publish though every fetch was denied (other locations are open).
        memory_bytes: what the worker may allocate; 0: no limit.
    """

    dataset: DatasetConfig
    generation: GenerationLayout
    shard: PlannedShard
    fingerprint: str
    policy: str
    sources: tuple[str, ...]
    old: ShardReceipt | None = None
    poison: tuple[tuple[int, str, str], ...] = ()
    publish_denied: bool = False
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PackOutcome:
    """What became of one shard: counts only.

    Attributes:
        bucket: where it stands.
        number: of the shard.
        published: whether object, facts and receipt are durable.
        packed_rows: rows in the shard.
        image_bytes: of the packed rows.
        rejected: rows by reason.
        moved: rows that belong to another bucket.
        row_groups: of the shard.
        fetches: objects asked for.
        denied: fetches that were denied, locations without a grant apart.
        problem: why it is not published, else empty.
        all_denied: not published because every fetch was denied.
        seconds: of the task.
        counts: what the worker did to its stores during the task.
    """

    bucket: Bucket
    number: int
    published: bool
    packed_rows: int = 0
    image_bytes: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    moved: int = 0
    row_groups: int = 0
    fetches: int = 0
    denied: int = 0
    problem: str = ""
    all_denied: bool = False
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)


class _UnpublishedError(Exception):
    """Leaves the sink's block so that nothing appears."""


@dataclass(slots=True)
class _Shard:
    """The shard while it is being written."""

    task: PackTask
    rows: pa.Table
    writer: Any
    chosen: list[int] = field(default_factory=list)
    images: list[memoryview | bytes] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    group_bytes: int = 0
    row_groups: int = 0
    image_bytes: int = 0
    facts: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in FACTS_SCHEMA.names})
    rejected: list[RejectedRow] = field(default_factory=list)
    moved: list[MovedRow] = field(default_factory=list)

    def add(self, row: int, image: memoryview | bytes, sha256: str, verdict: Verdict) -> None:
        """Takes a verified image; flushes the row group when it is full."""
        self.chosen.append(row)
        self.images.append(image)
        self.verdicts.append(verdict)
        self.group_bytes += len(image)
        self.image_bytes += len(image)
        self._add_facts(row, len(image), sha256, verdict)
        if self.group_bytes >= self.task.dataset.packing.row_group_bytes:
            self.flush()

    def flush(self) -> None:
        """Writes the row group at hand, if it has rows."""
        if not self.chosen:
            return
        taken = self.rows.take(pa.array(self.chosen))
        arrays: dict[str, pa.Array | pa.ChunkedArray] = {
            IMAGE_COLUMN: _binary_array(self.images),
            "width": pa.array([verdict.width_px for verdict in self.verdicts], pa.int32()),
            "height": pa.array([verdict.height_px for verdict in self.verdicts], pa.int32()),
            "is_rgba": pa.array([verdict.is_rgba for verdict in self.verdicts], pa.bool_()),
        }
        columns = [arrays[name] if name in arrays else taken[name] for name in MAIN_SCHEMA.names]
        table = pa.Table.from_arrays(columns, schema=MAIN_SCHEMA)
        self.writer.write_table(table, row_group_size=len(self.chosen))
        self.row_groups += 1
        self.chosen, self.images, self.verdicts, self.group_bytes = [], [], [], 0

    def _add_facts(self, row: int, size_bytes: int, sha256: str, verdict: Verdict) -> None:
        values = (
            self.rows["position"][row].as_py(),
            verdict.width_px,
            verdict.height_px,
            verdict.is_rgba,
            verdict.format,
            verdict.mode,
            verdict.frames,
            verdict.stored_width_px,
            verdict.stored_height_px,
            verdict.exif_orientation,
            size_bytes,
            sha256,
            list(verdict.warnings),
        )
        for name, value in zip(FACTS_SCHEMA.names, values, strict=True):
            self.facts[name].append(value)


class _HashingSink:
    """Passes bytes on and hashes them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.sha256 = hashlib.sha256()

    @property
    def closed(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self._sink.write(data)

    def tell(self) -> int:
        return self._sink.tell()

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def pack_shard(task: PackTask) -> PackOutcome:
    """Packs one shard and writes its receipt; the outcome says so, or why the shard is left unpublished.

    Raises IndexDamaged where the index does not hold what the plan says, DecoderStuck where a decode hangs (the
    process must be given up), AccessDenied where the store denies most of what the run asks first.
    """
    started = time.monotonic()
    _limit_memory(task.memory_bytes)
    stores = shared_stores(StorageConfig.of(task.dataset))
    before = stores.stats()
    rows = read_shard_rows(stores, task)
    layout = Layout(task.dataset.output_prefix, task.dataset.sidecar_prefix, task.dataset.work_prefix)
    tally = _Tally()
    try:
        receipt = _write_shard(task, stores, layout, rows, tally)
    except _UnpublishedError as reason:
        outcome = PackOutcome(task.shard.bucket, task.shard.number, False, problem=str(reason))
        all_denied = tally.fetches > 0 and tally.denied == tally.fetches
        receipt = None
    after = stores.stats()
    counts = {name: count - before.get(name, 0) for name, count in after.items()}
    seconds = time.monotonic() - started
    if receipt is None:
        return PackOutcome(
            task.shard.bucket,
            task.shard.number,
            False,
            fetches=tally.fetches,
            denied=tally.denied,
            problem=outcome.problem,
            all_denied=all_denied,
            seconds=seconds,
            counts=counts,
        )
    return PackOutcome(
        task.shard.bucket,
        task.shard.number,
        True,
        receipt.packed_rows,
        receipt.image_bytes,
        receipt.reject_counts,
        len(receipt.moved),
        receipt.row_groups,
        tally.fetches,
        tally.denied,
        seconds=seconds,
        counts=counts,
    )


def read_shard_rows(stores: Stores, task: PackTask) -> pa.Table:
    """Returns the live rows of the shard, by position, with the columns that packing needs.

    Raises IndexDamaged where they are not the planned ones.
    """
    shard = task.shard
    wanted = [
        "shard",
        "position",
        "source",
        "line",
        "estimated_bytes",
        "expected_sha256",
        "expected_md5",
        "expected_bytes",
        "main_hash",
        *(name for name in MAIN_SCHEMA.names if name != IMAGE_COLUMN and name not in DECODED_COLUMNS),
    ]
    return read_planned_rows(stores, task.generation, shard, wanted)


def read_planned_rows(
    stores: Stores, generation: GenerationLayout, shard: PlannedShard, columns: list[str]
) -> pa.Table:
    """Returns the live rows of a shard by position; `columns` must hold shard and position.

    Raises IndexDamaged where the index cannot be read or does not hold as many rows as were planned.
    """
    uri = generation.index_uri(shard.bucket)
    try:
        file = open_parquet(stores, uri, verify_checksums=True)
        groups = [
            group.filter(pa.array(group["shard"].to_numpy() == shard.number))
            for group in read_matching(file, "shard", lambda least, most: least <= shard.number <= most, columns)
        ]
        rows = pa.concat_tables(groups or [file.schema_arrow.empty_table().select(columns)]).sort_by("position")
    except (pa.ArrowException, OSError) as error:
        raise IndexDamaged(
            f"{uri} cannot be read ({error}); run pack again: it is rebuilt from the manifest"
        ) from error
    if len(rows) != shard.live_rows:
        raise IndexDamaged(
            f"{uri} holds {len(rows)} rows of shard {shard.number}, the plan {shard.live_rows}; "
            "run pack again: it is rebuilt from the manifest"
        )
    return rows.combine_chunks()


@dataclass(slots=True)
class _Tally:
    fetches: int = 0
    denied: int = 0
    first_denial: AccessDenied | None = None
    first_outage: TransientStoreError | None = None
    outages: int = 0

    def count(self, checked: CheckedImage) -> None:
        self.fetches += 1
        if checked.denied is not None and not isinstance(checked.denied, NoGrant):
            self.denied += 1
            self.first_denial = self.first_denial or checked.denied
        if checked.outage is not None:
            self.outages += 1
            self.first_outage = self.first_outage or checked.outage


def _write_shard(task: PackTask, stores: Stores, layout: Layout, rows: pa.Table, tally: _Tally) -> ShardReceipt:
    bucket, number = task.shard.bucket, task.shard.number
    with stores.open_sink(layout.shard_uri(bucket, number)) as sink:
        hashing = _HashingSink(sink)
        writer = shard_writer(pa.PythonFile(hashing, mode="w"), MAIN_SCHEMA, IMAGE_COLUMN)
        shard = _Shard(task, rows, writer)
        for row, checked in _checked_rows(task, stores, layout, rows, tally):
            _settle(shard, row, checked)
        _require_publishable(task, tally)
        shard.flush()
        writer.close()
    facts = pa.table(shard.facts, schema=FACTS_SCHEMA)
    facts_info = write_table(stores, layout.facts_uri(bucket, number), facts)
    receipt = ShardReceipt(
        task.dataset.name,
        bucket.key,
        number,
        task.fingerprint,
        StoredObject(sink.info.size_bytes, sink.info.tag, hashing.sha256.hexdigest()),
        StoredObject(facts_info.size_bytes, facts_info.tag, ""),
        len(rows),
        len(facts),
        shard.image_bytes,
        shard.row_groups,
        task.policy,
        tuple(shard.rejected),
        tuple(shard.moved),
    )
    stores.put(layout.receipt_uri(bucket, number), encode_receipt(receipt))
    return receipt


def _checked_rows(
    task: PackTask, stores: Stores, layout: Layout, rows: pa.Table, tally: _Tally
) -> Iterator[tuple[int, CheckedImage]]:
    """Yields every live row with its fate, in plan order: poisoned, reused from the old shard, or fetched."""
    poison = {position: (reason, detail) for position, reason, detail in task.poison}
    wanted = wanted_images(rows)
    position = rows["position"].to_numpy()
    known: dict[int, CheckedImage] = {
        row: CheckedImage(None, "", Verdict(*poison[int(position[row])]))
        for row in range(len(rows))
        if int(position[row]) in poison
    }
    checker = ImageChecker(stores, image_policy(task.dataset), task.dataset.images.decode_timeout_s)
    old = OldShard.open(stores, layout, task.old, task.policy) if task.old is not None else None
    if old is not None:
        known.update((row, checked) for row, checked in old.rejects(rows) if row not in known)
    ask = [row for row in range(len(rows)) if row not in known and not (old and old.holds(rows, row))]
    fetched = checker.check([wanted[row] for row in ask])
    asked = set(ask)
    for row in range(len(rows)):
        if row in known:
            yield row, known[row]
            continue
        checked = None if row in asked or old is None else old.take(rows, row, wanted[row], checker)
        if checked is None:
            checked = next(fetched) if row in asked else next(checker.check([wanted[row]]))
            tally.count(checked)
            _give_up_early(task, tally, checked)
        yield row, checked


def _give_up_early(task: PackTask, tally: _Tally, checked: CheckedImage) -> None:
    if checked.outage is not None and task.dataset.images.on_fetch_failure == "fail":
        raise _UnpublishedError(str(checked.outage))
    if tally.fetches == EARLY_FETCHES and tally.denied > EARLY_FETCHES // 2 and not task.publish_denied:
        assert tally.first_denial is not None
        raise tally.first_denial


def _require_publishable(task: PackTask, tally: _Tally) -> None:
    if tally.fetches and tally.outages == tally.fetches:
        raise _UnpublishedError(str(tally.first_outage))
    if tally.fetches and tally.denied == tally.fetches and not task.publish_denied:
        raise _UnpublishedError(str(tally.first_denial))


def _settle(shard: _Shard, row: int, checked: CheckedImage) -> None:
    """Writes a row, or notes why it is not in the shard."""
    verdict = checked.verdict
    rows = shard.rows
    if verdict.reason is not None or checked.data is None:
        shard.rejected.append(
            RejectedRow(
                rows["position"][row].as_py(),
                rows["image_key"][row].as_py(),
                rows["s3_image_path"][row].as_py(),
                shard.task.sources[rows["source"][row].as_py()],
                rows["line"][row].as_py(),
                verdict.reason or "fetch_failed",
                verdict.detail,
            )
        )
    elif bucket_of(verdict.width_px, verdict.height_px) != shard.task.shard.bucket:
        shard.moved.append(
            MovedRow(
                rows["position"][row].as_py(),
                rows["image_key"][row].as_py(),
                rows["s3_image_path"][row].as_py(),
                verdict.width_px,
                verdict.height_px,
            )
        )
    else:
        shard.add(row, checked.data, checked.sha256, verdict)


def wanted_images(rows: pa.Table) -> list[WantedImage]:
    """Returns what is to be fetched for each row, in order."""
    columns = (rows[name].to_pylist() for name in _WANTED)
    return [WantedImage(*values) for values in zip(*columns, strict=True)]


_WANTED = ("s3_image_path", "estimated_bytes", "expected_bytes", "expected_sha256", "expected_md5")


def _binary_array(images: list[memoryview | bytes]) -> pa.Array:
    """Returns one Arrow binary array; its bytes are copied once, its offsets are built directly."""
    offsets = np.zeros(len(images) + 1, np.int32)
    np.cumsum([len(image) for image in images], out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(images), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(images))]
    )


def _limit_memory(memory_bytes: int) -> None:
    """Makes an allocation without end fail in this process instead of taking the machine."""
    if memory_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, hard))
