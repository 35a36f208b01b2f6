"""The assets of one dataset: its source, manifest, shards, resized images, sidecars and handoff."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import dagster as dg
from dagster_aws.s3 import S3Resource

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.schema import MAIN_SCHEMA, RESIZED_SCHEMA, sidecar_schema
from dataset_packaging.orchestration import steps
from dataset_packaging.orchestration.asset_checks import (
    LEDGER_BALANCE,
    MANIFEST_CHECKS,
    REJECT_FRACTION,
    RESIZED_CHECKS,
    SHARD_CHECKS,
    SIDECAR_CHECKS,
    CheckKind,
    build_check_specs,
)
from dataset_packaging.orchestration.handoff_step import write_handoff
from dataset_packaging.orchestration.keys import DatasetKeys, build_bucket_partitions
from dataset_packaging.orchestration.listeners import RunListener
from dataset_packaging.orchestration.metadata import describe_columns
from dataset_packaging.orchestration.progress import LogProgress, ProgressRelay
from dataset_packaging.orchestration.resized_step import write_resized
from dataset_packaging.orchestration.resources import RayCluster, apply_s3_resource
from dataset_packaging.orchestration.run_options import RunOptionsResource
from dataset_packaging.orchestration.sources import read_source_version
from dataset_packaging.orchestration.step import Step, StepEvents
from dataset_packaging.orchestration.versions import code_version_of
from dataset_packaging.packing.log_relay import relayed_logs
from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging.packing.reports import StoreWork


@dataclass(frozen=True, slots=True)
class AssetParts:
    """What distinguishes the assets of a dataset from each other.

    Attributes:
        key: Of the asset.
        upstream: Assets that it is made from.
        checks: What is checked of it.
        run_step: What materialises it.
        description: For the UI.
        kinds: For the UI, at most three.
        metadata: Of the definition.
        partitioned: Whether it has a partition for each bucket.
        required: Whether a run that gets to its end has materialised it.
    """

    key: dg.AssetKey
    upstream: Sequence[dg.AssetKey]
    checks: Sequence[CheckKind]
    run_step: Callable[[Step], StepEvents]
    description: str
    kinds: set[str]
    metadata: dict[str, dg.MetadataValue]
    partitioned: bool = True
    required: bool = True


def build_assets(
    dataset: DatasetConfig, listeners: tuple[RunListener, ...] = ()
) -> list[dg.AssetsDefinition | dg.AssetSpec]:
    """Build the assets of a dataset, in the order of their lineage; pure: nothing is read before a step runs.

    Args:
        dataset: Which one.
        listeners: Hear of every step, beside the run's log.
    """
    with warnings.catch_warnings():
        # Backfill policies and checks with partitions are young in Dagster: its version is pinned, and tests hold them.
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        assets: list[dg.AssetsDefinition | dg.AssetSpec] = [_build_source(dataset)]
        return [
            *assets,
            *_external_inputs(dataset),
            *(_build_asset(dataset, parts, listeners) for parts in _asset_parts(dataset)),
        ]


def _asset_parts(dataset: DatasetConfig) -> tuple[AssetParts, ...]:
    keys = DatasetKeys(dataset.name)
    store = "s3" if dataset.output_prefix.startswith("s3://") else "file"
    main = describe_columns(MAIN_SCHEMA)
    resized = describe_columns(RESIZED_SCHEMA)
    own_crops = [size for size in dataset.resized if dataset.sidecar.crops and size in dataset.sidecar.crops.sizes]
    side = describe_columns(sidecar_schema(dataset.sidecar.extension_columns()))
    return (
        AssetParts(
            key=keys.manifest,
            upstream=[keys.source],
            checks=MANIFEST_CHECKS,
            run_step=steps.build_manifest,
            description="Index of all rows by bucket, and the plan of the shards; one published generation.",
            kinds={"jsonl", "ray", store},
            metadata={"dagster/uri": dg.MetadataValue.text(dataset.work_prefix)},
            partitioned=False,
        ),
        AssetParts(
            key=keys.shards,
            upstream=[keys.manifest],
            checks=(*SHARD_CHECKS, REJECT_FRACTION, LEDGER_BALANCE),
            run_step=steps.write_shards,
            description="Parquet shards with the original bytes of every verified image, a partition for each bucket.",
            kinds={"parquet", "ray", store},
            metadata={"dagster/uri": dg.MetadataValue.text(dataset.output_prefix), "dagster/column_schema": main},
        ),
        *(
            AssetParts(
                key=keys.resized(size),
                upstream=[keys.shards],
                checks=RESIZED_CHECKS,
                run_step=partial(write_resized, size=size),
                description=f"Every image at the area of {size} x {size} pixels, as WebP; the rows of its shard.",
                kinds={"parquet", "ray", store},
                metadata={
                    "dagster/uri": dg.MetadataValue.text(f"{dataset.resized_prefix}/{size}"),
                    "dagster/column_schema": resized,
                },
            )
            for size in dataset.resized
        ),
        AssetParts(
            key=keys.sidecars,
            upstream=[keys.shards, *map(keys.resized, own_crops), *(spec.key for spec in _external_inputs(dataset))],
            checks=SIDECAR_CHECKS,
            run_step=steps.write_sidecars,
            description="Everything known about each row of a shard but its image, row by row beside it.",
            kinds={"parquet", store},
            metadata={"dagster/uri": dg.MetadataValue.text(dataset.sidecar_prefix), "dagster/column_schema": side},
        ),
        AssetParts(
            key=keys.handoff,
            upstream=[keys.shards, *map(keys.resized, dataset.resized), keys.sidecars],
            checks=(),
            run_step=write_handoff,
            description="Card, statistics, sheets and the verified prefixes; there only when every check holds.",
            kinds={"parquet", store},
            metadata={"dagster/uri": dg.MetadataValue.text(f"{dataset.work_prefix}/handoff")},
            partitioned=False,
            required=False,
        ),
    )


def _build_asset(dataset: DatasetConfig, parts: AssetParts, listeners: tuple[RunListener, ...]) -> dg.AssetsDefinition:
    partitions = build_bucket_partitions() if parts.partitioned else None
    code_version = code_version_of(dataset)

    @dg.asset(
        key=parts.key,
        deps=parts.upstream,
        output_required=parts.required,
        check_specs=build_check_specs(parts.key, parts.checks, partitions),
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions else None,
        pool=pool_of(dataset),
        code_version=code_version,
        group_name=dataset.name,
        kinds=parts.kinds,
        description=_describe(dataset, parts.description),
        owners=list(dataset.owners),
        tags=dataset.tags,
        metadata={**parts.metadata, **_attributes(dataset)},
    )
    def run(
        context: dg.AssetExecutionContext, ray_cluster: RayCluster, s3: S3Resource, run_options: RunOptionsResource
    ) -> StepEvents:
        reached = apply_s3_resource(dataset, s3)
        progress = ProgressRelay((LogProgress(context.log), *listeners))
        with Pipeline(reached, ray_cluster.open_executor, progress, context.run.run_id) as pipeline:
            step = Step(context, reached, pipeline, run_options.to_options(), code_version, listeners)
            with relayed_logs(context.log.log):
                try:
                    yield from parts.run_step(step)
                finally:
                    step.finish(StoreWork(pipeline.counts()))

    return run


def pool_of(dataset: DatasetConfig) -> str:
    """Return the pool that lets only one run at a time work on the dataset; pure."""
    return f"dataset_{dataset.name}"


def _build_source(dataset: DatasetConfig) -> dg.AssetsDefinition:
    keys = DatasetKeys(dataset.name)

    @dg.multi_observable_source_asset(  # type: ignore[untyped-decorator]
        name=f"{dataset.name}__source",
        specs=[
            dg.AssetSpec(
                keys.source,
                group_name=dataset.name,
                kinds={"jsonl"},
                description="The manifest files as they are found. Observe them to see whether they changed.",
                owners=list(dataset.owners),
                tags=dataset.tags,
                metadata={"manifest": dg.MetadataValue.json(list(dataset.manifest)), **_attributes(dataset)},
            )
        ],
    )
    def observe(s3: S3Resource) -> dg.ObserveResult:
        version = read_source_version(apply_s3_resource(dataset, s3))
        return dg.ObserveResult(
            asset_key=keys.source,
            data_version=dg.DataVersion(version.digest),
            metadata={"files": version.file_count, "bytes": version.size_bytes},
        )

    observable: dg.AssetsDefinition = observe
    return observable


def _external_inputs(dataset: DatasetConfig) -> list[dg.AssetSpec]:
    """Return what the sidecars take from places that nothing here writes."""
    keys, sidecar = DatasetKeys(dataset.name), dataset.sidecar
    found: list[tuple[dg.AssetKey, tuple[str, ...], str]] = []
    if sidecar.reference is not None:
        told = "Sidecars, or a schema, whose first-level names and types those of this dataset must match."
        found.append((keys.reference, (sidecar.reference,), told))
    for number, merge in enumerate(sidecar.merge):
        told = f"Values that come late, merged into {', '.join(merge.columns)}."
        found.append((keys.merge(number), merge.locations, told))
    for resized in sidecar.crops.resized if sidecar.crops else ():
        told = f"Resized images whose geometry the crop fields of {resized.size} follow."
        found.append((keys.resized(resized.size), (resized.prefix,), told))
    return [
        dg.AssetSpec(
            key,
            group_name=dataset.name,
            description=told,
            metadata={"dagster/uri": places[0], "places": dg.MetadataValue.json(list(places))},
        )
        for key, places, told in found
    ]


def _describe(dataset: DatasetConfig, description: str) -> str:
    return f"{dataset.description}\n\n{description}" if dataset.description else description


def _attributes(dataset: DatasetConfig) -> dict[str, dg.MetadataValue]:
    stated = {
        "dataset YAML": dg.MetadataValue.path(dataset.source) if dataset.source else None,
        "licence": dg.MetadataValue.text(dataset.licence) if dataset.licence else None,
        "confidentiality": dg.MetadataValue.text(dataset.confidentiality) if dataset.confidentiality else None,
    }
    return {name: value for name, value in stated.items() if value is not None}
