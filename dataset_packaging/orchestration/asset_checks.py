"""The checks of a dataset: their specifications, and their verdicts for each bucket.

What is checked, and how, is the pipeline's: every check reads again what landed. Here it becomes Dagster's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from dataset_packaging.core.invariants import CheckName, Finding
from dataset_packaging.orchestration.bucket_events import WrittenVersion, build_evaluation
from dataset_packaging.orchestration.metadata import describe_finding, describe_findings


@dataclass(frozen=True, slots=True)
class CheckKind:
    """One check: what it promises, and what its failure stops.

    Attributes:
        name: For the UI.
        promise: One sentence.
        covers: The invariants whose findings make it fail.
        blocking: Whether what comes after waits for it: the bucket's own sidecar where it looks at buckets, else
            everything.
        by_bucket: Whether it has a verdict for each bucket, or one for the dataset.
    """

    name: str
    promise: str
    covers: tuple[CheckName, ...]
    blocking: bool = True
    by_bucket: bool = True


MANIFEST_CHECKS: tuple[CheckKind, ...] = (
    CheckKind(
        "rows_conserved",
        "Every line of the manifest is planned, rejected, a duplicate or pending.",
        ("rows_conserved",),
        by_bucket=False,
    ),
    CheckKind("unique_keys", "No image_key is planned twice.", ("unique_keys",), by_bucket=False),
)
SHARD_CHECKS: tuple[CheckKind, ...] = (
    CheckKind("schema", "Every shard has the declared schema, and zstd in every column.", ("schema",)),
    CheckKind(
        "bucket_membership", "Every row's true size belongs to the bucket that it is in.", ("bucket_membership",)
    ),
    CheckKind(
        "rows_conserved",
        "Every planned shard is there, is the object of its receipt, and has all rows that the receipt says it has.",
        ("rows_conserved", "shard_state"),
    ),
    CheckKind(
        "contiguous_shards",
        "Shards are numbered from 000000 without a gap, and nothing else is in the folder.",
        ("contiguous_shards", "foreign_files"),
    ),
)
REJECT_FRACTION = CheckKind(
    "reject_fraction",
    "Rejected rows of the whole dataset stay below images.max_rejected_fraction.",
    ("reject_fraction",),
    blocking=False,
    by_bucket=False,
)
LEDGER_BALANCE = CheckKind(
    "ledger_balance",
    "rows = packed + rejected + duplicates + pending, for the dataset and for every bucket.",
    ("ledger_balance",),
    by_bucket=False,
)
SIDECAR_CHECKS: tuple[CheckKind, ...] = (
    CheckKind(
        "column_names",
        "First-level names and types are the declared ones, and those of the reference.",
        ("column_names",),
    ),
    CheckKind(
        "row_alignment", "Row i of the sidecar describes row i of its shard.", ("row_alignment", "sidecar_state")
    ),
    CheckKind("meta_info_json", "meta_info of every row is one JSON object for a strict parser.", ("meta_info_json",)),
)
RESIZED_CHECKS: tuple[CheckKind, ...] = (
    CheckKind(
        "row_alignment",
        "Row i of the resized set is row i of its shard, with its geometry; an image, or why there is none.",
        ("resized_rows", "resized_state"),
    ),
)

BucketFindings = Mapping[str, Mapping[CheckName, Sequence[Finding]]]


def build_check_specs(
    asset_key: dg.AssetKey, kinds: Iterable[CheckKind], partitions: dg.PartitionsDefinition | None
) -> list[dg.AssetCheckSpec]:
    """Build the specifications of an asset's checks; pure.

    Args:
        asset_key: What is checked.
        kinds: The checks.
        partitions: The asset's partitions, which checks by bucket share.
    """
    return [
        dg.AssetCheckSpec(
            kind.name,
            asset=asset_key,
            description=kind.promise,
            blocking=kind.blocking,
            partitions_def=partitions if kind.by_bucket else None,
        )
        for kind in kinds
    ]


def failed_buckets(kinds: Iterable[CheckKind], found: BucketFindings) -> dict[str, str]:
    """Return why a bucket must not be used further, by bucket: failed check and first finding; pure."""
    reasons: dict[str, str] = {}
    for kind in kinds:
        for key, findings in found.items():
            covered = _covered(kind, findings)
            if covered:
                reasons.setdefault(key, f"check {kind.name} failed: {describe_finding(covered[0])}")
    return reasons


def bucket_evaluations(
    asset_key: dg.AssetKey,
    kinds: Iterable[CheckKind],
    found: BucketFindings,
    bucket_keys: Sequence[str],
    targets: Mapping[str | None, WrittenVersion],
) -> Iterator[dg.AssetCheckEvaluation]:
    """Build one evaluation for each check and bucket, failed ones last: the last one sets the badge in the UI; pure."""
    for kind in kinds:
        verdicts = {key: _covered(kind, found.get(key, {})) for key in bucket_keys}
        for key in sorted(bucket_keys, key=lambda key: bool(verdicts[key])):
            yield build_evaluation(
                dg.AssetCheckKey(asset_key, kind.name),
                key,
                passed=not verdicts[key],
                description=summarize(kind, verdicts[key]),
                metadata=describe_findings(key, verdicts[key]),
                target=targets.get(key),
            )


def dataset_evaluation(
    asset_key: dg.AssetKey, kind: CheckKind, findings: Sequence[Finding], numbers: Mapping[str, dg.MetadataValue]
) -> dg.AssetCheckEvaluation:
    """Build the one evaluation of a check that looks at the whole dataset; pure."""
    return build_evaluation(
        dg.AssetCheckKey(asset_key, kind.name),
        None,
        passed=not findings,
        description=summarize(kind, findings),
        metadata={**describe_findings(None, findings), **numbers},
        target=None,
    )


def manifest_results(asset_key: dg.AssetKey, findings: Sequence[Finding]) -> Iterator[dg.AssetCheckResult]:
    """Build the results of the manifest's checks; pure."""
    for kind in MANIFEST_CHECKS:
        covered = [finding for finding in findings if finding.check in kind.covers]
        yield dg.AssetCheckResult(
            asset_key=asset_key,
            check_name=kind.name,
            passed=not covered,
            description=summarize(kind, covered),
            metadata=describe_findings(None, covered),
        )


def manifest_evaluations(
    asset_key: dg.AssetKey, findings: Sequence[Finding], target: WrittenVersion | None
) -> Iterator[dg.AssetCheckEvaluation]:
    """Build the verdicts of the manifest's checks where another step than its own publishes a generation; pure."""
    for result in manifest_results(asset_key, findings):
        yield build_evaluation(
            dg.AssetCheckKey(asset_key, result.check_name or ""),
            None,
            passed=result.passed,
            description=result.description or "",
            metadata=result.metadata,
            target=target,
        )


def summarize(kind: CheckKind, findings: Sequence[Finding]) -> str:
    """Return what a check has to say in one line: its promise where it holds, else the first finding; pure."""
    if not findings:
        return kind.promise
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{describe_finding(findings[0])}{more}"


def _covered(kind: CheckKind, findings: Mapping[CheckName, Sequence[Finding]]) -> list[Finding]:
    return [finding for name in kind.covers for finding in findings.get(name, ())]
