"""The names by which Dagster knows a dataset: asset keys, partitions, tags."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from dataset_packaging.core.bucketing import BUCKETS

BUCKET_KEYS: tuple[str, ...] = tuple(bucket.key for bucket in BUCKETS)
"""All partition keys, in the order of their ranges."""

PARTITION_COUNT_MAX = 10_000
"""More partitions than this make the UI and its status queries crawl."""

DATASET_TAG = "dataset_packaging/dataset"
"""Run tag with the dataset's name; run queues limit by it."""

RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_SAFE_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class DatasetKeys:
    """Asset keys of one dataset; its name is their prefix and group."""

    name: str

    @property
    def source(self) -> dg.AssetKey:
        """The manifest files as they are found, which nothing here writes."""
        return dg.AssetKey([self.name, "source"])

    @property
    def manifest(self) -> dg.AssetKey:
        """The published generation: index and plan."""
        return dg.AssetKey([self.name, "manifest"])

    @property
    def shards(self) -> dg.AssetKey:
        """Main shards, one partition for each bucket."""
        return dg.AssetKey([self.name, "shards"])

    @property
    def sidecars(self) -> dg.AssetKey:
        """Sidecars, the same partitions."""
        return dg.AssetKey([self.name, "sidecars"])

    @property
    def reference(self) -> dg.AssetKey:
        """The family of sidecars whose names and types must be matched; not written here."""
        return dg.AssetKey([self.name, "sidecar_reference"])

    def merge(self, number: int) -> dg.AssetKey:
        """Source of merge `number` (0-based) into the sidecars; not written here."""
        return dg.AssetKey([self.name, f"merge_source_{number}"])

    def resized(self, size: int) -> dg.AssetKey:
        """Resized images of this size, the same partitions; or the foreign set that the crop fields follow."""
        return dg.AssetKey([self.name, f"resized_{size}"])

    @property
    def handoff(self) -> dg.AssetKey:
        """What a training team takes, there only when every check holds."""
        return dg.AssetKey([self.name, "handoff"])

    def packed(self, sizes: Sequence[int]) -> tuple[dg.AssetKey, ...]:
        """All that packing writes, in the order of their lineage; `sizes` are those of resized images."""
        return self.manifest, self.shards, *map(self.resized, sizes), self.sidecars

    @property
    def job(self) -> str:
        """Name of the job that packs the whole dataset."""
        return f"package_{self.name}"


def build_bucket_partitions() -> dg.StaticPartitionsDefinition:
    """Build the 135 partitions that shards and sidecars share; raises ValueError above `PARTITION_COUNT_MAX`."""
    if len(BUCKET_KEYS) > PARTITION_COUNT_MAX:
        raise ValueError(f"{len(BUCKET_KEYS)} partitions are more than {PARTITION_COUNT_MAX}: the UI would crawl")
    return dg.StaticPartitionsDefinition(BUCKET_KEYS)


def range_tags(first_key: str, last_key: str) -> dict[str, str]:
    """Return the run tags that select the buckets from `first_key` to `last_key`, both inclusive; pure."""
    return {RANGE_START_TAG: first_key, RANGE_END_TAG: last_key}


WHOLE_DATASET_TAGS: Mapping[str, str] = range_tags(BUCKET_KEYS[0], BUCKET_KEYS[-1])


def split_into_ranges(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Split a choice of buckets into ranges of neighbours, in bucket order; pure.

    Args:
        keys: Bucket keys in any order; repeated ones count once.

    Yields:
        First and last key of each range, both inclusive.

    Raises:
        ValueError: a key is not a bucket.
    """
    positions = sorted({_position(key) for key in keys})
    start = previous = None
    for position in positions:
        if start is None:
            start = position
        elif previous is not None and position != previous + 1:
            yield BUCKET_KEYS[start], BUCKET_KEYS[previous]
            start = position
        previous = position
    if start is not None and previous is not None:
        yield BUCKET_KEYS[start], BUCKET_KEYS[previous]


def safe_key_part(text: str) -> str:
    """Turn any text into one part of an asset key: `[A-Za-z0-9_.-]`, at most 77 characters; pure.

    Two texts never share a part: whatever had to be replaced or cut is told apart by a digest.
    """
    safe = _UNSAFE.sub("_", text)[:_SAFE_CHARACTERS_MAX]
    if safe == text and text:
        return text
    return f"{safe}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _position(key: str) -> int:
    try:
        return _POSITIONS[key]
    except KeyError:
        raise ValueError(f"{key!r} is not a bucket: expected SCALE/RATIO such as {BUCKET_KEYS[0]}") from None


_POSITIONS: Mapping[str, int] = {key: position for position, key in enumerate(BUCKET_KEYS)}
