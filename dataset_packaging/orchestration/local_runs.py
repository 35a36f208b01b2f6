"""Runs of the packing job inside this process, recorded in the instance that the web UI shows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import dagster as dg
from dagster._core.events import RunFailureReason

from dataset_packaging.config import DatasetConfig, RuntimeConfig, load_dataset, read_runtime
from dataset_packaging.core.ledger import Ledger
from dataset_packaging.errors import ConfigError, PackagingError
from dataset_packaging.orchestration.component import build_dataset_definitions
from dataset_packaging.orchestration.definitions import build_shared_definitions
from dataset_packaging.orchestration.failures import EXIT_CODE, EXIT_FINDINGS, EXIT_INFRASTRUCTURE
from dataset_packaging.orchestration.keys import BUCKET_KEYS, DatasetKeys, range_tags, split_into_ranges
from dataset_packaging.orchestration.listeners import StepReport
from dataset_packaging.orchestration.resources import RayCluster
from dataset_packaging.orchestration.run_options import options_config
from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging.packing.reports import (
    HandoffReport,
    ManifestReport,
    Progress,
    ProgressReport,
    ResizedReport,
    RunOptions,
    ShardsReport,
    SidecarsReport,
    StoreWork,
)


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that failed in the run. `bucket` is None for a check of the whole dataset."""

    asset: str
    check: str
    bucket: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class PackagingOutcome:
    """What came of packing a dataset.

    Attributes:
        run_ids: Runs that were made: one for each range of neighbouring buckets, none where nothing was to be done.
        exit_code: 0 done, 1 the data have findings, 2 configuration or manifest, 3 infrastructure or rows pending.
        message: Why the run failed and what to do, in one line; None where it did not fail.
        up_to_date: A sentence that says so where nothing was to be done.
        plan: First report of the manifest step, made before any image was read.
        manifest: Report of the step; None where it did not get to its end, as with the next two.
        shards: Report of the step, over all ranges.
        resized: Report of each set of resized images, of the last range.
        sidecars: Report of the step, over all ranges.
        ledger: Every row's fate as it stands now; None where it could not be read.
        failed_checks: Checks whose last evaluation failed.
        counts: What was done to the stores: requests, bytes, retries; see `Stores.stats`.
    """

    run_ids: tuple[str, ...]
    exit_code: int
    message: str | None = None
    up_to_date: str | None = None
    plan: ManifestReport | None = None
    manifest: ManifestReport | None = None
    shards: ShardsReport | None = None
    resized: tuple[ResizedReport, ...] = ()
    sidecars: SidecarsReport | None = None
    ledger: Ledger | None = None
    failed_checks: tuple[FailedCheck, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


class RunRecorder:
    """Keeps the reports of a run's steps, and hands its progress on.

    Args:
        progress: Receives the progress; None for nobody.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._reports: list[StepReport] = []

    def report(self, report: ProgressReport, /) -> None:
        """Hand the report on."""
        if self._progress is not None:
            self._progress.report(report)

    def finish(self, report: StepReport, /) -> None:
        """Keep the report."""
        self._reports.append(report)

    def manifest(self) -> ManifestReport | None:
        """Return the last report of the manifest step."""
        return next((report for report in reversed(self._reports) if isinstance(report, ManifestReport)), None)

    def plan(self) -> ManifestReport | None:
        """Return the first report of the manifest step: what was planned before any image was read."""
        return next((report for report in self._reports if isinstance(report, ManifestReport)), None)

    def shards(self) -> ShardsReport | None:
        """Return the reports of the shards step as one."""
        found = [report for report in self._reports if isinstance(report, ShardsReport)]
        return reduce(ShardsReport.followed_by, found) if found else None

    def resized(self) -> tuple[ResizedReport, ...]:
        """Return the last report of each set of resized images."""
        return tuple({report.size: report for report in self._reports if isinstance(report, ResizedReport)}.values())

    def handoff(self) -> HandoffReport | None:
        """Return the last report of the handoff."""
        return next((report for report in reversed(self._reports) if isinstance(report, HandoffReport)), None)

    def sidecars(self) -> SidecarsReport | None:
        """Return the reports of the sidecars step as one."""
        found = [report for report in self._reports if isinstance(report, SidecarsReport)]
        buckets = {key: bucket for report in found for key, bucket in report.buckets.items()}
        return SidecarsReport(buckets, sum(report.seconds for report in found)) if found else None

    def counts(self) -> Counter[str]:
        """Return what all steps did to the stores."""
        return sum((Counter(report.counts) for report in self._reports if isinstance(report, StoreWork)), Counter())


def run_packaging(
    dataset_yaml: Path,
    instance: dg.DagsterInstance,
    options: RunOptions | None = None,
    partitions: Sequence[str] | None = None,
    progress: Progress | None = None,
    runtime: RuntimeConfig | None = None,
    workers: RayCluster | None = None,
    assume_due: bool = False,
) -> PackagingOutcome:
    """Pack a dataset by its Dagster job, in this process, so that the UI shows it like any other run.

    Repeating it is safe: what is durable stays. Where nothing is to be done, and no option asks for anything, no run is
    made.

    Args:
        dataset_yaml: The dataset.
        instance: Records the runs.
        options: Of the runs; None for none.
        partitions: Keys of the buckets to pack; None for all. Neighbours are packed in one run.
        progress: Hears how far it is.
        runtime: Settings of the process; by default those of its environment.
        workers: Where the tasks go; by default as the settings say.
        assume_due: Make a run without asking first whether anything is to be done.

    Raises:
        PackagingError: before anything was run: the YAML, a bucket's name, the manifest or its store is wrong.
        KeyboardInterrupt: the run was interrupted; its tasks are gone, and the next run resumes.
    """
    options = options or RunOptions()
    dataset = load_dataset(dataset_yaml)
    ranges = _ranges_of(partitions)
    workers = workers or RayCluster.of(runtime or read_runtime())
    recorder = RunRecorder(progress)
    pipeline = Pipeline(dataset, workers.open_executor, recorder, run_id="")
    if partitions is None and options == RunOptions() and not assume_due:
        up_to_date = pipeline.is_up_to_date()
        if up_to_date is not None:
            return _idle_outcome(dataset, pipeline, up_to_date)
    job = _resolve_job(dataset, recorder, workers)
    packed = DatasetKeys(dataset.name).packed(dataset.resized)
    results = []
    for number, (first, last) in enumerate(ranges):
        assets = packed if number == 0 else packed[1:]  # one manifest serves all ranges
        result = _execute(job, instance, options, assets, range_tags(first, last))
        results.append(result)
        if number == 0 and recorder.manifest() is None:
            break
    return _outcome(results, recorder, pipeline)


@dataclass(frozen=True, slots=True)
class HandoffOutcome:
    """What came of handing a dataset off.

    Attributes:
        run_id: Of the run that was made.
        exit_code: 0 handed off, 1 the data have findings, 3 infrastructure.
        message: Why there is no handoff, in one line; None where there is one.
        report: Of the step; None where it did not get to its end.
    """

    run_id: str
    exit_code: int
    message: str | None
    report: HandoffReport | None


def run_handoff(
    dataset_yaml: Path,
    instance: dg.DagsterInstance,
    progress: Progress | None = None,
    workers: RayCluster | None = None,
) -> HandoffOutcome:
    """Materialise the handoff of a packed dataset in this process, so that the UI shows it like any other run.

    Args:
        dataset_yaml: The dataset.
        instance: Records the run.
        progress: Hears how far it is.
        workers: Where the tasks go; by default as the settings of the process say.

    Raises:
        PackagingError: before anything was run: the YAML is wrong, or nothing is packed yet.
        KeyboardInterrupt: the run was interrupted.
    """
    dataset = load_dataset(dataset_yaml)
    workers = workers or RayCluster.of(read_runtime())
    recorder = RunRecorder(progress)
    Pipeline(dataset, workers.open_executor, recorder, run_id="").require_packed()
    job = _resolve_job(dataset, recorder, workers)
    result = _execute(job, instance, RunOptions(), [DatasetKeys(dataset.name).handoff], {})
    failures = [_explain_failure(event) for event in result.all_events if event.is_step_failure]
    code, message = failures[0] if failures else (0 if result.success else EXIT_INFRASTRUCTURE, None)
    return HandoffOutcome(result.run_id, code, message, recorder.handoff())


def _ranges_of(partitions: Sequence[str] | None) -> list[tuple[str, str]]:
    if partitions is None:
        return [(BUCKET_KEYS[0], BUCKET_KEYS[-1])]
    try:
        ranges = list(split_into_ranges(partitions))
    except ValueError as error:
        raise ConfigError(f"partitions: {error}") from None
    if not ranges:
        raise ConfigError("partitions: name at least one bucket")
    return ranges


def _resolve_job(dataset: DatasetConfig, recorder: RunRecorder, workers: RayCluster) -> dg.JobDefinition:
    definitions = dg.Definitions.merge(
        build_dataset_definitions(dataset, (recorder,)), build_shared_definitions(workers)
    )
    return definitions.resolve_job_def(DatasetKeys(dataset.name).job)


def _execute(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    options: RunOptions,
    assets: Sequence[dg.AssetKey],
    tags: Mapping[str, str],
) -> dg.ExecuteInProcessResult:
    result = job.execute_in_process(
        instance=instance,
        run_config={
            "resources": {"run_options": {"config": options_config(options)}},
            "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        },
        tags=dict(tags),
        asset_selection=assets,
        raise_on_error=False,
    )
    if any(_is_interruption(event) for event in result.all_events):
        raise KeyboardInterrupt
    return result


def _is_interruption(event: dg.DagsterEvent) -> bool:
    data = event.job_failure_data if event.is_job_failure else None
    return data is not None and data.failure_reason == RunFailureReason.UNEXPECTED_TERMINATION


def _outcome(
    results: Sequence[dg.ExecuteInProcessResult], recorder: RunRecorder, pipeline: Pipeline
) -> PackagingOutcome:
    events = [event for result in results for event in result.all_events]
    failed_checks = _failed_checks(events)
    failures = [_explain_failure(event) for event in events if event.is_step_failure]
    manifest, shards = recorder.manifest(), recorder.shards()
    ledger = _read_ledger(pipeline)
    pending = (manifest.pending if manifest else 0) + sum(b.pending for b in shards.buckets.values()) if shards else 0
    codes = [code for code, _ in failures]
    if failed_checks:
        codes.append(EXIT_FINDINGS)
    if pending or (not failures and not all(result.success for result in results)):
        codes.append(EXIT_INFRASTRUCTURE)
    return PackagingOutcome(
        run_ids=tuple(result.run_id for result in results),
        exit_code=max(codes, default=0),
        message=failures[0][1] if failures else None,
        plan=recorder.plan(),
        manifest=manifest,
        shards=shards,
        resized=recorder.resized(),
        sidecars=recorder.sidecars(),
        ledger=ledger,
        failed_checks=failed_checks,
        counts=recorder.counts() + Counter(pipeline.counts()),
    )


def _idle_outcome(dataset: DatasetConfig, pipeline: Pipeline, up_to_date: str) -> PackagingOutcome:
    findings = pipeline.check_reject_fraction()
    asset = DatasetKeys(dataset.name).shards.to_user_string()
    failed = tuple(FailedCheck(asset, finding.check, None, finding.detail) for finding in findings)
    return PackagingOutcome(
        run_ids=(),
        exit_code=EXIT_FINDINGS if failed else 0,
        up_to_date=up_to_date,
        ledger=_read_ledger(pipeline),
        failed_checks=failed,
    )


def _failed_checks(events: Sequence[dg.DagsterEvent]) -> tuple[FailedCheck, ...]:
    """Return what failed when it was last evaluated: each range of buckets judges the whole dataset anew."""
    last: dict[tuple[str, str, str | None], dg.AssetCheckEvaluation] = {}
    for event in events:
        if event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            evaluation = event.asset_check_evaluation_data
            last[evaluation.asset_key.to_user_string(), evaluation.check_name, evaluation.partition] = evaluation
    return tuple(
        FailedCheck(asset, check, bucket, evaluation.description or "")
        for (asset, check, bucket), evaluation in last.items()
        if not evaluation.passed
    )


def _explain_failure(event: dg.DagsterEvent) -> tuple[int, str]:
    data = event.step_failure_data
    stated = data.user_failure_data
    if stated is not None:
        code = stated.metadata.get(EXIT_CODE)
        return (code.value if isinstance(code, dg.IntMetadataValue) and code.value else EXIT_INFRASTRUCTURE), (
            stated.description or stated.label
        )
    error = data.error
    if error is not None and error.cls_name == "DagsterAssetCheckFailedError":
        return EXIT_FINDINGS, " ".join(error.message.split())
    while error is not None and error.cause is not None:
        error = error.cause
    return EXIT_INFRASTRUCTURE, " ".join(error.message.split()) if error is not None else "the step failed"


def _read_ledger(pipeline: Pipeline) -> Ledger | None:
    try:
        return pipeline.ledger()
    except PackagingError:
        return None
