"""What a change of the configuration means for what is there already. Pure.

Three scopes: `identity` (where rows stand; a change moves rows between shards), `manifest` (what the index holds; a
change makes a new generation) and `shard` (the bytes of a shard; a change rewrites it in place).
"""

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.crops import CROPS_VERSION
from dataset_packaging.core.schema import SCHEMA_VERSION
from dataset_packaging.core.shard_plan import PlannedShard, combined_fingerprint
from dataset_packaging.imaging.verify import POLICY_VERSION
from dataset_packaging.packing.source_versions import SourceVersions

INDEX_VERSION = 1
"""Raised when the meaning of index columns or row hashes changes."""

WRITER_VERSION = 1
"""Raised when the settings of the Parquet writer change."""


def policy_fingerprint(dataset: DatasetConfig) -> str:
    """Returns the fingerprint of everything that decides about one image's bytes."""
    images = dataset.images
    return combined_fingerprint(
        str(POLICY_VERSION),
        images.integrity,
        images.orientation,
        ",".join(sorted(images.formats)),
        str(images.max_pixels),
        str(images.max_bytes),
    )


def probing_fingerprint(dataset: DatasetConfig) -> str:
    """Returns the fingerprint of what decides about a row whose size the manifest does not tell."""
    return combined_fingerprint(policy_fingerprint(dataset), dataset.images.dimensions)


def identity_settings(dataset: DatasetConfig) -> dict[str, str]:
    """Returns the settings that decide which row stands in which shard, by their name in the YAML."""
    key = dataset.mapping.direct.get("image_key")
    return {
        "packing.shard_size": str(dataset.packing.shard_size),
        "packing.max_shard_bytes": str(dataset.packing.max_shard_bytes),
        "images.orientation": dataset.images.orientation,
        "mapping.direct.image_key": ",".join(key.from_) if key else "",
    }


def manifest_fingerprint(dataset: DatasetConfig, sources: list[tuple[str, int, str]], row_limit: int | None) -> str:
    """Returns the fingerprint of what a generation is made of: the files and the settings that read them."""
    return combined_fingerprint(
        str(INDEX_VERSION),
        str(SCHEMA_VERSION),
        *(f"{uri}\0{size}\0{tag}" for uri, size, tag in sources),
        dataset.mapping.model_dump_json(),
        dataset.sidecar.model_dump_json(include={"schema_extensions"}),
        dataset.images.dimensions,
        policy_fingerprint(dataset),
        repr(sorted(identity_settings(dataset).items())),
        str(row_limit),
    )


def main_fingerprint(dataset: DatasetConfig, shard: PlannedShard) -> str:
    """Returns the fingerprint that the receipt of a main shard must carry."""
    return combined_fingerprint(
        dataset.name,
        shard.bucket.key,
        str(shard.number),
        shard.fingerprint,
        str(SCHEMA_VERSION),
        str(WRITER_VERSION),
        policy_fingerprint(dataset),
        str(dataset.packing.row_group_bytes),
    )


def sidecar_fingerprint(
    dataset: DatasetConfig, shard: PlannedShard, main: str, main_sha256: str, versions: SourceVersions
) -> str:
    """Returns the fingerprint that the receipt of a sidecar must carry."""
    merges = zip(dataset.sidecar.merge, versions.merges, strict=True)
    crops = dataset.sidecar.crops
    return combined_fingerprint(
        main,
        main_sha256,
        shard.sidecar_fingerprint,
        dataset.sidecar.model_dump_json(include={"schema_extensions"}),
        *(f"{merge.model_dump_json()}\0{version}" for merge, version in merges),
        *((str(CROPS_VERSION), crops.model_dump_json(), *versions.resized) if crops else ()),
    )
