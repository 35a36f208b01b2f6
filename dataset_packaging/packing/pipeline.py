"""The use case, as one object: what the command line and the Dagster assets call."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import BUCKETS, Bucket
from dataset_packaging.core.invariants import (
    SHARD_CHECKS,
    SIDECAR_CHECKS,
    CheckName,
    Finding,
    find_imbalance,
    find_reject_excess,
)
from dataset_packaging.core.ledger import RETRIED_REASONS, Ledger
from dataset_packaging.io.jsonl import expand_sources, require_a_row
from dataset_packaging.packing.executor import Executor
from dataset_packaging.packing.handoff import HandoffFiles, read_handoff, read_handoff_files, write_handoff
from dataset_packaging.packing.hub_export import HubReport, export_hub
from dataset_packaging.packing.ledger_step import (
    derive_files,
    iter_rejects,
    live_rejects,
    read_ledger,
    read_statuses,
    stale_files,
    write_derived,
)
from dataset_packaging.packing.manifest_step import (
    build_manifest,
    plan_generation,
    read_relocations,
    read_retries,
    require_decoders,
)
from dataset_packaging.packing.ownership import find_ownership_faults, require_own_folders, require_writable_folders
from dataset_packaging.packing.preview import PlanPreview, preview_plan
from dataset_packaging.packing.previews import draw_contact_sheets, read_sidecar_previews
from dataset_packaging.packing.prices import Prices
from dataset_packaging.packing.recovery import read_standing
from dataset_packaging.packing.reports import (
    HandoffReport,
    ManifestReport,
    Progress,
    ResizedReport,
    RetryReport,
    RunOptions,
    ShardsReport,
    SidecarsReport,
    VerifyReport,
)
from dataset_packaging.packing.resize_step import find_resized_problems, write_resized
from dataset_packaging.packing.retry_step import retry_rejected
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.sampled_plan import preview_sample
from dataset_packaging.packing.shards_step import pack_buckets
from dataset_packaging.packing.sidecars_step import write_sidecars
from dataset_packaging.packing.simpletuner_export import SimpleTunerReport, export_simpletuner
from dataset_packaging.packing.verify_step import (
    check_buckets,
    check_manifest,
    check_reference,
    check_resized_buckets,
    verify_dataset,
)

BUCKET_KEYS: tuple[str, ...] = tuple(bucket.key for bucket in BUCKETS)
"""All 135 bucket keys, in order: the partitions of a dataset."""

MAX_ROUNDS = 8
"""Generations that one run may add for moved rows; two suffice where images do not change meanwhile."""


class Pipeline:
    """One run of one dataset: manifest to shards to sidecars to ledger.

    Use as a context manager: leaving it closes the executor. Methods may be called in any order and repeated; each
    reads what landed and does only what is missing.
    """

    def __init__(
        self,
        dataset: DatasetConfig,
        open_executor: Callable[[], AbstractContextManager[Executor]],
        progress: Progress,
        run_id: str,
    ) -> None:
        self._run = Run(dataset, run_id, progress, open_executor)

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run.close()

    @property
    def dataset(self) -> DatasetConfig:
        """The configuration."""
        return self._run.dataset

    def counts(self) -> dict[str, int]:
        """Returns what was done to the stores so far, by tasks and by this process; see `Stores.stats`."""
        return self._run.counts()

    def preview(self, options: RunOptions = RunOptions(), prices: Prices = Prices()) -> PlanPreview:  # noqa: B008
        """Returns what `pack` would do. Writes nothing that outlives the call."""
        return preview_plan(self._run, options, prices)

    def preview_sample(self, lines: Sequence[bytes], total_rows: int, prices: Prices = Prices()) -> PlanPreview:  # noqa: B008
        """Returns what a first `pack` would do, told from some lines; see `sampled_plan.preview_sample`."""
        return preview_sample(self._run, lines, total_rows, prices)

    def build_manifest(self, options: RunOptions = RunOptions()) -> ManifestReport:  # noqa: B008
        """Publishes a new generation where one is due; see `manifest_step.build_manifest`."""
        return build_manifest(self._run, options)

    def pack_buckets(self, keys: Sequence[str], options: RunOptions = RunOptions()) -> ShardsReport:  # noqa: B008
        """Packs what is not durable and writes the ledger; see `shards_step.pack_buckets`."""
        return pack_buckets(self._run, keys, options)

    def write_sidecars(self, keys: Sequence[str], options: RunOptions = RunOptions()) -> SidecarsReport:  # noqa: B008
        """Writes missing and stale sidecars; see `sidecars_step.write_sidecars`."""
        return write_sidecars(self._run, keys, options)

    def write_resized(self, size: int, keys: Sequence[str], options: RunOptions = RunOptions()) -> ResizedReport:  # noqa: B008
        """Makes missing and stale resized images; see `resize_step.write_resized`."""
        return write_resized(self._run, size, keys, options)

    def draw_contact_sheets(self, keys: Sequence[str], changed: Collection[str]) -> dict[str, bytes]:
        """Draws and reads thumbnails of buckets; see `previews.draw_contact_sheets`."""
        return draw_contact_sheets(self._run, keys, changed)

    def read_sidecar_previews(self, keys: Sequence[str]) -> dict[str, list[dict[str, str]]]:
        """Reads a few rows of sidecars; see `previews.read_sidecar_previews`."""
        return read_sidecar_previews(self._run, keys)

    def needs_another_round(self) -> bool:
        """Tells whether moved rows or successful retries wait for a generation that can be planned now."""
        return len(read_relocations(self._run, self._run.require_current())) > 0

    def retry(self, reasons: Sequence[str]) -> RetryReport:
        """Tries rejected rows of these reasons again; see `retry_step.retry_rejected`."""
        run = self._run
        with run.lease():
            current = run.require_current()
            report = retry_rejected(run, current, read_statuses(run, current), frozenset(reasons))
            write_derived(run, current, read_statuses(run, current))
            return report

    def ledger(self) -> Ledger:
        """Counts the balance of every row from what landed."""
        current = self._run.require_current()
        return read_ledger(self._run, current, read_statuses(self._run, current))

    def write_ledger(self) -> Ledger:
        """Counts the balance and brings ledger and reject lists below the work prefix up to date."""
        run = self._run
        with run.lease():
            current = run.require_current()
            return write_derived(run, current, read_statuses(run, current))

    def check_manifest(self) -> list[Finding]:
        """Checks `rows_conserved` and `unique_keys` of the published generation."""
        return check_manifest(self._run, self._run.require_current())

    def check_shards(self, keys: Sequence[str]) -> dict[str, dict[CheckName, list[Finding]]]:
        """Checks the shards of buckets: findings by bucket key and check; empty lists where all holds."""
        return check_buckets(self._run, keys, SHARD_CHECKS)

    def check_sidecars(self, keys: Sequence[str]) -> dict[str, dict[CheckName, list[Finding]]]:
        """Checks the sidecars of buckets: findings by bucket key and check; empty lists where all holds."""
        return check_buckets(self._run, keys, SIDECAR_CHECKS)

    def check_resized(self, size: int, keys: Sequence[str]) -> dict[str, dict[CheckName, list[Finding]]]:
        """Checks the resized images of buckets: findings by bucket key and check; empty lists where all holds."""
        return check_resized_buckets(self._run, size, keys)

    def check_reference(self) -> list[Finding]:
        """Checks that the sidecar columns match the dataset's reference; needs no plan and reads footers only.

        Raises ReferenceUnusable where the reference cannot be read.
        """
        return check_reference(self._run)

    def check_ledger(self) -> list[Finding]:
        """Checks that every row has one fate."""
        return find_imbalance(self.ledger())

    def check_reject_fraction(self) -> list[Finding]:
        """Checks that not more rows are rejected than the dataset allows."""
        return find_reject_excess(self.ledger(), self.dataset.images.max_rejected_fraction)

    def verify(self, *, deep: bool = False) -> VerifyReport:
        """Checks everything that landed; see `verify_step.verify_dataset`."""
        return verify_dataset(self._run, deep=deep)

    def write_handoff(self, *, deep: bool = False) -> HandoffReport:
        """Verifies everything and, where nothing is found, writes the handoff; see `handoff.write_handoff`."""
        return write_handoff(self._run, deep=deep)

    def read_handoff(self) -> dict[str, Any] | None:
        """Returns what was handed off, or None where nothing is or the dataset has changed since."""
        return read_handoff(self._run)

    def read_handoff_files(self) -> HandoffFiles:
        """Returns card, pictures and summary of the handoff; see `handoff.read_handoff_files`."""
        return read_handoff_files(self._run)

    def export_hub(self, folder: Path) -> HubReport:
        """Lays the dataset out as a repository of the Hugging Face Hub; see `hub_export.export_hub`."""
        return export_hub(self._run, folder)

    def export_simpletuner(self, folder: Path) -> SimpleTunerReport:
        """Writes the dataset as SimpleTuner reads it; see `simpletuner_export.export_simpletuner`."""
        return export_simpletuner(self._run, folder)

    def require_startable(self, options: RunOptions = RunOptions()) -> None:  # noqa: B008
        """Makes sure that a run can begin: formats, manifest, folders, reference, settings. Reads only, here.

        Raises ConfigError, ManifestError, PlanConflict, ReferenceUnusable or StoreError, as the steps would.
        """
        run = self._run
        require_decoders(run)
        sources = expand_sources(run.stores, run.dataset.manifest)
        require_a_row(run.stores, sources)
        require_own_folders(run)
        require_writable_folders(run)
        run.reference()
        plan_generation(run, read_standing(run), sources, options)

    def require_packed(self) -> None:
        """Makes sure that there is a plan. Raises ConfigError where the dataset was never packed."""
        self._run.require_current()

    def is_up_to_date(self, options: RunOptions = RunOptions()) -> str | None:  # noqa: B008
        """Returns a sentence that says so where a run would do nothing, else None. Starts no executor."""
        run = self._run
        if options.rebuild or options.retry_rejected or options.rewrite:
            return None
        standing = read_standing(run)
        current = standing.current
        if current is None or standing.damage or find_ownership_faults(run):
            return None
        require_own_folders(run)
        if plan_generation(run, standing, expand_sources(run.stores, run.dataset.manifest), options):
            return None
        statuses = read_statuses(run, current)
        problems = [state.problem for status in statuses for state in status.shards]
        problems += [state.problem for status in statuses for state in status.sidecars]
        strangers = [uri for status in statuses for uri in (*status.surplus, *status.surplus_sidecars, *status.foreign)]
        if any(problems) or strangers or find_resized_problems(run, statuses):
            return None
        tombstones = run.tombstones(current)
        if any(row.reason in RETRIED_REASONS for status in statuses for row in live_rejects(status, tombstones)):
            return None
        if any(stale_files(run, derive_files(run, current, statuses, read_ledger(run, current, statuses)))):
            return None
        rows = sum(receipt.packed_rows for status in statuses for _, receipt in status.done)
        return f"{run.dataset.name} is up to date: {rows:,} rows in {len(current.shards):,} shards, nothing to do"

    def rejects(self) -> Iterator[dict[str, object]]:
        """Yields every rejected row: image_key, s3_image_path, manifest_uri, line, reason, detail."""
        return iter_rejects(self._run)

    def waiting_retries(self) -> int:
        """Returns how many rejected rows were repaired and wait for a place."""
        return len(read_retries(self._run, self._run.require_current()))

    def bucket_of_key(self, key: str) -> Bucket:
        """Returns the bucket of a partition key. Raises ValueError for another text."""
        return Bucket.parse(key)
