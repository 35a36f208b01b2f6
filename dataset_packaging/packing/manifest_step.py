"""The manifest step: decides whether a new generation is due, builds it, publishes it."""

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from dataset_packaging.core.ledger import RETRIED_REASONS
from dataset_packaging.errors import ConfigError, NotFound, PlanConflict
from dataset_packaging.imaging.verify import unreadable_formats
from dataset_packaging.io.jsonl import SourceFile, expand_sources, require_a_row
from dataset_packaging.io.parquet import open_parquet, read_table
from dataset_packaging.packing.fingerprints import identity_settings, manifest_fingerprint
from dataset_packaging.packing.generation import (
    GenerationBuilder,
    GenerationRequest,
    GenerationSummary,
    Published,
    read_current,
    read_generation,
)
from dataset_packaging.packing.index_schema import RELOCATIONS_SCHEMA
from dataset_packaging.packing.reports import BucketPlan, ManifestReport, RunOptions, StageClock
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import iter_receipts

KEPT_GENERATIONS = 2
"""The current one and the one that it grew from, which a damaged index is rebuilt from."""


def build_manifest(run: Run, options: RunOptions) -> ManifestReport:
    """Publishes a new generation where sources, settings or moved rows ask for one; else does nothing.

    Raises ConfigError, ManifestError or PlanConflict before anything is written where the input is at fault.
    """
    clock = StageClock("manifest", "bytes", run.progress)
    require_decoders(run)
    sources = expand_sources(run.stores, run.dataset.manifest)
    require_a_row(run.stores, sources)
    require_own_folders(run)
    with run.lease():
        current = read_current(run.stores, run.layout)
        request = plan_generation(run, current, sources, options)
        if request is None:
            assert current is not None
            return _report(current.summary, True, 0, clock.seconds)
        _claim_folders(run)
        builder = GenerationBuilder(
            run.dataset,
            run.stores,
            run.layout,
            run.executor,
            lambda note, done, total, rows, size: clock.report(note, done, total, rows, size),
        )
        summary = builder.build(request)
        builder.publish(summary.number)
        _publish_rejects(run, summary)
        if len(request.relocations):
            run.stores.delete(run.layout.retries_uri)
        _drop_old_generations(run, summary.number)
        earlier = request.prior.summary.probed if request.prior else 0
        return _report(summary, False, summary.probed - earlier, clock.seconds)


def plan_generation(
    run: Run, current: Published | None, sources: list[SourceFile], options: RunOptions
) -> GenerationRequest | None:
    """Returns the generation that is due, or None where the current one holds. Reads only.

    Raises PlanConflict where a setting that decides about places changed and `options.rewrite` does not allow it.
    """
    identity = identity_settings(run.dataset)
    fingerprint = manifest_fingerprint(
        run.dataset, [(source.uri, source.size_bytes, source.tag) for source in sources], options.limit_rows
    )
    none = RELOCATIONS_SCHEMA.empty_table()
    reasons = frozenset(options.retry_rejected) | RETRIED_REASONS
    if current is None:
        return GenerationRequest(1, None, tuple(sources), fingerprint, identity, none, reasons, options.limit_rows)
    summary = current.summary
    number = summary.number + 1
    changed = sorted(name for name in identity if identity[name] != summary.identity.get(name))
    if changed and not options.rewrite:
        changes = ", ".join(f"{name} was {summary.identity.get(name)}, is {identity[name]}" for name in changed)
        raise PlanConflict(
            f"{run.dataset.name}: {changes}: this moves rows between shards; undo it, or pack with --rewrite "
            "(readers must not be at work meanwhile)"
        )
    if changed:
        return GenerationRequest(number, None, tuple(sources), fingerprint, identity, none, reasons, options.limit_rows)
    sound = _sound_ancestor(run, current)
    if sound is not None:
        ancestor, relocations = sound
        return GenerationRequest(
            number, ancestor, tuple(sources), fingerprint, identity, relocations, reasons, options.limit_rows
        )
    relocations = read_relocations(run, current)
    unfinished = summary.pending or any(reason in reasons for reason in summary.rejected)
    if fingerprint == summary.fingerprint and not len(relocations) and not unfinished:
        return None
    return GenerationRequest(
        number, current, tuple(sources), fingerprint, identity, relocations, reasons, options.limit_rows
    )


def read_relocations(run: Run, current: Published) -> pa.Table:
    """Returns the rows that wait for a place: moved ones and successful retries; none while a shard has no receipt."""
    moved: list[dict[str, object]] = []
    tombstones = read_tombstones(run, current)
    for shard, receipt in iter_receipts(run.stores, run.layout, current.shards):
        if receipt is None:
            return RELOCATIONS_SCHEMA.empty_table()
        empty = tombstones.get((shard.bucket.key, shard.number), frozenset())
        moved.extend(
            {
                "image_key": row.image_key,
                "s3_image_path": row.s3_image_path,
                "width": row.width_px,
                "height": row.height_px,
            }
            for row in receipt.moved
            if row.position not in empty
        )
    return pa.concat_tables([pa.Table.from_pylist(moved, schema=RELOCATIONS_SCHEMA), read_retries(run)])


def read_retries(run: Run) -> pa.Table:
    """Returns the rejected rows whose new attempt succeeded and that have no place yet."""
    try:
        return read_table(run.stores, run.layout.retries_uri)
    except NotFound:
        return RELOCATIONS_SCHEMA.empty_table()


def read_tombstones(run: Run, current: Published) -> dict[tuple[str, int], frozenset[int]]:
    """Returns the empty positions of each shard that has any, by bucket key and number."""
    positions: dict[tuple[str, int], set[int]] = {}
    for bucket in dict.fromkeys(shard.bucket for shard in current.shards if shard.live_rows < shard.rows):
        table = read_table(run.stores, current.layout.tombstones_uri(bucket), ["shard", "position"])
        for number, position in zip(table["shard"].to_pylist(), table["position"].to_pylist(), strict=True):
            positions.setdefault((bucket.key, number), set()).add(position)
    return {place: frozenset(found) for place, found in positions.items()}


def require_decoders(run: Run) -> None:
    """Refuses a format that this installation cannot decode. Raises ConfigError naming it and what to install."""
    missing = unreadable_formats(run.dataset.images.formats)
    if missing:
        raise ConfigError(
            f"{run.dataset.source or run.dataset.name}: images.formats: no decoder for {', '.join(missing)} is "
            "installed (HEIF needs the package pillow-heif); install it for every worker, or remove the format"
        )


def require_own_folders(run: Run) -> None:
    """Refuses prefixes that belong to another dataset or hold files of others, before anything is written.

    Raises PlanConflict naming the folder and what was found there.
    """
    try:
        owner = msgspec.json.decode(run.stores.get(run.layout.identity_uri))
    except NotFound:
        owner = None
    except msgspec.DecodeError as error:
        raise PlanConflict(f"{run.layout.identity_uri} is damaged: {error}; restore or remove it") from error
    mine = _identity(run)
    if owner is not None:
        for name, value in mine.items():
            if owner.get(name) != value:
                raise PlanConflict(
                    f"{run.dataset.work_prefix} belongs to dataset {owner.get('name')!r} with {name} "
                    f"{owner.get(name)!r}, not {value!r}: choose another work_prefix"
                )
        return
    folders = (run.dataset.output_prefix, run.dataset.sidecar_prefix, run.dataset.work_prefix)
    for found in _first_objects(run, folders):
        raise PlanConflict(
            f"{found} stands below a prefix of {run.dataset.name}, which has not been packed there: "
            "choose prefixes that are empty, or restore the work_prefix of the dataset that made these files"
        )


def _first_objects(run: Run, folders: Iterable[str]) -> Iterable[str]:
    for folder in folders:
        for info in run.stores.list(f"{folder}/"):
            if info.uri != run.layout.lease_uri:
                yield info.uri
                break


def _identity(run: Run) -> dict[str, str]:
    dataset = run.dataset
    return {
        "name": dataset.name,
        "output_prefix": dataset.output_prefix,
        "sidecar_prefix": dataset.sidecar_prefix,
    }


def _claim_folders(run: Run) -> None:
    run.stores.put_if_absent(run.layout.identity_uri, msgspec.json.encode(_identity(run)))


def damaged_files(run: Run, current: Published) -> list[str]:
    """Returns the plan, index and placement files of a generation that are missing or not as they were written.

    A file whose size is right but whose tag is not (a copy, a restored backup) counts as whole where all its pages
    pass their checksums.
    """
    present = {info.uri: info for info in run.stores.list(f"{current.layout.root}/")}
    damaged: list[str] = []
    for record in current.summary.files:
        info = present.get(record.uri)
        if (
            info is None
            or info.size_bytes != record.size_bytes
            or (info.tag != record.tag and not _reads_whole(run, record.uri))
        ):
            damaged.append(record.uri)
    return damaged


def _reads_whole(run: Run, uri: str) -> bool:
    try:
        file = open_parquet(run.stores, uri, verify_checksums=True)
        for group in range(file.num_row_groups):
            file.read_row_group(group)
    except (pa.ArrowException, OSError):
        return False
    return True


def _sound_ancestor(run: Run, current: Published) -> tuple[Published | None, pa.Table] | None:
    """Returns what to rebuild a damaged generation from (ancestor, relocations), or None where nothing is damaged.

    The index itself is made from the manifest alone; where the places are damaged, the generation before tells them.
    """
    damaged = damaged_files(run, current)
    if not damaged:
        return None
    index_prefix = f"{current.layout.root}/index/"
    if all(uri.startswith(index_prefix) for uri in damaged):
        return current, RELOCATIONS_SCHEMA.empty_table()
    prior = current.summary.prior
    relocations = read_table(run.stores, current.layout.relocations_uri)
    return (read_generation(run.stores, run.layout, prior) if prior else None), relocations


def _publish_rejects(run: Run, summary: GenerationSummary) -> None:
    generation = run.layout.generation(summary.number)
    run.stores.put(run.layout.rejects_uri(None), run.stores.get(generation.rejects_uri))


def _drop_old_generations(run: Run, number: int) -> None:
    for old in range(max(1, number - KEPT_GENERATIONS - 1), number - KEPT_GENERATIONS + 1):
        for info in run.stores.list(f"{run.layout.generation(old).root}/"):
            run.stores.delete(info.uri)


def _report(summary: GenerationSummary, unchanged: bool, probed: int, seconds: float) -> ManifestReport:
    return ManifestReport(
        summary.number,
        unchanged,
        summary.rows,
        summary.duplicates,
        summary.rejected,
        summary.pending,
        probed,
        {
            record.bucket: BucketPlan(record.rows, record.duplicates, record.shards, record.estimated_bytes)
            for record in summary.buckets
        },
        tuple(source.uri for source in summary.sources),
        seconds,
    )
