"""Checks over a whole dataset: shard states, contents, balance. Reads what landed, writes nothing."""

from collections.abc import Iterable, Sequence

from dataset_packaging.core.bucketing import BUCKETS, Bucket
from dataset_packaging.core.invariants import (
    RESIZED_CHECKS,
    CheckName,
    Finding,
    find_gaps,
    find_imbalance,
    find_reject_excess,
)
from dataset_packaging.errors import IndexDamaged, NotFound, ObjectDamaged
from dataset_packaging.io.parquet import read_row_count
from dataset_packaging.packing.executor import map_surviving
from dataset_packaging.packing.generation import Published
from dataset_packaging.packing.inspection import InspectTask, inspect_shard
from dataset_packaging.packing.ledger_step import derive_files, read_ledger, read_statuses, stale_files
from dataset_packaging.packing.ownership import find_ownership_faults
from dataset_packaging.packing.recovery import read_standing
from dataset_packaging.packing.reference import find_reference_faults
from dataset_packaging.packing.reports import StageClock, VerifyReport
from dataset_packaging.packing.resize_step import check_resized, find_foreign_resized
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import BucketStatus, is_shard_key

FULL_TASK_ROWS = 20_000
FULL_TASK_BYTES = 128 << 20
"""Rows looked at, or image bytes hashed, by a task of some tenths of a second; smaller shards share one."""


def verify_dataset(run: Run, *, deep: bool) -> VerifyReport:
    """Checks everything that landed against plan, receipts and contract; every finding names bucket and shard.

    Where the plan itself cannot be read, the findings say so, and shards are not looked at.
    """
    clock = StageClock("verify", "shards", run.progress)
    standing = read_standing(run)
    if standing.readable is None and not standing.damage:
        run.require_current()
    reference_findings = check_reference(run)
    findings = [*find_ownership_faults(run), *standing.damage, *_foreign_files(run), *find_foreign_resized(run)]
    if standing.readable is None:
        return VerifyReport((*findings, *reference_findings), 0, 0, 0, clock.seconds)
    current = standing.readable
    findings += check_manifest(run, current) if not standing.damaged_uris else []
    findings += reference_findings
    statuses = read_statuses(run, current)
    for status in statuses:
        findings += check_states(status, main=True, side=True)
    found, shards, rows, size = inspect_buckets(run, statuses, clock, main=True, side=True, deep=deep)
    findings += found
    findings += check_resized(run, statuses, run.dataset.resized, clock, deep=deep)
    try:
        findings += _check_derived(run, current, statuses)
    except IndexDamaged:
        if not standing.damaged_uris:  # else it is named already
            raise
    return VerifyReport(tuple(findings), shards, rows, size, clock.seconds)


def _check_derived(run: Run, current: Published, statuses: Sequence[BucketStatus]) -> list[Finding]:
    """Checks the balance, and that ledger and reject lists tell it. Raises IndexDamaged where it cannot be counted.

    What tells of a shard that is to be rebuilt, which is a finding already, is right again when that is done.
    """
    ledger = read_ledger(run, current, statuses)
    stale, surplus = stale_files(run, derive_files(run, current, statuses, ledger))
    broken = [status.bucket for status in statuses if any(state.problem for state in status.shards)]
    awaited = {run.layout.rejects_uri(bucket) for bucket in broken}
    if broken:
        awaited |= {run.layout.ledger_uri, run.layout.ledger_summary_uri}
    findings = [
        Finding("work_files", None, None, f"{uri} is not what the receipts say; run pack again: it is derived anew")
        for uri in (*stale, *surplus)
        if uri not in awaited
    ]
    findings += find_imbalance(ledger)
    return findings + find_reject_excess(ledger, run.dataset.images.max_rejected_fraction)


def check_manifest(run: Run, current: Published) -> list[Finding]:
    """Checks that every line has a place or a reason, and that no key is planned twice."""
    summary = current.summary
    findings: list[Finding] = []

    def count(uri: str, bucket: Bucket | None) -> int | None:
        try:
            return read_row_count(run.stores, uri)
        except (NotFound, ObjectDamaged) as error:
            detail = f"{error}; run pack again: it is rebuilt"
            findings.append(Finding("rows_conserved", bucket.key if bucket else None, None, detail))
            return None

    listed = count(current.layout.rejects_uri, None)
    placed = 0
    for bucket in current.buckets:
        rows = count(current.layout.index_uri(bucket), bucket)
        planned = sum(shard.live_rows for shard in current.of_bucket(bucket))
        if rows is None:
            continue
        placed += rows
        if rows != planned:
            detail = f"{rows} rows in the index, {planned} in the plan; run pack again"
            findings.append(Finding("rows_conserved", bucket.key, None, detail))
        keys = count(current.layout.placement_uri(bucket), bucket)
        if keys is not None and keys != rows:
            findings.append(Finding("unique_keys", bucket.key, None, f"{keys} keys for {rows} rows of the index"))
    if not findings and placed + (listed or 0) + summary.pending != summary.rows:
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


def check_states(status: BucketStatus, *, main: bool, side: bool) -> list[Finding]:
    """Checks that each planned shard (and sidecar) is durable and whole, numbered without a gap, and alone. Pure."""
    key = status.bucket.key
    findings: list[Finding] = []
    if main:
        findings += [
            Finding("shard_state", key, state.shard.number, f"{state.problem}; run pack again")
            for state in status.shards
            if state.problem
        ]
        findings += [Finding("contiguous_shards", key, None, gap) for gap in find_gaps(status.numbers)]
        findings += [
            Finding("foreign_files", key, None, f"{uri} is not in the plan; run pack again")
            for uri in (*status.surplus, *status.surplus_sidecars)
        ]
        findings += [Finding("foreign_files", key, None, f"{uri} is no shard") for uri in status.foreign]
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
        InspectTask(
            run.dataset,
            state.receipt,
            None if sidecar.problem else sidecar.receipt,
            main,
            side and sidecar.present,
            deep,
        )
        for status in statuses
        for state, sidecar in zip(status.shards, status.sidecars, strict=True)
        if state.receipt is not None and not state.problem
    ]
    findings: list[Finding] = []
    rows = size = 0
    for done, result in enumerate(map_surviving(run.executor, inspect_shard, tasks, _weigh) if tasks else (), 1):
        inspection = result.require_value()
        findings += inspection.findings
        rows += inspection.rows
        size += inspection.bytes
        clock.report("verifying", done, len(tasks), rows, size)
    order = {bucket.key: number for number, bucket in enumerate(BUCKETS)}
    findings.sort(key=lambda finding: (order.get(finding.bucket or "", -1), finding.shard or 0))
    return findings, len(tasks), rows, size


def _weigh(task: InspectTask) -> float:
    size_bytes = task.receipt.image_bytes if task.deep else 0
    return 0.02 + task.receipt.packed_rows / FULL_TASK_ROWS + size_bytes / FULL_TASK_BYTES


def check_buckets(
    run: Run, keys: Sequence[str], checks: Sequence[CheckName]
) -> dict[str, dict[CheckName, list[Finding]]]:
    """Runs the checks of shards or sidecars on the given buckets; every bucket has an entry for every check."""
    current = run.require_current()
    statuses = run.status.read(current.shards, [Bucket.parse(key) for key in keys])
    main = "schema" in checks
    side = "column_names" in checks
    clock = StageClock("verify", "shards", run.progress)
    findings = [finding for status in statuses for finding in check_states(status, main=main, side=side)]
    findings += inspect_buckets(run, statuses, clock, main=main, side=side, deep=False)[0]
    if side:
        findings += [finding for key in keys for finding in check_reference(run, key)]
    result: dict[str, dict[CheckName, list[Finding]]] = {key: {check: [] for check in checks} for key in keys}
    for finding in findings:
        if finding.bucket in result and finding.check in result[finding.bucket]:
            result[finding.bucket][finding.check].append(finding)
    return result


def check_resized_buckets(run: Run, size: int, keys: Sequence[str]) -> dict[str, dict[CheckName, list[Finding]]]:
    """Runs the checks of one resized set on the given buckets; every bucket has an entry for every check."""
    statuses = run.status.read(run.require_current().shards, [Bucket.parse(key) for key in keys])
    clock = StageClock("verify", "shards", run.progress)
    findings = check_resized(run, statuses, (size,), clock, deep=False)
    return {
        key: {check: [f for f in findings if (f.bucket, f.check) == (key, check)] for check in RESIZED_CHECKS}
        for key in keys
    }


def _foreign_files(run: Run) -> list[Finding]:
    """Returns files below the prefixes that are no shards of any bucket."""
    return [
        Finding("foreign_files", None, None, f"{info.uri} is no shard of any bucket")
        for prefix in (run.dataset.output_prefix, run.dataset.sidecar_prefix)
        for info in run.stores.list(f"{prefix}/")
        if not is_shard_key(info.uri.removeprefix(f"{prefix}/"))
    ]
