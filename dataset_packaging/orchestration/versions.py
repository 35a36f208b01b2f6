"""Code and data versions: from them Dagster tells what is out of date; all pure."""

import hashlib
import json

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.schema import SCHEMA_VERSION
from dataset_packaging.imaging.verify import POLICY_VERSION
from dataset_packaging.packing.reports import BucketShards, BucketSidecars, RunOptions

_NOT_IN_THE_BYTES = {"images": {"max_rejected_fraction", "on_fetch_failure", "decode_timeout_s"}}


def code_version_of(dataset: DatasetConfig) -> str:
    """Return the version of everything but the inputs: schema, policy, the configuration that reaches the bytes."""
    fields = dataset.model_dump(
        mode="json", include={"manifest", "mapping", "images", "packing", "sidecar"}, exclude=_NOT_IN_THE_BYTES
    )
    return f"schema-{SCHEMA_VERSION}.policy-{POLICY_VERSION}.config-{_digest(json.dumps(fields, sort_keys=True))[:12]}"


def manifest_version(code_version: str, source_digest: str, options: RunOptions) -> str:
    """Return the version of a plan: the same files, read in the same way, make the same plan."""
    return _digest(code_version, source_digest, str(options.limit_rows))


def shards_version(manifest: str, bucket: BucketShards) -> str:
    """Return the version of a bucket's shards: its counts, under the version of the plan that they were made from."""
    counts = [bucket.rows, bucket.bytes, bucket.shards, bucket.moved, sorted(bucket.rejects.items())]
    return _digest(manifest, json.dumps(counts))


def sidecars_version(code_version: str, shards: str, bucket: BucketSidecars) -> str:
    """Return the version of a bucket's sidecars: that of its shards, and what was merged into them."""
    counts = [bucket.rows, sorted(bucket.null_counts.items()), [[n, c.taken] for n, c in bucket.merged.items()]]
    return _digest(code_version, shards, json.dumps(counts))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
