"""Who hears of a run beside its log."""

from typing import Protocol, TypeAlias

from dataset_packaging.packing.reports import ManifestReport, Progress, ShardsReport, SidecarsReport

StepReport: TypeAlias = ManifestReport | ShardsReport | SidecarsReport


class RunListener(Progress, Protocol):
    """Hears how far the run is, and what each step did."""

    def finish(self, report: StepReport, /) -> None:
        """Take the report of a step that got through; a step that repeats itself reports again."""
