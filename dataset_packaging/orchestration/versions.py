"""Code and data versions: from them Dagster tells what is out of date; all pure."""

import hashlib
import json
from collections.abc import Mapping

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.schema import SCHEMA_VERSION
from dataset_packaging.imaging.verify import POLICY_VERSION
from dataset_packaging.packing.reports import BucketResized, BucketShards, BucketSidecars, ManifestReport

_NOT_IN_THE_BYTES = {"images": {"max_rejected_fraction", "on_fetch_failure", "decode_timeout_s"}}


def code_version_of(dataset: DatasetConfig) -> str:
    """Return the version of everything but the inputs: schema, policy, the configuration that reaches the bytes."""
    fields = dataset.model_dump(
        mode="json",
        include={"manifest", "mapping", "images", "packing", "sidecar"},
        exclude=_NOT_IN_THE_BYTES,
    )
    return f"schema-{SCHEMA_VERSION}.policy-{POLICY_VERSION}.config-{_digest(json.dumps(fields, sort_keys=True))[:12]}"


def manifest_version(report: ManifestReport) -> str:
    """Return the version of a plan: another one where a row stands elsewhere, or with other values."""
    counts = [report.rows, report.duplicates, report.pending, sorted(report.rejected.items())]
    return _digest(report.content, json.dumps(counts))


def shards_version(bucket: BucketShards) -> str:
    """Return the version of a bucket's shards: another one where their bytes differ, or what sidecars add to them."""
    return _digest(bucket.content, json.dumps(sorted(bucket.rejects.items())))


def sidecars_version(bucket: BucketSidecars) -> str:
    """Return the version of a bucket's sidecars: another one where their bytes differ."""
    return _digest(bucket.content)


def resized_version(bucket: BucketResized) -> str:
    """Return the version of a bucket's resized images: another one where their bytes differ."""
    return _digest(bucket.content)


def handoff_version(summary: Mapping[str, object]) -> str:
    """Return the version of a handoff: another one where it tells something else."""
    return _digest(json.dumps(summary, sort_keys=True))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
