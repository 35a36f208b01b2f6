"""One step of a run: what it works on, and what it yields."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import dagster as dg

from dataset_packaging.config import DatasetConfig
from dataset_packaging.orchestration.keys import DatasetKeys
from dataset_packaging.orchestration.listeners import RunListener, StepReport
from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging.packing.reports import RunOptions

StepEvent: TypeAlias = (
    dg.AssetMaterialization
    | dg.AssetCheckEvaluation
    | dg.AssetCheckResult
    | dg.MaterializeResult[None]
    | dg.Output[None]
)
StepEvents: TypeAlias = Generator[StepEvent, None, None]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run over one dataset.

    Attributes:
        context: Dagster's.
        dataset: What is packed.
        pipeline: Does it.
        options: Of this run.
        code_version: Of the assets.
        listeners: Hear of the step's report.
    """

    context: dg.AssetExecutionContext
    dataset: DatasetConfig
    pipeline: Pipeline
    options: RunOptions
    code_version: str
    listeners: Sequence[RunListener] = ()

    def finish(self, report: StepReport) -> None:
        """Hand the report to the listeners."""
        for listener in self.listeners:
            listener.finish(report)

    @property
    def keys(self) -> DatasetKeys:
        """Asset keys of the dataset."""
        return DatasetKeys(self.dataset.name)
