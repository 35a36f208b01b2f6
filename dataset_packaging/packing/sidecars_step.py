"""The sidecars step: writes what is missing or stale beside durable shards. No image is read."""

from collections import Counter
from collections.abc import Sequence

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.crops import CropCounts
from dataset_packaging.core.layout import MergeLayout
from dataset_packaging.core.merging import MergedColumn
from dataset_packaging.errors import MergeSourceUnusable
from dataset_packaging.packing.executor import map_surviving
from dataset_packaging.packing.generation import Published
from dataset_packaging.packing.ledger_step import read_statuses
from dataset_packaging.packing.merge_keyed import KeyedMerge, KeyedSummary
from dataset_packaging.packing.merge_sidecar import MergeInput
from dataset_packaging.packing.reports import (
    BucketSidecars,
    MergedCounts,
    MergeSourceReport,
    RunOptions,
    SidecarsReport,
    StageClock,
)
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.sidecars import SidecarTask, write_sidecar
from dataset_packaging.packing.status import (
    BucketStatus,
    ShardState,
    SidecarState,
    shard_number,
    sidecars_content,
)

FULL_TASK_ROWS = 4_000
"""A task of a few tenths of a second; smaller shards share one."""


def write_sidecars(run: Run, keys: Sequence[str], options: RunOptions) -> SidecarsReport:
    """Writes the sidecars of the given buckets; one whose main shard is not durable is refused and reported.

    Raises MergeSourceUnusable where a source of `sidecar.merge` is missing, MergeConflict where its keys repeat.
    """
    clock = StageClock("sidecars", "shards", run.progress)
    buckets = [Bucket.parse(key) for key in keys]
    failures: dict[tuple[str, int], str] = {}
    written: Counter[str] = Counter()
    with run.lease():
        current = run.require_current()
        if problem := run.sidecar_sources.problem():
            raise MergeSourceUnusable(problem)
        due = [
            (shard, sidecar)
            for status in run.status.read(current.shards, buckets, restamp=True)
            for shard, sidecar in zip(status.shards, status.sidecars, strict=True)
            if shard.receipt is not None and not shard.problem and (sidecar.problem or options.rebuild)
        ]
        keyed = KeyedMerge(run.dataset, run.stores, run.layout, current, run.sidecar_sources)
        tasks = _plan_tasks(run, current, keyed, due, clock) if due else []
        rows = 0
        for done, result in enumerate(map_surviving(run.executor, write_sidecar, tasks, _weigh) if tasks else (), 1):
            run.require_lease()
            place = (result.item.shard.bucket.key, result.item.shard.number)
            if result.failure is not None:
                failures[place] = str(result.failure.error or f"{result.failure.class_name}: {result.failure.message}")
            else:
                rows += result.require_value().rows
                written[place[0]] += 1
            clock.report("writing sidecars", done, len(tasks), rows, 0)
        everything = {status.bucket: status for status in read_statuses(run, current)}
        _remove_surplus(run, list(everything.values()))
        report = {bucket.key: _bucket_report(everything[bucket], written[bucket.key], failures) for bucket in buckets}
        return SidecarsReport(report, clock.seconds, _source_reports(run, keyed))


def _weigh(task: SidecarTask) -> float:
    return 0.02 + task.receipt.packed_rows / FULL_TASK_ROWS


def _remove_surplus(run: Run, statuses: Sequence[BucketStatus]) -> None:
    """Removes the sidecars that the plan does not have, once all that it has are durable."""
    if any(state.problem for status in statuses for state in status.sidecars):
        return
    for status in statuses:
        for uri in status.surplus_sidecars:
            run.require_lease()
            number = shard_number(uri.rpartition("/")[2])
            assert number is not None
            run.stores.delete(run.layout.sidecar_receipt_uri(status.bucket, number))
            run.stores.delete(uri)


def _plan_tasks(
    run: Run,
    current: Published,
    keyed: KeyedMerge,
    due: Sequence[tuple[ShardState, SidecarState]],
    clock: StageClock,
) -> list[SidecarTask]:
    """Sorts the keyed merge sources, where there are any, and returns the sidecars to write."""
    sorted_sources: dict[int, tuple[MergeLayout, KeyedSummary]] = {}
    for order, merge in enumerate(run.dataset.sidecar.merge):
        if merge.source is not None:
            summary = keyed.sort(order, run.executor, lambda note, done, total: clock.report(note, done, total, 0, 0))
            sorted_sources[order] = (keyed.target(order), summary)
    keyed.delete_superseded()
    bases = dict(keyed.shard_bases())
    tasks = []
    for state, sidecar in due:
        shard = state.shard
        inputs = []
        for order, version in enumerate(run.sidecar_sources.versions(shard.bucket, shard.number).merges):
            source = " ".join(run.dataset.sidecar.merge[order].locations)
            if order not in sorted_sources:
                inputs.append(MergeInput(version, source))
                continue
            target, summary = sorted_sources[order]
            ordinal = bases[shard.bucket] + shard.number
            inputs.append(MergeInput(version, source, target, summary.part_of(ordinal), ordinal))
        assert state.receipt is not None
        tasks.append(SidecarTask(run.dataset, current.layout, shard, state.receipt, sidecar.fingerprint, tuple(inputs)))
    return tasks


def _source_reports(run: Run, keyed: KeyedMerge) -> tuple[MergeSourceReport, ...]:
    summaries = [
        keyed.read_summary(number) for number, merge in enumerate(run.dataset.sidecar.merge) if merge.source is not None
    ]
    return tuple(
        MergeSourceReport(s.source, s.rows, s.bad_lines, s.null_keys, s.unknown_keys, s.repeated_rows)
        for s in summaries
        if s is not None
    )


def _bucket_report(status: BucketStatus, written: int, failures: dict[tuple[str, int], str]) -> BucketSidecars:
    nulls: Counter[str] = Counter()
    crops: dict[int, CropCounts] = {}
    merged: dict[str, MergedCounts] = {}
    problems: list[str] = []
    rows = 0
    for state in status.sidecars:
        if state.problem:
            problems.append(
                f"shard {state.shard.number}: " + failures.get((status.bucket.key, state.shard.number), state.problem)
            )
        elif state.receipt is not None:
            rows += state.receipt.rows
            nulls.update(state.receipt.null_counts)
            for column in state.receipt.merged:
                merged[column.column] = _added(merged.get(column.column), column)
            for counts in state.receipt.crops:
                before = crops.get(counts.size, CropCounts(counts.size))
                crops[counts.size] = before.added(counts)
    blocked = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
    return BucketSidecars(
        rows,
        len(status.sidecars),
        written,
        dict(nulls),
        blocked or None,
        merged,
        tuple(crops.values()),
        sidecars_content(status),
    )


def _added(counts: MergedCounts | None, column: MergedColumn) -> MergedCounts:
    before = counts or MergedCounts((), 0, 0, 0, 0)
    return MergedCounts(
        tuple(dict.fromkeys((*before.sources, column.source))),
        before.matched + column.matched,
        before.unmatched + column.unmatched,
        before.taken + column.taken,
        before.bad_values + column.bad_values,
    )
