"""The step of a set of resized images: makes those of the run's buckets, then checks each."""

from collections.abc import Generator, Mapping, Sequence

import dagster as dg

from dataset_packaging.orchestration.asset_checks import (
    RESIZED_CHECKS,
    SHARD_CHECKS,
    bucket_evaluations,
    failed_buckets,
)
from dataset_packaging.orchestration.bucket_events import (
    finish_asset,
    finish_checks,
    read_failed_checks,
    read_latest,
    version_tags,
)
from dataset_packaging.orchestration.failures import buckets_failed, failures_explained
from dataset_packaging.orchestration.metadata import describe_bucket_resized
from dataset_packaging.orchestration.step import Step, StepEvent, StepEvents
from dataset_packaging.orchestration.versions import resized_version
from dataset_packaging.packing.reports import BucketResized

_NO_IMAGES = BucketResized(0, 0, 0, 0, {}, None)


def write_resized(step: Step, size: int) -> StepEvents:
    """Make the resized images of the run's buckets, then check each. Repeating it makes only what is missing or stale.

    Buckets whose shards are not whole, or failed a check when they were last looked at, get none; the step makes all
    others and then fails.

    Raises:
        Failure: buckets are blocked or failed a check, or the store or the workers failed.
    """
    bucket_keys = list(step.context.partition_keys)
    blocked = find_blocked(step, bucket_keys)
    unpublished, bad = yield from resized_events(step, size, [key for key in bucket_keys if key not in blocked])
    if blocked or unpublished or bad:
        raise buckets_failed(unpublished, {**blocked, **bad}, len(bucket_keys), "resized images")
    yield from finish_checks(step.context)
    yield finish_asset(step.keys.resized(size))


def resized_events(
    step: Step, size: int, bucket_keys: Sequence[str]
) -> Generator[StepEvent, None, tuple[dict[str, str], dict[str, str]]]:
    """Make and check the resized images of buckets; returns why some are not there, and why some must not be used."""
    key = step.keys.resized(size)
    with failures_explained():
        report = step.pipeline.write_resized(size, bucket_keys, step.options)
    step.finish(report)
    unpublished = {name: bucket.blocked for name, bucket in report.buckets.items() if bucket.blocked}
    made = [name for name in bucket_keys if name not in unpublished]
    yield from _materializations(step, size, made, report.buckets)
    with failures_explained():
        found = step.pipeline.check_resized(size, made)
    bad = failed_buckets(RESIZED_CHECKS, found)
    targets = read_latest(step.context.instance, key, made)
    yield from bucket_evaluations(key, RESIZED_CHECKS, found, made, targets)
    return unpublished, bad


def _materializations(
    step: Step, size: int, bucket_keys: Sequence[str], buckets: Mapping[str, BucketResized]
) -> StepEvents:
    shards = read_latest(step.context.instance, step.keys.shards, bucket_keys)
    for name in bucket_keys:
        bucket = buckets.get(name, _NO_IMAGES)
        yield dg.AssetMaterialization(
            step.keys.resized(size),
            partition=name,
            metadata=describe_bucket_resized(bucket, f"{step.dataset.resized_prefix}/{size}/{name}"),
            tags=version_tags(step.code_version, resized_version(bucket), {step.keys.shards: shards.get(name)}),
        )


def find_blocked(step: Step, bucket_keys: Sequence[str]) -> dict[str, str]:
    """Read which buckets must not be used, because their shards failed a check when they were last looked at."""
    checks = [dg.AssetCheckKey(step.keys.shards, kind.name) for kind in SHARD_CHECKS]
    failed = read_failed_checks(step.context.instance, checks, bucket_keys)
    return {key: f"its shards failed {', '.join(names)}: materialise them again" for key, names in failed.items()}
