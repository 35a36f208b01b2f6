"""Who hears of a run beside its log."""

from typing import Protocol, TypeAlias

from dataset_packaging.packing.reports import (
    HandoffReport,
    ManifestReport,
    Progress,
    ResizedReport,
    ShardsReport,
    SidecarsReport,
    StoreWork,
)

StepReport: TypeAlias = ManifestReport | ShardsReport | ResizedReport | SidecarsReport | HandoffReport | StoreWork


class RunListener(Progress, Protocol):
    """Hears how far the run is, and what each step did."""

    def finish(self, report: StepReport, /) -> None:
        """Take the report of a step that got through; a step that repeats itself reports again.

        What a step did to the stores is told at its end, however it ends.
        """
