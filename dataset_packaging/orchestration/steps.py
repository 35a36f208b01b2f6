"""What the three steps of a run do: call the pipeline, then say bucket by bucket what came out."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace

import dagster as dg

from dataset_packaging.core.invariants import Finding
from dataset_packaging.errors import PackagingError
from dataset_packaging.orchestration.asset_checks import (
    LEDGER_BALANCE,
    REJECT_FRACTION,
    SHARD_CHECKS,
    SIDECAR_CHECKS,
    bucket_evaluations,
    dataset_evaluation,
    failed_buckets,
    manifest_evaluations,
    manifest_results,
)
from dataset_packaging.orchestration.bucket_events import (
    finish_asset,
    finish_checks,
    read_latest,
    runs_later,
    version_tags,
)
from dataset_packaging.orchestration.failures import buckets_failed, failures_explained
from dataset_packaging.orchestration.keys import BUCKET_KEYS
from dataset_packaging.orchestration.metadata import (
    describe_bucket_shards,
    describe_bucket_sidecars,
    describe_finding,
    describe_manifest,
    describe_requests,
    finite_float,
)
from dataset_packaging.orchestration.resized_step import find_blocked, resized_events
from dataset_packaging.orchestration.step import Step, StepEvent, StepEvents
from dataset_packaging.orchestration.versions import manifest_version, shards_version, sidecars_version
from dataset_packaging.packing.pipeline import MAX_ROUNDS
from dataset_packaging.packing.reports import (
    BucketShards,
    BucketSidecars,
    ManifestReport,
    ShardsReport,
)

_NO_SHARDS = BucketShards(0, 0, 0, 0, {}, 0, 0, 0, 0.0, ())
_NO_SIDECARS = BucketSidecars(0, 0, 0, {}, None)


def build_manifest(step: Step) -> StepEvents:
    """Publish a generation, then check it. Repeating it is safe: an unchanged manifest keeps its generation.

    Raises:
        Failure: the manifest, its store or the workers failed; the message says how.
    """
    with failures_explained():
        report = step.pipeline.build_manifest(step.options)
        findings = step.pipeline.check_manifest()
    step.finish(report)
    yield dg.MaterializeResult(
        asset_key=step.keys.manifest,
        metadata={**describe_manifest(report), **describe_requests(step.pipeline.counts())},
        data_version=dg.DataVersion(manifest_version(report)),
    )
    yield from manifest_results(step.keys.manifest, findings)


def write_shards(step: Step) -> StepEvents:
    """Write the shards of the run's buckets, then check each. Repeating it writes only what is missing or damaged.

    A bucket is marked as materialised only when all its shards are published. Where some are not, or a check fails, the
    step fails at its end, so that it is what a retry repeats; since no later step runs then, the resized images and the
    sidecars of all whole buckets are written here, if the run was to write them.

    Raises:
        Failure: buckets are not whole, rows are unaccounted for, or the store or the workers failed.
    """
    bucket_keys = list(step.context.partition_keys)
    with failures_explained():
        report = step.pipeline.pack_buckets(bucket_keys, step.options)
    report = yield from _place_moved_rows(step, bucket_keys, report)
    step.finish(report)
    unpublished = _unpublished(report.buckets)
    whole = [key for key in bucket_keys if key not in unpublished]
    yield from _shard_materializations(step, whole, report, _contact_sheets(step, whole, report))

    with failures_explained():
        found = step.pipeline.check_shards(bucket_keys)
        unbalanced = step.pipeline.check_ledger()
    bad = failed_buckets(SHARD_CHECKS, found)
    targets = read_latest(step.context.instance, step.keys.shards, bucket_keys)
    yield from bucket_evaluations(step.keys.shards, SHARD_CHECKS, found, bucket_keys, targets)
    yield from _dataset_evaluations(step, unbalanced)

    if unbalanced:
        raise dg.Failure(
            f"rows are lost or counted twice, nothing may be used: {describe_finding(unbalanced[0])}",
            allow_retries=False,
        )
    if bad or unpublished:
        good = [key for key in whole if key not in bad]
        for size in step.dataset.resized:
            if runs_later(step.context, step.keys.resized(size)):
                yield from resized_events(step, size, good)
        if runs_later(step.context, step.keys.sidecars):
            blocked, bad_sidecars = yield from _sidecar_events(step, good)
            unpublished, bad = {**unpublished, **blocked}, {**bad, **bad_sidecars}
        raise buckets_failed(unpublished, bad, len(bucket_keys))
    yield from finish_checks(step.context)
    yield finish_asset(step.keys.shards)


def write_sidecars(step: Step) -> StepEvents:
    """Write the sidecars of the run's buckets, then check each. Reads no image.

    Buckets whose shards are not whole, or failed a check when they were last looked at, get none; the step writes all
    others and then fails.

    Raises:
        Failure: buckets are blocked or failed a check, or the store failed.
    """
    bucket_keys = list(step.context.partition_keys)
    blocked = find_blocked(step, bucket_keys)
    good = [key for key in bucket_keys if key not in blocked]
    unpublished, bad = yield from _sidecar_events(step, good)
    if blocked or unpublished or bad:
        raise buckets_failed(unpublished, {**blocked, **bad}, len(bucket_keys))
    yield from finish_checks(step.context)
    yield finish_asset(step.keys.sidecars)


def _place_moved_rows(
    step: Step, bucket_keys: Sequence[str], report: ShardsReport
) -> Generator[StepEvent, None, ShardsReport]:
    whole_dataset = len(bucket_keys) == len(BUCKET_KEYS)
    options = replace(step.options, rewrite=False, rebuild=False)
    for _ in range(MAX_ROUNDS):
        with failures_explained():
            if not step.pipeline.needs_another_round():
                break
            if not whole_dataset:
                step.context.log.info(
                    "Rows wait whose true size belongs to another bucket: materialise all partitions to place them."
                )
                break
            step.context.log.info("Rows turned out to belong to other buckets: planning them into new shards there.")
            manifest = step.pipeline.build_manifest(options)
            findings = step.pipeline.check_manifest()
        yield from _manifest_events(step, manifest, findings)
        with failures_explained():
            report = report.followed_by(step.pipeline.pack_buckets(bucket_keys, options))
    return report


def _manifest_events(step: Step, report: ManifestReport, findings: Sequence[Finding]) -> StepEvents:
    keys, instance = step.keys, step.context.instance
    source = read_latest(instance, keys.source).get(None)
    tags = version_tags(step.code_version, manifest_version(report), {keys.source: source})
    yield dg.AssetMaterialization(keys.manifest, metadata=describe_manifest(report), tags=tags)
    yield from manifest_evaluations(keys.manifest, findings, read_latest(instance, keys.manifest).get(None))
    if findings:
        raise dg.Failure(
            f"the new plan is not sound, nothing of it is packed: {describe_finding(findings[0])}", allow_retries=False
        )


def _contact_sheets(step: Step, bucket_keys: Sequence[str], report: ShardsReport) -> dict[str, bytes]:
    filled = [key for key in bucket_keys if key in report.buckets and report.buckets[key].rows]
    changed = {key for key in filled if report.buckets[key].shards_written}
    try:
        return step.pipeline.draw_contact_sheets(filled, changed)
    except PackagingError as error:
        step.context.log.warning(f"There are no contact sheets this time: {error}")
        return {}


def _shard_materializations(
    step: Step, bucket_keys: Iterable[str], report: ShardsReport, sheets: Mapping[str, bytes]
) -> StepEvents:
    manifest = read_latest(step.context.instance, step.keys.manifest).get(None)
    fetched = [bucket for bucket in report.buckets.values() if bucket.shards_written]
    images = sum(bucket.rows + sum(bucket.rejects.values()) for bucket in fetched)
    requests = describe_requests(step.pipeline.counts(), images)
    for key in bucket_keys:
        bucket = report.buckets.get(key, _NO_SHARDS)
        told = describe_bucket_shards(bucket, f"{step.dataset.output_prefix}/{key}", sheets.get(key))
        yield dg.AssetMaterialization(
            step.keys.shards,
            partition=key,
            metadata={**told, **requests},
            tags=version_tags(step.code_version, shards_version(bucket), {step.keys.manifest: manifest}),
        )


def _sidecar_events(
    step: Step, bucket_keys: Sequence[str]
) -> Generator[StepEvent, None, tuple[dict[str, str], dict[str, str]]]:
    with failures_explained():
        report = step.pipeline.write_sidecars(bucket_keys, step.options)
    step.finish(report)
    unpublished = {key: bucket.blocked for key, bucket in report.buckets.items() if bucket.blocked}
    written = [key for key in bucket_keys if key not in unpublished]
    yield from _sidecar_materializations(step, written, report.buckets)
    with failures_explained():
        found = step.pipeline.check_sidecars(written)
    bad = failed_buckets(SIDECAR_CHECKS, found)
    targets = read_latest(step.context.instance, step.keys.sidecars, written)
    yield from bucket_evaluations(step.keys.sidecars, SIDECAR_CHECKS, found, written, targets)
    return unpublished, bad


def _sidecar_materializations(
    step: Step, bucket_keys: Sequence[str], buckets: Mapping[str, BucketSidecars]
) -> StepEvents:
    shards = read_latest(step.context.instance, step.keys.shards, bucket_keys)
    previews = _sidecar_previews(step, [key for key in bucket_keys if key in buckets and buckets[key].rows])
    for key in bucket_keys:
        bucket, version = buckets.get(key, _NO_SIDECARS), shards.get(key)
        uri = f"{step.dataset.sidecar_prefix}/{key}"
        yield dg.AssetMaterialization(
            step.keys.sidecars,
            partition=key,
            metadata=describe_bucket_sidecars(bucket, uri, previews.get(key, [])),
            tags=version_tags(step.code_version, sidecars_version(bucket), {step.keys.shards: version}),
        )


def _sidecar_previews(step: Step, bucket_keys: Sequence[str]) -> dict[str, list[dict[str, str]]]:
    try:
        return step.pipeline.read_sidecar_previews(bucket_keys)
    except PackagingError as error:
        step.context.log.warning(f"There are no previews this time: {error}")
        return {}


def _dataset_evaluations(step: Step, unbalanced: Sequence[Finding]) -> StepEvents:
    with failures_explained():
        ledger = step.pipeline.ledger()
        exceeded = step.pipeline.check_reject_fraction()
    total = ledger.total
    fraction = {
        "reject fraction": finite_float(ledger.rejected_fraction),
        "limit": finite_float(step.dataset.images.max_rejected_fraction),
    }
    balance = {
        "rows": dg.MetadataValue.int(total.rows),
        "packed": dg.MetadataValue.int(total.packed),
        "rejected": dg.MetadataValue.int(total.rejected_rows),
        "duplicates": dg.MetadataValue.int(total.duplicates),
        "pending": dg.MetadataValue.int(total.pending),
        **describe_requests(step.pipeline.counts()),
    }
    yield dataset_evaluation(step.keys.shards, REJECT_FRACTION, exceeded, fraction)
    yield dataset_evaluation(step.keys.shards, LEDGER_BALANCE, unbalanced, balance)


def _unpublished(buckets: Mapping[str, BucketShards]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for key, bucket in buckets.items():
        if bucket.problems:
            reasons[key] = bucket.problems[0]
        elif bucket.pending:
            reasons[key] = f"{bucket.pending} rows are pending"
    return reasons
