"""Checks over a whole dataset: shard states, contents, balance. Reads what landed, writes nothing."""

from collections.abc import Iterable, Sequence

from dataset_packaging.core.bucketing import BUCKETS, Bucket
from dataset_packaging.core.invariants import (
    CheckName,
    Finding,
    find_gaps,
    find_imbalance,
    find_reject_excess,
)
from dataset_packaging.io.parquet import open_parquet
from dataset_packaging.packing.generation import Published
from dataset_packaging.packing.inspection import InspectTask, inspect_shard
from dataset_packaging.packing.ledger_step import read_ledger
from dataset_packaging.packing.manifest_step import damaged_files
from dataset_packaging.packing.reference import find_reference_faults
from dataset_packaging.packing.reports import StageClock, VerifyReport
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import BucketStatus, is_shard_name, read_bucket_status


def verify_dataset(run: Run, *, deep: bool) -> VerifyReport:
    """Checks everything that landed against plan, receipts and contract; every finding names bucket and shard."""
    clock = StageClock("verify", "shards", run.progress)
    current = run.require_current()
    reference_findings = check_reference(run)
    findings = [
        Finding("work_files", None, None, f"{uri} is missing or damaged; run pack again: it is rebuilt")
        for uri in damaged_files(run, current)
    ]
    findings += check_manifest(run, current)
    findings += reference_findings
    buckets = list(dict.fromkeys(shard.bucket for shard in current.shards))
    statuses = [read_bucket_status(run, bucket, current.of_bucket(bucket)) for bucket in buckets]
    for status in statuses:
        findings += check_states(run, status, main=True, side=True)
    findings += _foreign_folders(run, {status.bucket for status in statuses})
    found, shards, rows, size = inspect_buckets(run, statuses, clock, main=True, side=True, deep=deep)
    findings += found
    ledger = read_ledger(run, current)
    findings += find_imbalance(ledger)
    findings += find_reject_excess(ledger, run.dataset.images.max_rejected_fraction)
    return VerifyReport(tuple(findings), shards, rows, size, clock.seconds)


def check_manifest(run: Run, current: Published) -> list[Finding]:
    """Checks that every line has a place or a reason, and that no key is planned twice."""
    summary = current.summary
    findings: list[Finding] = []
    listed = open_parquet(run.stores, current.layout.rejects_uri).metadata.num_rows
    placed = 0
    for bucket in dict.fromkeys(shard.bucket for shard in current.shards):
        rows = open_parquet(run.stores, current.layout.index_uri(bucket)).metadata.num_rows
        planned = sum(shard.live_rows for shard in current.of_bucket(bucket))
        placed += rows
        if rows != planned:
            detail = f"{rows} rows in the index, {planned} in the plan; run pack again"
            findings.append(Finding("rows_conserved", bucket.key, None, detail))
        keys = open_parquet(run.stores, current.layout.placement_uri(bucket)).metadata.num_rows
        if keys != rows:
            findings.append(Finding("unique_keys", bucket.key, None, f"{keys} keys for {rows} rows of the index"))
    if placed + listed + summary.pending != summary.rows:
        detail = (
            f"{summary.rows} rows in the manifest, but {placed} are planned, {listed} rejected or duplicate, "
            f"{summary.pending} pending"
        )
        findings.append(Finding("rows_conserved", None, None, detail))
    return findings


def check_reference(run: Run, bucket: str | None = None) -> list[Finding]:
    """Checks that the dataset's sidecar columns match its reference, if it names one.

    The sidecars that landed are held against the declared columns one by one (see `inspect_shard`), so that a fault of
    all of them is told once here.
    """
    reference = run.reference()
    if reference is None:
        return []
    return [Finding("column_names", bucket, None, fault) for fault in find_reference_faults(run.dataset, reference)]


def check_states(run: Run, status: BucketStatus, *, main: bool, side: bool) -> list[Finding]:
    """Checks that each planned shard (and sidecar) is durable and whole, numbered without a gap, and alone."""
    key = status.bucket.key
    findings: list[Finding] = []
    if main:
        findings += [
            Finding("shard_state", key, state.shard.number, f"{state.problem}; run pack again")
            for state in status.shards
            if state.problem
        ]
        present = [
            int(uri.rpartition("shard-")[2].removesuffix(".parquet"))
            for uri in (info.uri for info in run.stores.list(run.layout.shards_prefix(status.bucket)))
            if is_shard_name(uri.rpartition("/")[2])
        ]
        findings += [Finding("contiguous_shards", key, None, gap) for gap in find_gaps(present)]
        findings += [
            Finding("foreign_files", key, None, f"{uri} is not in the plan")
            for uri in (*status.surplus, *status.foreign)
        ]
    if side:
        findings += [
            Finding("sidecar_state", key, state.shard.number, f"{state.problem}; run pack again")
            for state, shard in zip(status.sidecars, status.shards, strict=True)
            if state.problem and not shard.problem
        ]
    return findings


def inspect_buckets(
    run: Run, statuses: Iterable[BucketStatus], clock: StageClock, *, main: bool, side: bool, deep: bool
) -> tuple[list[Finding], int, int, int]:
    """Looks into every durable shard; returns findings, shards, rows and hashed bytes."""
    tasks = [
        InspectTask(run.dataset, state.receipt, main, side and sidecar.present, deep)
        for status in statuses
        for state, sidecar in zip(status.shards, status.sidecars, strict=True)
        if state.receipt is not None and not state.problem
    ]
    findings: list[Finding] = []
    rows = size = 0
    for done, result in enumerate(run.executor.map(inspect_shard, tasks) if tasks else (), 1):
        inspection = result.require_value()
        findings += inspection.findings
        rows += inspection.rows
        size += inspection.bytes
        clock.report("verifying", done, len(tasks), rows, size)
    order = {bucket.key: number for number, bucket in enumerate(BUCKETS)}
    findings.sort(key=lambda finding: (order.get(finding.bucket or "", -1), finding.shard or 0))
    return findings, len(tasks), rows, size


def check_buckets(
    run: Run, keys: Sequence[str], checks: Sequence[CheckName]
) -> dict[str, dict[CheckName, list[Finding]]]:
    """Runs the checks of shards or sidecars on the given buckets; every bucket has an entry for every check."""
    current = run.require_current()
    statuses = [read_bucket_status(run, bucket, current.of_bucket(bucket)) for bucket in map(Bucket.parse, keys)]
    main = "schema" in checks
    side = "column_names" in checks
    clock = StageClock("verify", "shards", run.progress)
    findings = [finding for status in statuses for finding in check_states(run, status, main=main, side=side)]
    findings += inspect_buckets(run, statuses, clock, main=main, side=side, deep=False)[0]
    if side:
        findings += [finding for key in keys for finding in check_reference(run, key)]
    result: dict[str, dict[CheckName, list[Finding]]] = {key: {check: [] for check in checks} for key in keys}
    for finding in findings:
        if finding.bucket in result and finding.check in result[finding.bucket]:
            result[finding.bucket][finding.check].append(finding)
    return result


def _foreign_folders(run: Run, planned: set[Bucket]) -> list[Finding]:
    """Returns files below the prefixes that belong to no planned bucket."""
    known = {bucket.key for bucket in planned}
    findings = []
    for prefix in (run.dataset.output_prefix, run.dataset.sidecar_prefix):
        for info in run.stores.list(f"{prefix}/"):
            folder = info.uri.removeprefix(f"{prefix}/").rpartition("/")[0]
            if folder not in known:
                findings.append(Finding("foreign_files", None, None, f"{info.uri} belongs to no planned bucket"))
    return findings
