"""Generations: what one was made of, and which one is published.

Nothing reads a generation that `CURRENT.json` does not name. Its files are never changed again; a difference in size,
tag or hash is damage.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import pyarrow as pa

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import GenerationLayout, Layout
from dataset_packaging.core.receipts import StoredObject
from dataset_packaging.core.shard_plan import PlannedShard, combined_fingerprint
from dataset_packaging.errors import IndexDamaged, NotFound, ObjectDamaged
from dataset_packaging.io.parquet import read_table
from dataset_packaging.io.store import Stores

Tombstones: TypeAlias = Mapping[tuple[str, int], frozenset[int]]
"""The empty positions of each shard that has any, by bucket key and number."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A manifest file as it was read."""

    uri: str
    size_bytes: int
    tag: str


@dataclass(frozen=True, slots=True)
class WorkFile:
    """A file of a generation as it was written; `bucket`: key of its bucket, None for one of the whole dataset."""

    uri: str
    bucket: str | None
    object: StoredObject


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """A block as it was read: which bytes of which source, and the parts that it gave (True: with rejects)."""

    source: int
    start: int
    parts: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class BucketRecord:
    """A bucket of the generation: rows = planned live rows + duplicates."""

    bucket: str
    rows: int
    duplicates: int
    shards: int
    estimated_bytes: int


@dataclass(frozen=True, slots=True)
class GenerationSummary:
    """What a generation was made of and what it holds.

    rows = rows of the buckets + rejected + pending + unplaced_duplicates.

    Attributes:
        number: 1-based.
        prior: number of the generation that it grew from, or None.
        fingerprint: of sources and settings.
        probing: fingerprint of the settings that decide about rows without a bucket.
        owner: name and prefixes of the dataset.
        identity: settings that decide where rows stand.
        sources: in manifest order.
        blocks: in manifest order.
        rows: non-blank lines.
        rejected: rows without a bucket, by reason (duplicates are apart).
        pending: rows without a bucket whose size could not be read.
        duplicates: rows whose key stood before, in buckets or without one.
        unplaced_duplicates: those of them without a bucket.
        probed: objects whose header was read, in this or an earlier generation.
        buckets: those with rows or shards.
        files: those that later steps and generations read, as they were written.
    """

    number: int
    prior: int | None
    fingerprint: str
    probing: str
    owner: dict[str, str]
    identity: dict[str, str]
    sources: tuple[SourceRecord, ...]
    blocks: tuple[BlockRecord, ...]
    rows: int
    rejected: dict[str, int]
    pending: int
    duplicates: int
    unplaced_duplicates: int
    probed: int
    buckets: tuple[BucketRecord, ...]
    files: tuple[WorkFile, ...]

    def shard_count(self, bucket: Bucket) -> int:
        """Returns the planned shards of a bucket."""
        return next((record.shards for record in self.buckets if record.bucket == bucket.key), 0)


@dataclass(frozen=True, slots=True)
class Published:
    """A generation with its plan.

    Attributes:
        summary: what it holds.
        layout: where.
        shards: by bucket and number.
    """

    summary: GenerationSummary
    layout: GenerationLayout
    shards: tuple[PlannedShard, ...]

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets that have shards, in the order of the plan."""
        return list(dict.fromkeys(shard.bucket for shard in self.shards))

    def of_bucket(self, bucket: Bucket) -> list[PlannedShard]:
        """Returns the planned shards of a bucket, by number."""
        return [shard for shard in self.shards if shard.bucket == bucket]


PLAN_SCHEMA = pa.schema(
    [
        ("bucket", pa.string()),
        ("number", pa.int32()),
        ("rows", pa.int32()),
        ("live_rows", pa.int32()),
        ("estimated_bytes", pa.int64()),
        ("estimated_px", pa.int64()),
        ("fingerprint", pa.string()),
        ("sidecar_fingerprint", pa.string()),
    ]
)


def read_current_number(stores: Stores, layout: Layout) -> int | None:
    """Returns which generation is published, or None where there is none. Raises IndexDamaged for a damaged pointer."""
    try:
        pointer = msgspec.json.decode(stores.get(layout.current_uri), type=dict[str, int])
        return pointer["generation"]
    except NotFound:
        return None
    except (msgspec.DecodeError, KeyError) as error:
        raise IndexDamaged(f"{layout.current_uri} cannot be read ({error}); run pack again: it is rebuilt") from error


def read_current(stores: Stores, layout: Layout) -> Published | None:
    """Returns the published generation, or None where there is none. Raises IndexDamaged where it cannot be read."""
    number = read_current_number(stores, layout)
    return None if number is None else read_generation(stores, layout, number)


def owner_of(dataset: DatasetConfig) -> dict[str, str]:
    """Returns what says whose a work folder is. Pure."""
    return {
        "name": dataset.name,
        "output_prefix": dataset.output_prefix,
        "sidecar_prefix": dataset.sidecar_prefix,
    }


def generation_numbers(layout: Layout, uris: Iterable[str]) -> list[int]:
    """Returns the numbers of the generations that have any of these files, the highest first. Pure."""
    found = {generation_number(layout, uri) for uri in uris}
    return sorted((number for number in found if number is not None), reverse=True)


def generation_number(layout: Layout, uri: str) -> int | None:
    """Returns the number of the generation that a file belongs to, or None for another file. Pure."""
    found = re.match(r"(\d{6,})/", uri.removeprefix(layout.generations_prefix))
    return int(found[1]) if found and uri.startswith(layout.generations_prefix) else None


def read_summary(stores: Stores, layout: Layout, number: int) -> GenerationSummary:
    """Returns what a generation holds. Raises IndexDamaged where that cannot be read."""
    uri = layout.generation(number).summary_uri
    try:
        return msgspec.json.decode(stores.get(uri), type=GenerationSummary)
    except (NotFound, msgspec.DecodeError) as error:
        raise IndexDamaged(f"{uri} cannot be read ({error}); run pack again: it is rebuilt") from error


def read_generation(stores: Stores, layout: Layout, number: int) -> Published:
    """Returns one generation with its plan. Raises IndexDamaged where a file of it cannot be read."""
    summary = read_summary(stores, layout, number)
    generation = layout.generation(number)
    try:
        plan = read_table(stores, generation.plan_uri)
        columns = [plan[name].to_pylist() for name in PLAN_SCHEMA.names]
    except (NotFound, ObjectDamaged, KeyError) as error:
        raise IndexDamaged(f"{generation.plan_uri} cannot be read ({error}); run pack again: it is rebuilt") from error
    shards = tuple(PlannedShard(Bucket.parse(bucket), *values) for bucket, *values in zip(*columns, strict=True))
    return Published(summary, generation, shards)


def plan_content(current: Published) -> str:
    """Returns a digest of the plan: the same where every row stands in the same place with the same values. Pure."""
    return combined_fingerprint(
        *(
            f"{shard.bucket.key} {shard.number} {shard.fingerprint} {shard.sidecar_fingerprint}"
            for shard in current.shards
        )
    )


def read_tombstones(stores: Stores, current: Published) -> Tombstones:
    """Returns the places that their rows have left. Raises IndexDamaged where they cannot be read."""
    positions: dict[tuple[str, int], set[int]] = {}
    for bucket in dict.fromkeys(shard.bucket for shard in current.shards if shard.live_rows < shard.rows):
        uri = current.layout.tombstones_uri(bucket)
        try:
            table = read_table(stores, uri, ["shard", "position"])
        except (NotFound, ObjectDamaged) as error:
            raise IndexDamaged(f"{uri} cannot be read ({error}); run pack again: it is rebuilt") from error
        for number, position in zip(table["shard"].to_pylist(), table["position"].to_pylist(), strict=True):
            positions.setdefault((bucket.key, number), set()).add(position)
    return {place: frozenset(found) for place, found in positions.items()}
