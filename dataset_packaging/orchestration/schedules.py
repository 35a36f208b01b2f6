"""When a dataset is packed by itself: at the ticks of a schedule, or when its manifest changes."""

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster_aws.s3 import S3Resource

from dataset_packaging.config import DatasetConfig, ScheduleConfig
from dataset_packaging.orchestration.keys import DATASET_TAG, WHOLE_DATASET_TAGS, DatasetKeys
from dataset_packaging.orchestration.resources import apply_s3_resource
from dataset_packaging.orchestration.sources import read_source_version
from dataset_packaging.packing.executor import Executor, SerialExecutor
from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging.packing.reports import SilentProgress

SENSOR_INTERVAL_S = 60

_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def build_schedule(
    dataset: DatasetConfig, schedule: ScheduleConfig, job: UnresolvedAssetJobDefinition
) -> dg.ScheduleDefinition:
    """Build the schedule that packs the whole dataset in one run at each tick, unless nothing is to be done; pure.

    A tick that is evaluated twice makes one run: its time is the run's key. Times are those of the schedule's zone, so
    that 02:00 stays 02:00 when clocks change.
    """
    keys = DatasetKeys(dataset.name)

    @dg.schedule(
        name=f"{keys.job}_schedule",
        job=job,
        cron_schedule=schedule.cron,
        execution_timezone=schedule.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Packs all of {dataset.name} in one run; skips while it is unchanged and nothing is pending.",
    )
    def tick(context: dg.ScheduleEvaluationContext, s3: S3Resource) -> dg.RunRequest | dg.SkipReason:
        reason = _run_under_way(context.instance, dataset) or _up_to_date(dataset, s3)
        if reason is not None:
            return dg.SkipReason(reason)
        when = context.scheduled_execution_time.isoformat()
        return dg.RunRequest(run_key=f"{keys.job}@{when}", tags=whole_dataset_tags(dataset))

    return tick


def build_change_sensor(dataset: DatasetConfig, job: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """Build the sensor that packs the whole dataset when objects of its manifest come, go or change; pure.

    Its cursor is the state for which a run was last started. While a run of the dataset is under way it waits.
    """
    keys = DatasetKeys(dataset.name)

    @dg.sensor(
        name=f"{keys.job}_on_change",
        job=job,
        minimum_interval_seconds=SENSOR_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Packs all of {dataset.name} in one run when the objects of its manifest change.",
    )
    def look(context: dg.SensorEvaluationContext, s3: S3Resource) -> dg.SensorResult | dg.SkipReason:
        seen = _Cursor.parse(context.cursor)
        source = read_source_version(apply_s3_resource(dataset, s3))
        if source.digest == seen.digest:
            return dg.SkipReason(f"the {source.file_count} objects of the manifest are unchanged")
        under_way = _run_under_way(context.instance, dataset)
        if under_way is not None:
            return dg.SkipReason(under_way)
        cursor = _Cursor(source.digest, seen.change_count + 1).dump()
        up_to_date = _up_to_date(dataset, s3)
        if up_to_date is not None:
            return dg.SensorResult(skip_reason=up_to_date, cursor=cursor)
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_key=f"{keys.job}#{cursor}", tags=whole_dataset_tags(dataset))],
            cursor=cursor,
            asset_events=[
                dg.AssetObservation(keys.source, metadata={"files": source.file_count, "bytes": source.size_bytes})
            ],
        )

    return look


def whole_dataset_tags(dataset: DatasetConfig) -> dict[str, str]:
    """Return the tags of a run over all buckets of the dataset; pure."""
    return {**WHOLE_DATASET_TAGS, DATASET_TAG: dataset.name}


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The state that was last acted on; the count keeps run keys apart when an older state comes back."""

    digest: str = ""
    change_count: int = 0

    @classmethod
    def parse(cls, text: str | None) -> "_Cursor":
        return cls(**json.loads(text)) if text else cls()

    def dump(self) -> str:
        return json.dumps(asdict(self))


def _run_under_way(instance: dg.DagsterInstance, dataset: DatasetConfig) -> str | None:
    chosen = dg.RunsFilter(tags={DATASET_TAG: dataset.name}, statuses=_UNDER_WAY)
    runs = instance.get_runs(filters=chosen, limit=1)
    return f"run {runs[0].run_id} of {dataset.name} is still under way" if runs else None


def _up_to_date(dataset: DatasetConfig, s3: S3Resource) -> str | None:
    """Say that a run would change nothing: all is packed, and handed off unless too much is rejected for that."""
    with Pipeline(apply_s3_resource(dataset, s3), _no_workers, SilentProgress(), run_id="") as pipeline:
        told = pipeline.is_up_to_date()
        if told is None or pipeline.read_handoff() is not None or pipeline.check_reject_fraction():
            return told
        return None


def _no_workers() -> AbstractContextManager[Executor]:
    return nullcontext(SerialExecutor())
