"""`plan`: what a run would keep, rewrite and add, and what it would ask of the store. Writes nothing below a prefix.

The manifest is read and mapped as a run would do it, into a generation below a temporary folder; receipts and objects
are compared with that plan.
"""

import tempfile
from collections import Counter
from dataclasses import dataclass

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import Layout
from dataset_packaging.core.shard_plan import PlannedShard
from dataset_packaging.io.jsonl import expand_sources, require_a_row
from dataset_packaging.packing.generation import (
    GenerationBuilder,
    GenerationSummary,
    Published,
    read_current,
    read_generation,
)
from dataset_packaging.packing.manifest_step import plan_generation, require_decoders, require_own_folders
from dataset_packaging.packing.prices import Prices
from dataset_packaging.packing.reports import RunOptions, StageClock
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import ShardState, read_bucket_status

PART_BYTES = 16 << 20
"""Of a multipart upload: what one PUT carries of a shard."""

REQUESTS_PER_SHARD = 5
"""Beside the shard's parts: start and end of the upload, facts, receipt, sidecar with its receipt, rounded."""


@dataclass(frozen=True, slots=True)
class BucketPreview:
    """What would become of one bucket: shards = kept + rewritten + added."""

    rows: int
    shards: int
    estimated_bytes: int
    kept: int
    rewritten: int
    added: int


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
        gets: requests for objects, probes of headers included.
        puts: requests that write.
        lists: requests that list.
        dollars: of these requests.
        sources: URIs of the manifest files.
        unchanged: whether the published plan holds as it is.
    """

    rows: int
    duplicates: int
    rejected: dict[str, int]
    pending: int
    buckets: dict[str, BucketPreview]
    reasons: dict[str, int]
    gets: int
    puts: int
    lists: int
    dollars: float
    sources: tuple[str, ...]
    unchanged: bool

    @property
    def shards(self) -> int:
        """Shards of the plan."""
        return sum(bucket.shards for bucket in self.buckets.values())

    @property
    def estimated_bytes(self) -> int:
        """Estimated image bytes of the plan."""
        return sum(bucket.estimated_bytes for bucket in self.buckets.values())


def preview_plan(run: Run, options: RunOptions, prices: Prices = Prices()) -> PlanPreview:  # noqa: B008
    """Returns what `pack` would do with these options.

    Raises what `pack` would raise before it writes: ConfigError, ManifestError, PlanConflict, StoreError.
    """
    require_decoders(run)
    sources = expand_sources(run.stores, run.dataset.manifest)
    require_a_row(run.stores, sources)
    require_own_folders(run)
    current = read_current(run.stores, run.layout)
    request = plan_generation(run, current, sources, options)
    if request is None:
        assert current is not None
        return _preview(run, current.summary, current, 0, prices, unchanged=True)
    clock = StageClock("manifest", "bytes", run.progress)
    with tempfile.TemporaryDirectory(prefix="dataset-packaging-plan-") as folder:
        scratch = Layout(run.dataset.output_prefix, run.dataset.sidecar_prefix, f"file://{folder}")
        builder = GenerationBuilder(
            run.dataset,
            run.stores,
            scratch,
            run.executor,
            lambda note, done, total, rows, size: clock.report(note, done, total, rows, size),
        )
        summary = builder.build(request)
        planned = read_generation(run.stores, scratch, summary.number)
    earlier = request.prior.summary.probed if request.prior else 0
    return _preview(run, summary, planned, summary.probed - earlier, prices, unchanged=False)


def _preview(
    run: Run, summary: GenerationSummary, planned: Published, probed: int, prices: Prices, *, unchanged: bool
) -> PlanPreview:
    buckets: dict[str, BucketPreview] = {}
    reasons: Counter[str] = Counter()
    gets = len(summary.blocks) + probed
    puts = 2 * len(summary.blocks)
    for record in summary.buckets:
        bucket = Bucket.parse(record.bucket)
        status = read_bucket_status(run, bucket, planned.of_bucket(bucket))
        due = [state for state in status.shards if state.problem]
        reasons.update(state.problem for state in due)
        added = sum(state.receipt is None and not state.damaged for state in due)
        gets += sum(_fetches(state) for state in due) + len(status.shards)
        puts += sum(_uploads(state.shard) for state in due)
        buckets[record.bucket] = BucketPreview(
            sum(shard.live_rows for shard in planned.of_bucket(bucket)),
            len(status.shards),
            record.estimated_bytes,
            len(status.shards) - len(due),
            len(due) - added,
            added,
        )
    lists = 3 * max(1, len(buckets)) + len(summary.sources)
    return PlanPreview(
        summary.rows,
        summary.duplicates,
        summary.rejected,
        summary.pending,
        buckets,
        dict(reasons),
        gets,
        puts,
        lists,
        prices.dollars(gets, puts, lists),
        tuple(source.uri for source in summary.sources),
        unchanged,
    )


def _fetches(state: ShardState) -> int:
    """Returns the images that a shard asks for: none where its old version still has them."""
    return 1 if state.receipt is not None and not state.damaged else state.shard.live_rows


def _uploads(shard: PlannedShard) -> int:
    return -(-max(1, shard.estimated_bytes) // PART_BYTES) + REQUESTS_PER_SHARD
