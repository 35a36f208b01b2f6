"""Dagster events for single buckets of a run over many.

Dagster's own results speak for a whole run: one `MaterializeResult` marks every partition of the run's range as
written, one `AssetCheckResult` leaves a single evaluation without a partition. What happened to each bucket is said
here. The only module that builds on names of Dagster that are not public, which a test guards.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    NULL_EVENT_POINTER,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

Metadata = Mapping[str, dg.MetadataValue]

_UNKNOWN_VERSION = "INITIAL"


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """One materialisation as later events refer to it. `data_version` is None where it has none."""

    storage_id: int
    run_id: str
    timestamp: float
    data_version: str | None


def read_latest(
    instance: dg.DagsterInstance, asset_key: dg.AssetKey, bucket_keys: Iterable[str] | None = None
) -> dict[str | None, WrittenVersion]:
    """Read the latest materialisation of each of the buckets, or of an asset without partitions (key None).

    Two queries, whatever the number of buckets; a bucket that was never written is left out.
    """
    if bucket_keys is None:
        records = instance.fetch_materializations(asset_key, limit=1).records
        return {None: _written_version(records[0])} if records else {}
    latest = instance.event_log_storage.get_latest_storage_id_by_partition(
        asset_key, dg.DagsterEventType.ASSET_MATERIALIZATION, set(bucket_keys)
    )
    if not latest:
        return {}
    chosen = dg.AssetRecordsFilter(asset_key, storage_ids=list(latest.values()))
    records = instance.fetch_materializations(chosen, limit=len(latest)).records
    return {record.partition_key: _written_version(record) for record in records}


def version_tags(
    code_version: str, data_version: str, inputs: Mapping[dg.AssetKey, WrittenVersion | None]
) -> dict[str, str]:
    """Return the tags from which Dagster tells whether a materialisation is out of date; pure.

    Args:
        code_version: Of the asset, as in its definition.
        data_version: Fingerprint of what was written.
        inputs: What was read, by asset; None where it was never materialised.
    """
    tags = {
        CODE_VERSION_TAG: code_version,
        DATA_VERSION_TAG: data_version,
        DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
    }
    for key, version in inputs.items():
        known = version.data_version if version else None
        tags[get_input_data_version_tag(key)] = known or _UNKNOWN_VERSION
        tags[get_input_event_pointer_tag(key)] = str(version.storage_id) if version else NULL_EVENT_POINTER
    return tags


def build_evaluation(
    check: dg.AssetCheckKey,
    bucket_key: str | None,
    *,
    passed: bool,
    description: str,
    metadata: Metadata,
    target: WrittenVersion | None,
) -> dg.AssetCheckEvaluation:
    """Build the verdict of one check on one bucket, or on the whole dataset (`bucket_key` None); pure.

    The event itself never blocks: the step that yields it fails by itself, and says which buckets are the reason.
    """
    return dg.AssetCheckEvaluation(
        asset_key=check.asset_key,
        check_name=check.name,
        partition=bucket_key,
        passed=passed,
        description=description,
        metadata=metadata,
        severity=dg.AssetCheckSeverity.ERROR,
        blocking=False,
        target_materialization_data=AssetCheckEvaluationTargetMaterializationData(
            storage_id=target.storage_id, run_id=target.run_id, timestamp=target.timestamp
        )
        if target
        else None,
    )


def finish_checks(context: dg.AssetExecutionContext) -> list[dg.Output[None]]:
    """Build the outputs that let steps go on which wait for the checks of this step; pure."""
    return [
        dg.Output(None, output_name=f"{check.asset_key.to_python_identifier()}_{check.name}")
        for check in sorted(context.selected_asset_check_keys)
    ]


def finish_asset(asset_key: dg.AssetKey) -> dg.MaterializeResult[None]:
    """Build the result that lets steps go on which wait for this asset, and records nothing: its buckets are; pure."""
    return dg.MaterializeResult(asset_key=asset_key, metadata={SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True})


def runs_later(context: dg.AssetExecutionContext, asset_key: dg.AssetKey) -> bool:
    """Tell whether this run is going to write the asset as well; pure."""
    layer = context.job_def.asset_layer
    if asset_key not in layer.selected_asset_keys:
        return False
    steps = context.run.step_keys_to_execute
    return steps is None or str(layer.get_op_output_handle(asset_key).node_handle) in steps


def read_failed_checks(
    instance: dg.DagsterInstance, checks: Iterable[dg.AssetCheckKey], bucket_keys: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Read which buckets failed a check when it was last evaluated.

    Returns:
        Names of the failed checks by bucket; a bucket that failed none is left out.
    """
    infos = instance.event_log_storage.get_asset_check_partition_info(list(checks), partition_keys=list(bucket_keys))
    failed: dict[str, tuple[str, ...]] = {}
    for info in infos:
        if info.latest_execution_status == AssetCheckExecutionRecordStatus.FAILED and info.partition_key is not None:
            failed[info.partition_key] = (*failed.get(info.partition_key, ()), info.check_key.name)
    return failed


def _written_version(record: dg.EventLogRecord) -> WrittenVersion:
    materialization = record.asset_materialization
    tags = (materialization.tags if materialization else None) or {}
    return WrittenVersion(record.storage_id, record.run_id, record.timestamp, tags.get(DATA_VERSION_TAG))
