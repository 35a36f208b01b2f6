"""The shards step: what is not durable is packed, crashed workers are looked into, the ledger is derived."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.ledger import RETRIED_REASONS
from dataset_packaging.errors import AccessDenied, DecoderStuck, TransientStoreError
from dataset_packaging.packing.executor import (
    MAX_LOST_NODES,
    MAX_LOST_WORKERS,
    TaskFailure,
    TaskResult,
    map_surviving,
)
from dataset_packaging.packing.fingerprints import policy_fingerprint
from dataset_packaging.packing.generation import Published, Tombstones
from dataset_packaging.packing.isolate import isolate_rows
from dataset_packaging.packing.ledger_step import live_rejects, read_statuses, waiting_moves, write_derived
from dataset_packaging.packing.pack_shard import EARLY_FETCHES, PackOutcome, PackTask, pack_shard
from dataset_packaging.packing.reports import BucketShards, RunOptions, ShardsReport, StageClock
from dataset_packaging.packing.retry_step import retry_rejected
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import BucketStatus, ShardState, shard_number, shards_content

COST_PER_SHARD_PX = 2_000_000
"""What a shard costs beside its pixels, so that the largest tasks go first and the tail is short."""


PAIR_BYTES = 16 << 20
"""What two shards may hold that are packed side by side; where shards are larger, a task has one.

Beside a shard of 20 MiB a second one took a third more memory.
"""

FULL_TASK_PX = 150_000_000
"""A task of about half a second; smaller shards share one, each with its own receipt."""

TASKS_PER_SLOT = 8
"""At the least, where there are so many shards, so that no slot is idle for long at the end."""


@dataclass(slots=True)
class _Tally:
    """What this run has done so far; places are (bucket key, shard number)."""

    outcomes: dict[tuple[str, int], PackOutcome] = field(default_factory=dict)
    problems: dict[tuple[str, int], str] = field(default_factory=dict)
    rows: int = 0
    bytes: int = 0
    fetches: int = 0
    denied: int = 0
    outages_in_a_row: int = 0


def pack_buckets(run: Run, keys: Sequence[str], options: RunOptions) -> ShardsReport:
    """Packs every planned shard of the buckets that is not durable yet, retries transient rejects, writes the ledger.

    Shards that fail are listed as problems. Raises StoreError where the store is down or denies everything.
    """
    clock = StageClock("shards", "shards", run.progress)
    buckets = [Bucket.parse(key) for key in keys]
    with run.lease():
        current = run.require_current()
        statuses = run.status.read(current.shards, buckets, restamp=True)
        retried = frozenset(options.retry_rejected) | RETRIED_REASONS
        if not options.rebuild:
            retry_rejected(run, current, statuses, retried)
        due = [state for status in statuses for state in status.shards if state.problem or options.rebuild]
        tally = _Tally()
        if due:
            _pack(run, _plan_tasks(run, current, due, retried, reuse=not options.rebuild), tally, clock)
        everything = {status.bucket: status for status in _without_surplus(run, read_statuses(run, current))}
        write_derived(run, current, list(everything.values()))
        tombstones = run.tombstones(current)
        report = {bucket.key: _bucket_report(everything[bucket], tombstones, tally) for bucket in buckets}
    return ShardsReport(report, clock.seconds)


def _pack(run: Run, tasks: list[PackTask], tally: _Tally, clock: StageClock) -> None:
    """Runs the tasks in rounds: all; then those that lost their worker, with the culprits named; and so on."""
    all_tasks = {task.place: task for task in tasks}
    attempts: Counter[tuple[str, int]] = Counter()
    lost: Counter[tuple[str, int]] = Counter()
    while tasks:
        crashed: list[PackTask] = []
        again: list[PackTask] = []
        for result in run.executor.map(pack_shard, _early(tasks, tally), weigh=_weigher(tasks, run.executor.slots)):
            run.require_lease()
            task = result.item
            if result.failure is None:
                _count(run, result.require_value(), tally)
            elif result.failure.kind == "node_lost" and lost[task.place] < MAX_LOST_NODES:
                lost[task.place] += 1
                again.append(task)
            elif _lost_worker(result.failure) and attempts[task.place] < MAX_LOST_WORKERS:
                attempts[task.place] += 1
                crashed.append(task)
            else:
                _note_failure(run, result, tally)
            done = len(tally.outcomes.keys() | tally.problems.keys())
            clock.report("packing", done, len(all_tasks), tally.rows, tally.bytes, run.executor.slots)
        tasks = again + _without_culprits(run, crashed, tally)
        if not tasks:
            tasks = _denied_after_all(run, all_tasks, tally)


def _plan_tasks(
    run: Run, current: Published, due: Sequence[ShardState], retried: frozenset[str], *, reuse: bool
) -> list[PackTask]:
    """Returns a task per shard, the largest first."""
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
            None if state.damaged or not reuse else state.receipt,
            retried,
            memory_bytes=run.executor.worker_memory_bytes,
        )
        for state in due
    ]
    return sorted(tasks, key=_cost_px, reverse=True)


def _cost_px(task: PackTask) -> int:
    return task.shard.estimated_px + COST_PER_SHARD_PX


def _weigher(tasks: Sequence[PackTask], slots: int) -> Callable[[PackTask], float]:
    """Returns how shards are put together in tasks.

    No task is too small to be worth its call nor too large for the tail, and two shards that are packed side by side
    hold at most about PAIR_BYTES between them.
    """
    full_px = max(1, min(FULL_TASK_PX, sum(map(_cost_px, tasks)) // (TASKS_PER_SLOT * slots)))

    def weigh(task: PackTask) -> float:
        held = 2 * task.shard.estimated_bytes / PAIR_BYTES
        return max(_cost_px(task) / full_px, held if held >= 1 else 0.0)

    return weigh


def _early(tasks: Sequence[PackTask], tally: _Tally) -> Iterator[PackTask]:
    """Yields the tasks; those that are given out before enough was fetched look out for a run that is denied."""
    for task in tasks:
        yield replace(task, is_early=tally.fetches < EARLY_FETCHES and not task.publish_denied)


def _lost_worker(failure: TaskFailure) -> bool:
    return failure.kind in ("worker_died", "out_of_memory") or isinstance(failure.error, DecoderStuck)


def _count(run: Run, outcome: PackOutcome, tally: _Tally) -> None:
    place = (outcome.bucket.key, outcome.number)
    tally.outcomes[place] = outcome
    tally.problems.pop(place, None)
    tally.rows += outcome.packed_rows
    tally.bytes += outcome.image_bytes
    is_early = tally.fetches < EARLY_FETCHES
    tally.fetches += outcome.fetches
    tally.denied += outcome.denied
    if is_early and tally.fetches >= EARLY_FETCHES and 2 * tally.denied > tally.fetches:
        raise AccessDenied(
            run.dataset.name,
            f"{tally.denied} of the first {tally.fetches} images are denied, the last because of: {outcome.denial}",
        )
    if outcome.published:
        tally.outages_in_a_row = 0
        return
    tally.problems[place] = outcome.problem
    if not outcome.all_denied:
        _count_outage(run, outcome.problem, tally)


def _count_outage(run: Run, problem: str, tally: _Tally) -> None:
    tally.outages_in_a_row += 1
    if tally.outages_in_a_row > 2 * run.executor.slots + 2:
        raise TransientStoreError(
            run.dataset.output_prefix,
            f"{tally.outages_in_a_row} shards in a row could not be packed, the last because of: {problem}; no image "
            "was rejected for it: run again when the store is back",
        )


def _note_failure(run: Run, result: TaskResult[PackTask, PackOutcome], tally: _Tally) -> None:
    failure = result.failure
    assert failure is not None
    if isinstance(failure.error, AccessDenied):
        raise failure.error
    if failure.error is None and failure.kind == "raised":
        result.require_value()
    tally.problems[result.item.place] = str(failure.error or f"{failure.class_name}: {failure.message}")
    if isinstance(failure.error, TransientStoreError):
        _count_outage(run, str(failure.error), tally)


def _without_culprits(run: Run, crashed: list[PackTask], tally: _Tally) -> list[PackTask]:
    """Returns the crashed tasks with the rows that kill a decoder named; without one they are tried as they were."""
    found: list[PackTask] = []
    for result in map_surviving(run.executor, isolate_rows, crashed):
        if result.failure is None:
            found.append(replace(result.item, poison=result.require_value().poison))
        else:
            tally.problems[result.item.place] = f"{result.failure.class_name}: {result.failure.message}"
    return found


def _denied_after_all(run: Run, all_tasks: dict[tuple[str, int], PackTask], tally: _Tally) -> list[PackTask]:
    """Returns the shards of which every fetch was denied, to be published with their rejects, once anything is open.

    Raises AccessDenied where nothing at all could be read: then it is not the images' fault.
    """
    denied = {place: outcome for place, outcome in tally.outcomes.items() if outcome.all_denied}
    if denied and tally.denied == tally.fetches:
        first = next(iter(denied.values()))
        raise AccessDenied(run.dataset.name, f"every image that was asked for is denied: {first.problem}")
    return [replace(all_tasks[place], publish_denied=True) for place in denied]


def _without_surplus(run: Run, statuses: Sequence[BucketStatus]) -> list[BucketStatus]:
    """Removes the main shards that the plan does not have, once all that it has are durable; returns what is left.

    Receipt and facts go first: a shard without them is looked at again by the next run.
    """
    if any(state.problem for status in statuses for state in status.shards):
        return list(statuses)
    left: list[BucketStatus] = []
    for status in statuses:
        for uri in status.surplus:
            run.require_lease()
            number = shard_number(uri.rpartition("/")[2])
            assert number is not None
            run.stores.delete(run.layout.receipt_uri(status.bucket, number))
            run.stores.delete(run.layout.facts_uri(status.bucket, number))
            run.stores.delete(uri)
        planned = tuple(state.shard.number for state in status.shards)
        left.append(replace(status, surplus=(), numbers=planned) if status.surplus else status)
    return left


def _bucket_report(status: BucketStatus, tombstones: Tombstones, tally: _Tally) -> BucketShards:
    key = status.bucket.key
    done = [receipt for _, receipt in status.done]
    mine = [outcome for (bucket, _), outcome in tally.outcomes.items() if bucket == key and outcome.published]
    return BucketShards(
        sum(receipt.packed_rows for receipt in done),
        sum(receipt.image_bytes for receipt in done),
        len(status.shards),
        len(mine),
        dict(Counter(row.reason for row in live_rejects(status, tombstones))),
        sum(waiting_moves(status.bucket, receipt.number, receipt.moved, tombstones) for receipt in done),
        sum(state.shard.live_rows for state in status.shards if state.problem),
        sum(receipt.row_groups for receipt in done),
        sum(outcome.seconds for outcome in mine),
        tuple(
            f"shard {state.shard.number}: " + tally.problems.get((key, state.shard.number), state.problem)
            for state in status.shards
            if state.problem
        ),
        shards_content(status),
    )
