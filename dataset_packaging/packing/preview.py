"""`plan`: what a run would keep, rewrite and add, and what it would ask of the store. Writes nothing below a prefix.

The manifest is read and mapped as a run would do it, into a generation below a temporary folder; receipts and objects
are compared with that plan.
"""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dataset_packaging.core.layout import Layout
from dataset_packaging.io.jsonl import expand_sources, require_a_row
from dataset_packaging.packing.generation import (
    Published,
    read_generation,
)
from dataset_packaging.packing.generation_builder import GenerationBuilder
from dataset_packaging.packing.ledger_step import read_statuses
from dataset_packaging.packing.manifest_step import plan_generation, require_decoders
from dataset_packaging.packing.ownership import require_own_folders
from dataset_packaging.packing.prices import Prices
from dataset_packaging.packing.recovery import read_standing
from dataset_packaging.packing.reports import RunOptions, StageClock
from dataset_packaging.packing.request_estimate import BucketLoad, Requests, RunLoad, estimate_requests
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import BucketStatus, ShardState
from dataset_packaging.packing.work_estimate import WorkEstimate, estimate_work

_REBUILT = "it is to be rebuilt"
_REMOVED = "it is not in the plan any more and is removed"


@dataclass(frozen=True, slots=True)
class BucketPreview:
    """What would become of one bucket: shards = kept + rewritten + added; `removed`: those that the plan loses."""

    rows: int
    shards: int
    estimated_bytes: int
    kept: int
    rewritten: int
    added: int
    removed: int = 0


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """What a run would do.

    Attributes:
        rows: non-blank lines of the manifest.
        duplicates: rows whose key stood before.
        rejected: rows without a bucket, by reason.
        pending: rows whose size could not be read now.
        buckets: by key; those with rows or shards.
        reasons: why shards are written, with their number.
        requests: of the whole run, about.
        dollars: of these requests.
        work: seconds of one worker, for the images that are to be fetched.
        sampled_rows: where all this is scaled from so many rows; None where all rows were read.
        sources: URIs of the manifest files.
        unchanged: whether the published plan holds as it is.
    """

    rows: int
    duplicates: int
    rejected: dict[str, int]
    pending: int
    buckets: dict[str, BucketPreview]
    reasons: dict[str, int]
    requests: Requests
    dollars: float
    sources: tuple[str, ...]
    unchanged: bool
    work: WorkEstimate
    sampled_rows: int | None = None

    @property
    def shards(self) -> int:
        """Shards of the plan."""
        return sum(bucket.shards for bucket in self.buckets.values())

    @property
    def estimated_bytes(self) -> int:
        """Estimated image bytes of the plan."""
        return sum(bucket.estimated_bytes for bucket in self.buckets.values())


def preview_plan(run: Run, options: RunOptions, prices: Prices) -> PlanPreview:
    """Returns what `pack` would do with these options.

    Raises what `pack` would raise before it writes: ConfigError, ManifestError, PlanConflict, ReferenceUnusable,
    StoreError.
    """
    require_decoders(run)
    sources = expand_sources(run.stores, run.dataset.manifest)
    require_a_row(run.stores, sources)
    require_own_folders(run)
    run.reference()
    standing = read_standing(run)
    request = plan_generation(run, standing, sources, options)
    if request is None:
        assert standing.current is not None
        return _preview(run, standing.current, 0, prices, options, unchanged=True)
    clock = StageClock("manifest", "bytes", run.progress)
    with tempfile.TemporaryDirectory(prefix="dataset-packaging-plan-") as folder:
        scratch = Layout(run.dataset.output_prefix, run.dataset.sidecar_prefix, f"file://{folder}")
        builder = GenerationBuilder(
            run.dataset,
            run.stores,
            scratch,
            lambda: run.executor,
            clock,
        )
        summary = builder.build(request)
        planned = read_generation(run.stores, scratch, summary.number)
    earlier = request.probed.summary.probed if request.probed else 0
    return _preview(run, planned, summary.probed - earlier, prices, options, unchanged=False)


def _preview(
    run: Run, planned: Published, probed: int, prices: Prices, options: RunOptions, *, unchanged: bool
) -> PlanPreview:
    summary = planned.summary
    buckets: dict[str, BucketPreview] = {}
    reasons: Counter[str] = Counter()
    work = WorkEstimate()
    loads: list[BucketLoad] = []
    records = {record.bucket: record for record in summary.buckets}
    for status in read_statuses(run, planned):
        record = records.get(status.bucket.key)
        if record is None and not status.surplus:
            continue
        due = [state for state in status.shards if state.problem or options.rebuild]
        reasons.update(state.problem or _REBUILT for state in due)
        added = sum(state.receipt is None and not state.damaged for state in due)
        loads.append(_bucket_load(status, due))
        for state in due:
            if state.receipt is None or state.damaged:
                shard = state.shard
                work = work.plus(estimate_work(shard.live_rows, shard.estimated_bytes, shard.estimated_px, 1))
        reasons.update({_REMOVED: len(status.surplus)} if status.surplus else {})
        buckets[status.bucket.key] = BucketPreview(
            sum(state.shard.live_rows for state in status.shards),
            len(status.shards),
            record.estimated_bytes if record else 0,
            len(status.shards) - len(due),
            len(due) - added,
            added,
            len(status.surplus),
        )
    load = RunLoad(
        len(summary.sources),
        sum(source.size_bytes for source in summary.sources),
        0 if unchanged else len(summary.blocks),
        probed,
        tuple(loads),
        len(run.dataset.resized),
        grows=planned.summary.prior is not None,
    )
    requests = estimate_requests(load)
    return PlanPreview(
        summary.rows,
        summary.duplicates,
        summary.rejected,
        summary.pending,
        buckets,
        dict(reasons),
        requests,
        prices.dollars(requests),
        tuple(source.uri for source in summary.sources),
        unchanged,
        work,
    )


def _bucket_load(status: BucketStatus, due: Sequence[ShardState]) -> BucketLoad:
    shards = [state.shard for state in status.shards]
    return BucketLoad(
        sum(shard.live_rows for shard in shards),
        sum(shard.estimated_bytes for shard in shards),
        sum(_fetches(state) for state in due),
        len(shards),
        len(due),
        sum(bool(state.problem) for state in status.sidecars),
    )


def _fetches(state: ShardState) -> int:
    """Returns the images that a shard asks for: none where its old version still has them."""
    return 1 if state.receipt is not None and not state.damaged else state.shard.live_rows
