"""The step that makes sets of resized images of durable shards, and what `verify` says about them."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.invariants import Finding
from dataset_packaging.packing.executor import map_surviving
from dataset_packaging.packing.ledger_step import read_statuses
from dataset_packaging.packing.reports import BucketResized, ResizedReport, RunOptions, StageClock
from dataset_packaging.packing.resize_shard import ResizeTask, resize_shard
from dataset_packaging.packing.resized_inspection import ResizedInspectTask, inspect_resized
from dataset_packaging.packing.resized_status import ResizedBucket, read_resized
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import BucketStatus, is_shard_key, shard_number

FULL_TASK_PX = 12 * 512 * 512
"""Of resized images: a task of about half a second; smaller shards share one."""

INSPECT_TASK_ROWS = 20_000
INSPECT_TASK_BYTES = 128 << 20


def write_resized(run: Run, size: int, keys: Sequence[str], options: RunOptions) -> ResizedReport:
    """Makes the resized images of all shards of the given buckets that have none, or others; safe to repeat.

    One whose main shard is not durable is refused and reported.
    """
    clock = StageClock("resized", "shards", run.progress)
    failures: dict[tuple[str, int], str] = {}
    written: Counter[str] = Counter()
    with run.lease():
        current = run.require_current()
        statuses = run.status.read(current.shards, [Bucket.parse(key) for key in keys], restamp=True)
        tasks = [
            ResizeTask(run.dataset, size, state.shard.receipt, state.fingerprint)
            for bucket in read_resized(run, size, statuses, restamp=True)
            for state in bucket.states
            if state.shard.receipt is not None and not state.shard.problem and (state.problem or options.rebuild)
        ]
        rows = image_bytes = 0
        for done, result in enumerate(map_surviving(run.executor, resize_shard, tasks, _weigh) if tasks else (), 1):
            run.require_lease()
            place = result.item.receipt.bucket, result.item.receipt.number
            if result.failure is not None:
                failures[place] = str(result.failure.error or f"{result.failure.class_name}: {result.failure.message}")
            else:
                receipt = result.require_value()
                rows, image_bytes = rows + receipt.rows, image_bytes + receipt.image_bytes
                written[place[0]] += 1
            clock.report(f"resizing to {size}", done, len(tasks), rows, image_bytes)
        everything = {bucket.bucket.key: bucket for bucket in read_resized(run, size, read_statuses(run, current))}
        _remove_surplus(run, size, everything.values())
        report = {key: _bucket_report(everything[key], written[key], failures) for key in keys}
        return ResizedReport(size, report, clock.seconds)


def _weigh(task: ResizeTask) -> float:
    return 0.02 + task.receipt.packed_rows * task.size**2 / FULL_TASK_PX


def _remove_surplus(run: Run, size: int, buckets: Iterable[ResizedBucket]) -> None:
    """Removes the files that the plan does not have, once all that it has are durable."""
    found = list(buckets)
    if any(state.problem for bucket in found for state in bucket.states):
        return
    for bucket in found:
        for uri in bucket.surplus:
            run.require_lease()
            number = shard_number(uri.rpartition("/")[2])
            assert number is not None
            run.stores.delete(run.resized_layout(size).receipt_uri(bucket.bucket, number))
            run.stores.delete(uri)


def _bucket_report(bucket: ResizedBucket, written: int, failures: dict[tuple[str, int], str]) -> BucketResized:
    problems = [
        f"shard {number}: {failures.get((bucket.bucket.key, number), state.problem)}"
        for state in bucket.states
        if state.problem
        for number in (state.shard.shard.number,)
    ]
    receipts = [state.receipt for state in bucket.states if state.receipt is not None and not state.problem]
    reasons = Counter(reason for receipt in receipts for _, reason in receipt.failed)
    digest = hashlib.sha256("\n".join(receipt.object.sha256 for receipt in receipts).encode()).hexdigest()
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return BucketResized(
        sum(receipt.rows for receipt in receipts),
        sum(receipt.image_bytes for receipt in receipts),
        len(bucket.states),
        written,
        dict(reasons),
        "; ".join(problems[:3]) + more if problems else None,
        digest,
    )


def find_resized_problems(run: Run, statuses: Sequence[BucketStatus]) -> list[str]:
    """Returns why resized images must be made, or files removed; empty where every set is whole."""
    buckets = [bucket for size in run.dataset.resized for bucket in read_resized(run, size, statuses)]
    return [
        problem
        for bucket in buckets
        for problem in (*(state.problem for state in bucket.states), *bucket.surplus, *bucket.foreign)
        if problem
    ]


def check_resized(
    run: Run, statuses: Sequence[BucketStatus], sizes: Sequence[int], clock: StageClock, *, deep: bool
) -> list[Finding]:
    """Checks that the sets of these sizes are whole, row-aligned with their shards, and hold nothing else."""
    findings: list[Finding] = []
    for size in sizes:
        buckets = read_resized(run, size, statuses)
        for bucket in buckets:
            findings += _check_states(size, bucket)
        tasks = [
            ResizedInspectTask(run.dataset, size, state.shard.receipt, state.receipt, deep)
            for bucket in buckets
            for state in bucket.states
            if state.present
            and state.receipt is not None
            and state.shard.receipt is not None
            and not state.shard.problem
        ]
        results = map_surviving(run.executor, inspect_resized, tasks, _weigh_inspection) if tasks else ()
        rows = 0
        found: list[Finding] = []
        for done, result in enumerate(results, 1):
            found += result.require_value()
            rows += result.item.main.packed_rows
            clock.report(f"verifying the images of {size}", done, len(tasks), rows, 0)
        findings += sorted(found, key=lambda finding: (Bucket.parse(finding.bucket or "").index, finding.shard or 0))
    return findings


def find_foreign_resized(run: Run) -> list[Finding]:
    """Returns what stands below the prefix of resized images and is no shard of a set that the dataset names."""
    prefix = f"{run.dataset.resized_prefix}/"
    sizes = tuple(f"{prefix}{size}/" for size in run.dataset.resized)
    if not sizes:
        return []
    return [
        Finding("foreign_files", None, None, f"{info.uri} is no shard of a resized set")
        for info in run.stores.list(prefix)
        if not any(info.uri.startswith(root) and is_shard_key(info.uri.removeprefix(root)) for root in sizes)
    ]


def _check_states(size: int, bucket: ResizedBucket) -> list[Finding]:
    key = bucket.bucket.key
    findings = [
        Finding("resized_state", key, state.shard.shard.number, f"resized {size}: {state.problem}; run pack again")
        for state in bucket.states
        if state.problem and not state.shard.problem
    ]
    return findings + [
        Finding("resized_state", key, None, f"resized {size}: {uri} is not in the plan; run pack again")
        for uri in bucket.surplus
    ]


def _weigh_inspection(task: ResizedInspectTask) -> float:
    size_bytes = task.receipt.image_bytes if task.deep else 0
    return 0.02 + task.receipt.rows / INSPECT_TASK_ROWS + size_bytes / INSPECT_TASK_BYTES
