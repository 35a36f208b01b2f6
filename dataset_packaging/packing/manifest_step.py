"""The manifest step: decides whether a new generation is due, builds it, publishes it."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.ledger import RETRIED_REASONS
from dataset_packaging.errors import ConfigError, NotFound, ObjectDamaged, PlanConflict
from dataset_packaging.imaging.verify import unreadable_formats
from dataset_packaging.io.jsonl import SourceFile, expand_sources, require_a_row
from dataset_packaging.io.parquet import read_table, write_table
from dataset_packaging.packing.fingerprints import identity_settings, manifest_fingerprint, probing_fingerprint
from dataset_packaging.packing.generation import (
    GenerationSummary,
    Published,
    generation_number,
    plan_content,
    read_generation,
)
from dataset_packaging.packing.generation_builder import GenerationBuilder, GenerationRequest
from dataset_packaging.packing.index_schema import RELOCATIONS_SCHEMA
from dataset_packaging.packing.ownership import claim_folders, require_own_folders, require_writable_folders
from dataset_packaging.packing.recovery import Standing, read_standing
from dataset_packaging.packing.reports import BucketPlan, ManifestReport, RunOptions, StageClock
from dataset_packaging.packing.run import Run

_DELETE_THREADS = 16


def build_manifest(run: Run, options: RunOptions) -> ManifestReport:
    """Publishes a new generation where sources, settings, moved rows or damaged files ask for one; else does nothing.

    Raises ConfigError, ManifestError, PlanConflict or ReferenceUnusable before anything is written where the input is
    at fault.
    """
    clock = StageClock("manifest", "bytes", run.progress)
    require_decoders(run)
    sources = expand_sources(run.stores, run.dataset.manifest)
    require_a_row(run.stores, sources)
    require_own_folders(run)
    require_writable_folders(run)
    run.reference()
    with run.lease():
        require_own_folders(run)  # once more: now nobody else can claim them
        standing = read_standing(run)
        builder = GenerationBuilder(
            run.dataset,
            run.stores,
            run.layout,
            lambda: run.executor,
            clock,
        )
        request = plan_generation(run, standing, sources, options)
        claim_folders(run)
        if request is None:
            assert standing.current is not None
            summary = standing.current.summary
            if not standing.is_published:
                builder.publish(summary.number)
            _drop_leftovers(run, summary)
            return _report(run, summary, True, 0, clock.seconds)
        summary = builder.build(request)
        _carry_retries(run, standing, request)
        run.require_lease()
        builder.publish(summary.number)
        _drop_leftovers(run, summary)
        earlier = request.probed.summary.probed if request.probed else 0
        return _report(run, summary, False, summary.probed - earlier, clock.seconds)


def plan_generation(
    run: Run, standing: Standing, sources: list[SourceFile], options: RunOptions
) -> GenerationRequest | None:
    """Returns the generation that is due, or None where the current one holds. Reads only.

    Raises PlanConflict where a setting that decides about places changed and `options.rewrite` does not allow it.
    """
    identity = identity_settings(run.dataset)
    request = GenerationRequest(
        number=standing.last_number + 1,
        ancestor=None,
        probed=None,
        sources=tuple(sources),
        fingerprint=manifest_fingerprint(
            run.dataset, [(source.uri, source.size_bytes, source.tag) for source in sources], options.limit_rows
        ),
        probing=probing_fingerprint(run.dataset),
        identity=identity,
        relocations=RELOCATIONS_SCHEMA.empty_table(),
        retry_reasons=frozenset(options.retry_rejected) | RETRIED_REASONS,
        row_limit=options.limit_rows,
    )
    known, ancestor = standing.known, standing.ancestor
    if known is None:
        return request
    changed = sorted(name for name in identity if identity[name] != known.identity.get(name))
    if changed and not options.rewrite:
        changes = ", ".join(f"{name} was {known.identity.get(name)}, is {identity[name]}" for name in changed)
        raise PlanConflict(
            f"{run.dataset.name}: {changes}: this moves rows between shards; undo it, or pack with --rewrite "
            "(readers must not be at work meanwhile)"
        )
    if changed:
        same_sizes = "images.orientation" not in changed and "mapping.direct.image_key" not in changed
        return replace(request, probed=ancestor if same_sizes else None)
    if standing.current is None:
        return replace(request, ancestor=ancestor, probed=ancestor, relocations=standing.relocations)
    relocations = read_relocations(run, standing.current)
    unfinished = known.pending or any(reason in request.retry_reasons for reason in known.rejected)
    if request.fingerprint == known.fingerprint and not len(relocations) and not unfinished:
        return None
    return replace(request, ancestor=ancestor, probed=ancestor, relocations=relocations)


def read_relocations(run: Run, current: Published) -> pa.Table:
    """Returns the rows that wait for a place: moved ones and successful retries; none while a shard has no receipt."""
    moved: list[dict[str, object]] = []
    rejected: set[tuple[int, int, int]] = set()
    tombstones = run.tombstones(current)
    for shard, receipt in zip(current.shards, run.status.read_receipts(current.shards), strict=True):
        if receipt is None:
            return RELOCATIONS_SCHEMA.empty_table()
        rejected.update((BUCKETS.index(shard.bucket), shard.number, row.position) for row in receipt.rejected)
        empty = tombstones.get((shard.bucket.key, shard.number), frozenset())
        moved.extend(
            {
                "bucket": BUCKETS.index(shard.bucket),
                "shard": shard.number,
                "position": row.position,
                "image_key": row.image_key,
                "s3_image_path": row.s3_image_path,
                "width": row.width_px,
                "height": row.height_px,
            }
            for row in receipt.moved
            if row.position not in empty
        )
    retries = read_retries(run, current)
    # A shard that was packed once more since holds its repaired rows by now: they stay where they are.
    places = zip(*(retries[name].to_pylist() for name in ("bucket", "shard", "position")), strict=True)
    retries = retries.filter(pa.array([place in rejected for place in places], pa.bool_()))
    return pa.concat_tables([pa.Table.from_pylist(moved, schema=RELOCATIONS_SCHEMA), retries])


def read_retries(run: Run, current: Published) -> pa.Table:
    """Returns the rejected rows of a generation whose new attempt succeeded; each still has its old place."""
    try:
        table = read_table(run.stores, run.layout.retries_uri(current.summary.number))
    except (NotFound, ObjectDamaged):
        return RELOCATIONS_SCHEMA.empty_table()
    tombstones = run.tombstones(current)
    waiting = [
        row["position"] not in tombstones.get((BUCKETS[row["bucket"]].key, row["shard"]), frozenset())
        for row in table.select(["bucket", "shard", "position"]).to_pylist()
    ]
    return table.filter(pa.array(waiting, pa.bool_()))


def require_decoders(run: Run) -> None:
    """Refuses a format that this installation cannot decode. Raises ConfigError naming it and what to install."""
    missing = unreadable_formats(run.dataset.images.formats)
    if missing:
        raise ConfigError(
            f"{run.dataset.source or run.dataset.name}: images.formats: no decoder for {', '.join(missing)} is "
            "installed (HEIF needs the package pillow-heif); install it for every worker, or remove the format"
        )


def _carry_retries(run: Run, standing: Standing, request: GenerationRequest) -> None:
    """Hands successful retries on to a generation that grew from the same places and did not relocate anything yet."""
    if standing.current is None or request.ancestor is None or len(request.relocations):
        return
    retries = read_retries(run, standing.current)
    if len(retries):
        write_table(run.stores, run.layout.retries_uri(request.number), retries)


def _drop_leftovers(run: Run, summary: GenerationSummary) -> None:
    """Removes all generations but the current one and the one that it grew from, and retries of other generations."""
    kept = {summary.number, summary.prior}
    old = [
        info.uri
        for info in run.stores.list(run.layout.generations_prefix)
        if generation_number(run.layout, info.uri) not in kept
    ]
    current_retries = run.layout.retries_uri(summary.number)
    old += [info.uri for info in run.stores.list(run.layout.retries_prefix) if info.uri != current_retries]
    with ThreadPoolExecutor(_DELETE_THREADS, "delete") as pool:
        list(pool.map(run.stores.delete, old))


def _report(run: Run, summary: GenerationSummary, unchanged: bool, probed: int, seconds: float) -> ManifestReport:
    planned = read_generation(run.stores, run.layout, summary.number)
    pixels: Counter[str] = Counter()
    for shard in planned.shards:
        pixels[shard.bucket.key] += shard.estimated_px
    return ManifestReport(
        summary.number,
        unchanged,
        summary.rows,
        summary.duplicates,
        summary.rejected,
        summary.pending,
        probed,
        {
            record.bucket: BucketPlan(
                record.rows, record.duplicates, record.shards, record.estimated_bytes, pixels[record.bucket]
            )
            for record in summary.buckets
        },
        tuple(source.uri for source in summary.sources),
        seconds,
        plan_content(planned),
    )
