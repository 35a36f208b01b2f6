"""One shard: planned rows to bytes, verdicts, a Parquet object, its facts and its receipt. Runs in a task.

The order of durability is object, facts, receipt. All three have fixed names and, for the same rows, the same bytes:
a repeat, a retry or a second worker changes nothing. Memory: look-ahead, one row group, one decode.
"""

import contextlib
import resource
from collections.abc import Generator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import GenerationLayout, Layout
from dataset_packaging.core.receipts import ShardReceipt, encode_receipt
from dataset_packaging.core.schema import IMAGE_COLUMN, MAIN_SCHEMA
from dataset_packaging.core.shard_plan import PlannedShard
from dataset_packaging.errors import AccessDenied, NoGrant, TransientStoreError
from dataset_packaging.imaging.verify import Verdict
from dataset_packaging.io.parquet import open_hashing_sink, shard_writer, write_table
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.decoder import CheckedImage
from dataset_packaging.packing.fetch import ImageChecker, checker_of
from dataset_packaging.packing.index_schema import DECODED_COLUMNS
from dataset_packaging.packing.planned_rows import WANTED_COLUMNS, read_planned_rows, wanted_images
from dataset_packaging.packing.reuse import OldShard
from dataset_packaging.packing.shard_contents import ShardContents
from dataset_packaging.packing.work_meter import shared_meter

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
        retry_reasons: for which rows that the old version rejected are tried again.
        poison: reason and detail of rows whose decode is known to kill a worker, by position.
        is_early: whether the run has completed fewer than EARLY_FETCHES fetches.
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
    retry_reasons: frozenset[str] = frozenset()
    poison: tuple[tuple[int, str, str], ...] = ()
    is_early: bool = False
    publish_denied: bool = False
    memory_bytes: int = 0

    @property
    def place(self) -> tuple[str, int]:
        """Bucket key and number of the shard."""
        return self.shard.bucket.key, self.shard.number


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
        denial: what the store said to the first of them.
        problem: why it is not published, else empty.
        all_denied: not published because every fetch was denied.
        seconds: of the worker; shards that it packed side by side share them.
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
    denial: str = ""
    problem: str = ""
    all_denied: bool = False
    seconds: float = 0.0


class _UnpublishedError(Exception):
    """Leaves the sink's block so that nothing appears."""


def pack_shard(task: PackTask) -> PackOutcome:
    """Packs one shard and writes its receipt; the outcome says so, or why the shard is left unpublished.

    Raises IndexDamaged where the index does not hold what the plan says, DecoderStuck where a decode hangs (the
    process must be given up), MemoryError where a decoder finds no memory, AccessDenied where the store denies most of
    what the run asks first.
    """
    _limit_memory(task.memory_bytes)
    stores = shared_stores(StorageConfig.of(task.dataset))
    meter = shared_meter()
    meter.begin()
    tally = _Tally()
    try:
        rows = read_shard_rows(stores, task)
        receipt = _write_shard(task, stores, rows, tally)
    except _UnpublishedError as reason:
        outcome = PackOutcome(
            task.shard.bucket,
            task.shard.number,
            False,
            problem=str(reason),
            all_denied=tally.fetches > 0 and tally.denied == tally.fetches,
        )
    else:
        outcome = PackOutcome(
            task.shard.bucket,
            task.shard.number,
            True,
            receipt.packed_rows,
            receipt.image_bytes,
            receipt.reject_counts,
            len(receipt.moved),
            receipt.row_groups,
        )
    finally:
        seconds = meter.end()
    return replace(
        outcome,
        fetches=tally.fetches,
        denied=tally.denied,
        denial=str(tally.first_denial or ""),
        seconds=seconds,
    )


def read_shard_rows(stores: Stores, task: PackTask) -> pa.Table:
    """Returns the live rows of the shard, by position, with the columns that packing needs.

    Raises IndexDamaged where they are not the planned ones.
    """
    main = [name for name in MAIN_SCHEMA.names if name != IMAGE_COLUMN and name not in DECODED_COLUMNS]
    wanted = ["shard", "position", "source", "line", *(name for name in WANTED_COLUMNS if name not in main), *main]
    return read_planned_rows(stores, task.generation, task.shard, wanted)


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


def _write_shard(task: PackTask, stores: Stores, rows: pa.Table, tally: _Tally) -> ShardReceipt:
    dataset = task.dataset
    bucket, number = task.shard.bucket, task.shard.number
    layout = Layout(dataset.output_prefix, dataset.sidecar_prefix, dataset.work_prefix)
    old = OldShard.open(stores, layout, task.old, task.policy) if task.old is not None else None
    # Left by an exception, the writer ends its file in the sink, and the sink throws it away.
    with (
        open_hashing_sink(stores, layout.shard_uri(bucket, number)) as hashing,
        shard_writer(pa.PythonFile(hashing, mode="w"), MAIN_SCHEMA, IMAGE_COLUMN) as writer,
        contextlib.closing(_checked_rows(task, rows, old, checker_of(dataset), tally)) as checked_rows,
    ):
        contents = ShardContents(rows, bucket, task.sources, dataset.packing.row_group_bytes, writer)
        for row, checked in checked_rows:
            contents.add(row, checked)
        _require_publishable(task, tally)
        contents.flush()
    facts = contents.facts()
    receipt = ShardReceipt(
        dataset.name,
        bucket.key,
        number,
        task.fingerprint,
        hashing.stored(),
        write_table(stores, layout.facts_uri(bucket, number), facts),
        len(rows),
        len(facts),
        contents.image_bytes,
        contents.row_groups,
        task.policy,
        task.generation.number,
        tuple(contents.rejected),
        tuple(contents.moved),
    )
    stores.put(layout.receipt_uri(bucket, number), encode_receipt(receipt))
    return receipt


def _checked_rows(
    task: PackTask, rows: pa.Table, old: OldShard | None, checker: ImageChecker, tally: _Tally
) -> Generator[tuple[int, CheckedImage], None, None]:
    """Yields every live row with its fate, in plan order: poisoned, reused from the old shard, or fetched."""
    poison = {position: (reason, detail) for position, reason, detail in task.poison}
    wanted = wanted_images(rows)
    known: dict[int, CheckedImage] = {
        row: CheckedImage(None, "", Verdict(*poison[position]))
        for row, position in enumerate(rows["position"].to_pylist())
        if position in poison
    }
    if old is not None:
        known.update((row, checked) for row, checked in old.rejects(rows, task.retry_reasons) if row not in known)
    ask = [row for row in range(len(rows)) if row not in known and not (old and old.holds(rows, row))]
    asked = set(ask)
    with contextlib.closing(checker.check([wanted[row] for row in ask])) as fetched:
        for row in range(len(rows)):
            if row in known:
                yield row, known[row]
                continue
            checked = None if row in asked or old is None else old.take(rows, row, wanted[row], checker)
            if checked is None:
                checked = next(fetched if row in asked else checker.check([wanted[row]]))
                tally.count(checked)
                _give_up_early(task, tally, checked)
            yield row, checked


def _give_up_early(task: PackTask, tally: _Tally, checked: CheckedImage) -> None:
    if checked.outage is not None and task.dataset.images.on_fetch_failure == "fail":
        raise _UnpublishedError(str(checked.outage))
    if task.is_early and tally.fetches == EARLY_FETCHES and tally.denied > EARLY_FETCHES // 2:
        assert tally.first_denial is not None
        raise tally.first_denial


def _require_publishable(task: PackTask, tally: _Tally) -> None:
    if tally.fetches and tally.outages == tally.fetches:
        raise _UnpublishedError(str(tally.first_outage))
    if tally.fetches and tally.denied == tally.fetches and not task.publish_denied:
        raise _UnpublishedError(str(tally.first_denial))


def _limit_memory(memory_bytes: int) -> None:
    """Makes an allocation without end fail in this process instead of taking the machine."""
    if memory_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, hard))
