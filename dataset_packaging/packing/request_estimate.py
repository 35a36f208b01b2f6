"""How many requests a run makes, from what it has to do; pure.

Source: runs of the `pack` command, every request of them counted by a proxy before a real S3 server: 60 to 300 images
in 3 to 25 buckets, first runs and later ones. `dataset_packaging_tests/packing/test_requests.py` counts again. What a
store refuses is asked again, and comes on top.
"""

import math
from dataclasses import dataclass

from dataset_packaging.io.range_file import LARGEST_READ_AHEAD_BYTES, SMALLEST_READ_AHEAD_BYTES

LISTED_AT_ONCE = 1000
"""Objects that one LIST tells."""

ROWS_PER_BLOCK = 32_000
MANIFEST_ROW_BYTES = 2_000
"""Of a manifest whose files are not looked at: what a block of 64 MiB then holds."""

INDEX_ROW_BYTES = 500
"""What a row takes in the index, and in a sidecar."""

SINGLE_READ_BYTES = 64 << 10
"""A file of so much is read by the request that opens it."""

PART_BYTES = 16 << 20
"""Of a multipart upload: what one PUT carries of a shard."""

_INDEX_GROUP_BYTES = 4 << 20
_SHEET_IMAGES = 12
_SHEET_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by kind. `puts` are all that write: parts, and start and end of multipart uploads, too."""

    gets: int = 0
    heads: int = 0
    puts: int = 0
    lists: int = 0


@dataclass(frozen=True, slots=True)
class BucketLoad:
    """What a run does in one bucket.

    Attributes:
        rows: of the plan.
        image_bytes: of these rows.
        fetched: images to be fetched.
        shards: of the plan.
        written: shards to be written.
        sidecars: to be written.
    """

    rows: int
    image_bytes: int
    fetched: int
    shards: int
    written: int
    sidecars: int

    @classmethod
    def of_new(cls, rows: int, image_bytes: int, shards: int) -> "BucketLoad":
        """Returns the load of a bucket of which nothing is packed yet."""
        return cls(rows, image_bytes, rows, shards, shards, shards)


@dataclass(frozen=True, slots=True)
class RunLoad:
    """What a run does.

    Attributes:
        sources: manifest files.
        manifest_bytes: of them.
        blocks: of the manifest that are read; 0 where the published plan holds.
        probed: objects whose header is read.
        buckets: those with shards.
        resized: sets of resized images.
        grows: whether the new plan grows from an earlier one.
    """

    sources: int
    manifest_bytes: int
    blocks: int
    probed: int
    buckets: tuple[BucketLoad, ...]
    resized: int = 0
    grows: bool = False


def blocks_of(rows: int) -> int:
    """Returns the blocks of a manifest of so many rows, about."""
    return math.ceil(rows / ROWS_PER_BLOCK)


def estimate_requests(load: RunLoad) -> Requests:
    """Returns what a run of the whole dataset asks of the store, about."""
    shards = sum(bucket.shards for bucket in load.buckets)
    pages = max(1, math.ceil(shards / LISTED_AT_ONCE))
    if not load.blocks and not any(bucket.written or bucket.sidecars for bucket in load.buckets):
        return Requests(19 + 2 * shards, load.sources, 0, 15 + 5 * pages)
    plan_gets, plan_puts = _plan_requests(load)
    uploads = [_upload_requests(bucket) for bucket in load.buckets]
    resized_gets, resized_puts = _resized_requests(load)
    return Requests(
        gets=45 + plan_gets + sum(map(_bucket_gets, load.buckets)) + resized_gets,
        heads=2 * load.sources + sum(heads for _, heads in uploads),
        puts=7 + plan_puts + sum(puts for puts, _ in uploads) + resized_puts,
        lists=21 + 58 * pages + 6 * load.resized,
    )


def sequential_gets(size_bytes: float) -> int:
    """Returns the GETs of reading so much in one go, with the read-ahead of an open file."""
    gets, ahead_bytes = 0, SMALLEST_READ_AHEAD_BYTES
    while size_bytes > 0 and ahead_bytes < LARGEST_READ_AHEAD_BYTES:
        size_bytes -= ahead_bytes
        ahead_bytes *= 2
        gets += 1
    return gets + max(0, math.ceil(size_bytes / LARGEST_READ_AHEAD_BYTES))


def _plan_requests(load: RunLoad) -> tuple[int, int]:
    """Returns GETs and PUTs of a new plan: blocks, probes, the files of each bucket; of the old one only its checks."""
    buckets = len(load.buckets)
    if not load.blocks:
        return 2 * buckets, 0
    block_gets = 1 + sequential_gets(load.manifest_bytes / load.blocks) + buckets
    gets = 20 + 4 * load.sources + load.blocks * block_gets + load.probed + (6 if load.grows else 4) * buckets
    return gets, 8 + 2 * load.blocks + 2 * buckets


def _bucket_gets(bucket: BucketLoad) -> int:
    """Returns the GETs of fetching, writing and checking the shards and sidecars of a bucket, and of its sheet."""
    if not bucket.shards:
        return 0
    kept = bucket.shards - bucket.written
    index_gets = 1 + _more_gets(min(bucket.rows * INDEX_ROW_BYTES, _INDEX_GROUP_BYTES))
    shard_bytes = bucket.image_bytes / bucket.shards
    sidecar_bytes = INDEX_ROW_BYTES * bucket.rows / bucket.shards
    checks = (3 if shard_bytes > SINGLE_READ_BYTES else 1) + (4 if sidecar_bytes > SINGLE_READ_BYTES else 1)
    sheet_bytes = min(shard_bytes, _SHEET_IMAGES * bucket.image_bytes / max(1, bucket.rows))
    sheet = 3 + math.ceil(sheet_bytes / _SHEET_READ_BYTES) if shard_bytes > SINGLE_READ_BYTES else 1
    return (
        bucket.fetched
        + bucket.written * (3 + index_gets)  # receipt; rows
        + bucket.sidecars * (3 + index_gets)  # receipt; rows, facts
        + kept * 9
        + bucket.shards * checks
        + (min(bucket.shards, 2) * sheet if bucket.written else 0)
        + 2  # the sheet, the preview of the sidecar
    )


def _more_gets(size_bytes: float) -> int:
    return sequential_gets(size_bytes) if size_bytes > SINGLE_READ_BYTES else 0


def _upload_requests(bucket: BucketLoad) -> tuple[int, int]:
    """Returns PUTs and HEADs of a bucket: shard, facts, receipt; sidecar, receipt; sheet."""
    parts = math.ceil(bucket.image_bytes / max(1, bucket.shards) / PART_BYTES)
    uploads = parts + 2 if parts > 1 else 1
    puts = bucket.written * (uploads + 2) + 2 * bucket.sidecars + (1 if bucket.written else 0)
    return puts, bucket.written if parts > 1 else 0


def _resized_requests(load: RunLoad) -> tuple[int, int]:
    """Returns GETs and PUTs of the resized images: shards are read once for each set, and what was made is checked."""
    gets = sum(
        bucket.written * (4 + sequential_gets(bucket.image_bytes / bucket.shards))
        for bucket in load.buckets
        if bucket.shards
    )
    return load.resized * gets, load.resized * sum(2 * bucket.written for bucket in load.buckets)
