"""The sidecars step: writes what is missing or stale beside durable shards. No image is read."""

from collections import Counter
from collections.abc import Sequence

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.packing.reports import BucketSidecars, RunOptions, SidecarsReport, StageClock
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.sidecars import SidecarTask, write_sidecar
from dataset_packaging.packing.status import BucketStatus, read_bucket_status


def write_sidecars(run: Run, keys: Sequence[str], options: RunOptions) -> SidecarsReport:
    """Writes the sidecars of the given buckets; one whose main shard is not durable is refused and reported."""
    clock = StageClock("sidecars", "shards", run.progress)
    buckets = [Bucket.parse(key) for key in keys]
    failures: dict[tuple[str, int], str] = {}
    written: Counter[str] = Counter()
    with run.lease():
        current = run.require_current()
        tasks: list[SidecarTask] = []
        for bucket in buckets:
            run.stores.abort_uploads(run.layout.sidecars_prefix(bucket))
            status = read_bucket_status(
                run.stores, run.layout, run.dataset, bucket, current.of_bucket(bucket), restamp=True
            )
            for shard, sidecar in zip(status.shards, status.sidecars, strict=True):
                if shard.receipt is not None and not shard.problem and (sidecar.problem or options.rebuild):
                    tasks.append(
                        SidecarTask(run.dataset, current.layout, shard.shard, shard.receipt, sidecar.fingerprint)
                    )
        rows = 0
        for done, result in enumerate(run.executor.map(write_sidecar, tasks) if tasks else (), 1):
            place = (result.item.shard.bucket.key, result.item.shard.number)
            if result.failure is not None:
                failures[place] = str(result.failure.error or f"{result.failure.class_name}: {result.failure.message}")
            else:
                rows += result.require_value().rows
                written[place[0]] += 1
            clock.report("writing sidecars", done, len(tasks), rows, 0)
        report = {}
        for bucket in buckets:
            status = read_bucket_status(run.stores, run.layout, run.dataset, bucket, current.of_bucket(bucket))
            report[bucket.key] = _bucket_report(status, written[bucket.key], failures)
    return SidecarsReport(report, clock.seconds)


def _bucket_report(status: BucketStatus, written: int, failures: dict[tuple[str, int], str]) -> BucketSidecars:
    nulls: Counter[str] = Counter()
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
    blocked = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
    return BucketSidecars(rows, len(status.sidecars), written, dict(nulls), blocked or None)
