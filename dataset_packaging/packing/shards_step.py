"""The shards step: what is not durable is packed, crashed workers are looked into, reject lists are derived."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.ledger import RETRIED_REASONS
from dataset_packaging.core.receipts import RejectedRow
from dataset_packaging.errors import AccessDenied, DecoderStuck, IndexDamaged, StoreError, TransientStoreError
from dataset_packaging.io.parquet import write_table
from dataset_packaging.packing.executor import TaskFailure, TaskResult
from dataset_packaging.packing.fingerprints import policy_fingerprint
from dataset_packaging.packing.generation import Published
from dataset_packaging.packing.index_schema import REJECTS_SCHEMA, RELOCATIONS_SCHEMA
from dataset_packaging.packing.isolate import isolate_rows
from dataset_packaging.packing.manifest_step import read_retries, read_tombstones
from dataset_packaging.packing.pack_shard import PackOutcome, PackTask, pack_shard
from dataset_packaging.packing.reports import BucketShards, RetryReport, RunOptions, ShardsReport, StageClock
from dataset_packaging.packing.retry import RetryTask, retry_rows
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import BucketStatus, ShardState, read_bucket_status

MAX_ATTEMPTS = 3
"""Times that a shard may lose its worker without a row to blame."""

MAX_LOST_NODES = 10
"""Times that a shard may lose its node."""

COST_PER_SHARD_PX = 2_000_000
"""What a shard costs beside its pixels, so that the largest tasks go first and the tail is short."""


@dataclass(slots=True)
class _Tally:
    """What this run has done so far."""

    outcomes: dict[tuple[str, int], PackOutcome] = field(default_factory=dict)
    problems: dict[tuple[str, int], str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    bytes: int = 0
    fetches: int = 0
    denied: int = 0
    outages_in_a_row: int = 0


def pack_buckets(run: Run, keys: Sequence[str], options: RunOptions) -> ShardsReport:
    """Packs every planned shard of the buckets that is not durable yet, and retries transient rejects.

    Shards that fail are listed as problems. Raises StoreError where the store is down or denies everything.
    """
    clock = StageClock("shards", "shards", run.progress)
    buckets = [Bucket.parse(key) for key in keys]
    with run.lease():
        current = run.require_current()
        states: list[ShardState] = []
        statuses: list[BucketStatus] = []
        for bucket in buckets:
            run.stores.abort_uploads(run.layout.shards_prefix(bucket))
            statuses.append(read_bucket_status(run, bucket, current.of_bucket(bucket), restamp=True))
            states.extend(state for state in statuses[-1].shards if state.problem or options.rebuild)
        retry_rejected(run, current, statuses, frozenset(options.retry_rejected) | RETRIED_REASONS)
        tally = _Tally()
        if states:
            _pack(run, current, states, tally, clock)
        report = {bucket.key: _settle_bucket(run, current, bucket, tally) for bucket in buckets}
    return ShardsReport(report, clock.seconds, dict(tally.counts))


def _pack(run: Run, current: Published, states: list[ShardState], tally: _Tally, clock: StageClock) -> None:
    """Runs the tasks in rounds: all; then those that lost their worker, with the culprits named; and so on."""
    policy = policy_fingerprint(run.dataset)
    sources = tuple(source.uri for source in current.summary.sources)
    tasks = [
        PackTask(
            run.dataset,
            current.layout,
            state.shard,
            state.fingerprint,
            policy,
            sources,
            None if state.damaged else state.receipt,
        )
        for state in states
    ]
    tasks.sort(key=lambda task: -(task.shard.estimated_px + COST_PER_SHARD_PX))
    attempts: Counter[tuple[str, int]] = Counter()
    lost: Counter[tuple[str, int]] = Counter()
    total = len(tasks)
    while tasks:
        crashed: list[PackTask] = []
        again: list[PackTask] = []
        for result in run.executor.map(pack_shard, tasks):
            task = result.item
            place = (task.shard.bucket.key, task.shard.number)
            if result.failure is None:
                _count(run, result.require_value(), tally)
            elif result.failure.kind == "node_lost" and lost[place] < MAX_LOST_NODES:
                lost[place] += 1
                again.append(task)
            elif _lost_worker(result.failure) and attempts[place] < MAX_ATTEMPTS:
                attempts[place] += 1
                crashed.append(task)
            else:
                _note_failure(result, tally)
            done = len(tally.outcomes) + len(tally.problems)
            clock.report("packing", min(done, total), total, tally.rows, tally.bytes, run.executor.slots)
        tasks = again + _without_culprits(run, crashed, tally)
        tasks += _denied_after_all(tally, states, tasks, current, run, policy, sources)


def _lost_worker(failure: TaskFailure) -> bool:
    return failure.kind in ("worker_died", "out_of_memory") or isinstance(failure.error, DecoderStuck)


def _count(run: Run, outcome: PackOutcome, tally: _Tally) -> None:
    place = (outcome.bucket.key, outcome.number)
    tally.outcomes[place] = outcome
    tally.problems.pop(place, None)
    tally.counts.update(outcome.counts)
    tally.fetches += outcome.fetches
    tally.denied += outcome.denied
    tally.rows += outcome.packed_rows
    tally.bytes += outcome.image_bytes
    if outcome.published:
        tally.outages_in_a_row = 0
        return
    tally.problems[place] = outcome.problem
    if not outcome.all_denied:
        tally.outages_in_a_row += 1
        if tally.outages_in_a_row > 2 * run.executor.slots + 2:
            raise TransientStoreError(
                run.dataset.output_prefix,
                f"{tally.outages_in_a_row} shards in a row could not be packed, the last because of: "
                f"{outcome.problem}; no image was rejected for it: run again when the store is back",
            )


def _note_failure(result: TaskResult[PackTask, PackOutcome], tally: _Tally) -> None:
    failure = result.failure
    assert failure is not None
    if isinstance(failure.error, AccessDenied):
        raise failure.error
    if failure.error is None and failure.kind == "raised":
        result.require_value()
    place = (result.item.shard.bucket.key, result.item.shard.number)
    message = str(failure.error) if failure.error else f"{failure.class_name}: {failure.message}"
    tally.problems[place] = message


def _without_culprits(run: Run, crashed: list[PackTask], tally: _Tally) -> list[PackTask]:
    """Returns the crashed tasks with the rows that kill a decoder named; without one they are tried as they were."""
    found: list[PackTask] = []
    for result in run.executor.map(isolate_rows, crashed):
        if result.failure is None:
            found.append(replace(result.item, poison=result.require_value().poison))
        else:
            place = (result.item.shard.bucket.key, result.item.shard.number)
            tally.problems[place] = f"{result.failure.class_name}: {result.failure.message}"
    return found


def _denied_after_all(
    tally: _Tally,
    states: list[ShardState],
    waiting: list[PackTask],
    current: Published,
    run: Run,
    policy: str,
    sources: tuple[str, ...],
) -> list[PackTask]:
    """Returns the shards of which every fetch was denied, to be published with their rejects, once anything is open.

    Raises AccessDenied where nothing at all could be read: then it is not the images' fault.
    """
    denied = {place: outcome for place, outcome in tally.outcomes.items() if outcome.all_denied}
    if waiting or not denied:
        return []
    if tally.denied == tally.fetches:
        first = next(iter(denied.values()))
        raise AccessDenied(run.dataset.name, f"every image that was asked for is denied: {first.problem}")
    return [
        PackTask(
            run.dataset,
            current.layout,
            state.shard,
            state.fingerprint,
            policy,
            sources,
            None if state.damaged else state.receipt,
            publish_denied=True,
        )
        for state in states
        if (state.shard.bucket.key, state.shard.number) in denied
    ]


def _settle_bucket(run: Run, current: Published, bucket: Bucket, tally: _Tally) -> BucketShards:
    """Reads what landed, derives the bucket's reject list, removes surplus shards once all planned ones are durable."""
    status = read_bucket_status(run, bucket, current.of_bucket(bucket))
    tombstones = read_tombstones(run, current)
    if status.surplus and not any(state.problem for state in status.shards):
        for uri in status.surplus:
            run.stores.delete(uri)
    rejects = list(live_rejects(status, tombstones))
    _write_rejects(run, bucket, rejects)
    problems = tuple(
        f"shard {state.shard.number}: " + tally.problems.get((bucket.key, state.shard.number), state.problem)
        for state in status.shards
        if state.problem
    )
    done = [state.receipt for state in status.shards if not state.problem and state.receipt is not None]
    moved = sum(
        row.position not in tombstones.get((bucket.key, receipt.number), frozenset())
        for receipt in done
        for row in receipt.moved
    )
    mine = [outcome for (key, _), outcome in tally.outcomes.items() if key == bucket.key and outcome.published]
    return BucketShards(
        sum(receipt.packed_rows for receipt in done),
        sum(receipt.image_bytes for receipt in done),
        len(status.shards),
        len(mine),
        dict(Counter(row.reason for row in rejects)),
        moved,
        sum(state.shard.live_rows for state in status.shards if state.problem),
        sum(receipt.row_groups for receipt in done),
        sum(outcome.seconds for outcome in mine),
        problems,
    )


def live_rejects(status: BucketStatus, tombstones: dict[tuple[str, int], frozenset[int]]) -> Iterator[RejectedRow]:
    """Yields the rejected rows of durable shards that have not been given another place since."""
    for state in status.shards:
        if state.problem or state.receipt is None:
            continue
        empty = tombstones.get((status.bucket.key, state.shard.number), frozenset())
        yield from (row for row in state.receipt.rejected if row.position not in empty)


def _write_rejects(run: Run, bucket: Bucket, rejects: Iterable[RejectedRow]) -> None:
    rows = list(rejects)
    uri = run.layout.rejects_uri(bucket)
    if not rows:
        run.stores.delete(uri)
        return
    columns = {name: [getattr(row, name) for row in rows] for name in REJECTS_SCHEMA.names}
    write_table(run.stores, uri, pa.table(columns, schema=REJECTS_SCHEMA))


def retry_rejected(
    run: Run, current: Published, statuses: Sequence[BucketStatus], reasons: frozenset[str]
) -> RetryReport:
    """Fetches and verifies rejected rows anew; those that succeed get a place in the next generation.

    Their old places and receipts stay as they are. Writes `retries.parquet` once, at the end: repeating it is safe.
    """
    waiting = set(read_retries(run)["image_key"].to_pylist())
    tombstones = read_tombstones(run, current)
    tasks: list[RetryTask] = []
    for status in statuses:
        for state in status.shards:
            if state.problem or state.receipt is None:
                continue
            empty = tombstones.get((status.bucket.key, state.shard.number), frozenset())
            found = tuple(
                row.position
                for row in state.receipt.rejected
                if row.reason in reasons and row.position not in empty and row.image_key not in waiting
            )
            if found:
                tasks.append(RetryTask(run.dataset, current.layout, state.shard, found))
    if not tasks:
        return RetryReport(0, 0, {})
    failed: Counter[str] = Counter()
    tables = [read_retries(run)]
    for result in run.executor.map(retry_rows, tasks):
        if result.failure is not None:
            if isinstance(result.failure.error, (IndexDamaged, StoreError)):
                raise result.failure.error
            failed["decoder_crashed"] += len(result.item.positions)
            continue
        report = result.require_value()
        failed.update(report.failed)
        rows = [dict(zip(RELOCATIONS_SCHEMA.names, row, strict=True)) for row in report.succeeded]
        tables.append(pa.Table.from_pylist(rows, schema=RELOCATIONS_SCHEMA))
    table = pa.concat_tables(tables).sort_by("image_key")
    if len(table):
        write_table(run.stores, run.layout.retries_uri, table)
    tried = sum(len(task.positions) for task in tasks)
    return RetryReport(tried, len(table) - len(tables[0]), dict(failed))
