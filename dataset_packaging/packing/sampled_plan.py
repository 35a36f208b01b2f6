"""`plan --sample`: what a first run would do, told from some lines of the manifest. Reads few objects, writes none."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dataset_packaging.core.bucketing import BUCKETS, bucket_of
from dataset_packaging.core.records import MappedRows, RecordMapper
from dataset_packaging.core.shard_plan import ESTIMATED_BYTES_PER_PX
from dataset_packaging.packing.manifest_step import require_decoders
from dataset_packaging.packing.preview import BucketPreview, PlanPreview
from dataset_packaging.packing.prices import Prices
from dataset_packaging.packing.probe import PendingRow, ProbeCache, probe_sizes
from dataset_packaging.packing.request_estimate import (
    MANIFEST_ROW_BYTES,
    BucketLoad,
    RunLoad,
    blocks_of,
    estimate_requests,
)
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.work_estimate import WorkEstimate, estimate_work

PROBED_MAX = 256
"""Objects whose header is read where the manifest tells no size: 32 at once, a few seconds."""


@dataclass(slots=True)
class _Tally:
    """What the sample holds; rows that were not probed themselves are counted by those that were."""

    rows: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    image_bytes: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    pixels: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    rejected: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    pending: float = 0.0
    unknown_sizes: int = 0

    def add(self, width_px: int, height_px: int, size_bytes: int, weight: float = 1.0) -> None:
        bucket = bucket_of(width_px, height_px).index
        pixels = width_px * height_px
        self.rows[bucket] += weight
        self.image_bytes[bucket] += weight * (size_bytes or pixels * ESTIMATED_BYTES_PER_PX)
        self.pixels[bucket] += weight * pixels


def preview_sample(
    run: Run,
    lines: Sequence[bytes],
    total_rows: int,
    prices: Prices,
) -> PlanPreview:
    """Returns what a run over `total_rows` rows like these would do, where nothing is packed yet.

    Counts are those of the sample, scaled. Duplicates are not looked for: only all rows would tell them. A bucket that
    holds fewer than 3 in len(lines) rows is missing with a chance of 5 % or more.

    Args:
        run: of the dataset.
        lines: of the manifest, evenly spread.
        total_rows: of the manifest, as far as they can be told.
        prices: of requests.
    """
    require_decoders(run)
    dataset = run.dataset
    mapper = RecordMapper(dataset.mapping, dataset.sidecar.extension_columns(), dataset.images.dimensions)
    mapped = mapper.map_lines(list(enumerate(lines, 1)), dataset.manifest[0])
    scale = total_rows / max(mapped.rows, 1)
    tally = _count(run, mapped)
    buckets, work = _scale_buckets(run, tally, scale)
    shards = sum(bucket.shards for bucket in buckets.values())
    load = RunLoad(
        len(dataset.manifest),
        total_rows * MANIFEST_ROW_BYTES,
        blocks_of(total_rows),
        round(tally.unknown_sizes * scale),
        tuple(BucketLoad.of_new(bucket.rows, bucket.estimated_bytes, bucket.shards) for bucket in buckets.values()),
        len(dataset.resized),
    )
    requests = estimate_requests(load)
    return PlanPreview(
        rows=total_rows,
        duplicates=0,
        rejected={reason: round(count * scale) for reason, count in tally.rejected.items()},
        pending=round(tally.pending * scale),
        buckets=buckets,
        reasons={"not packed yet": shards},
        requests=requests,
        dollars=prices.dollars(requests),
        sources=dataset.manifest,
        unchanged=False,
        work=work,
        sampled_rows=mapped.rows,
    )


def _count(run: Run, mapped: MappedRows) -> _Tally:
    tally = _Tally()
    for reject in mapped.rejects:
        tally.rejected[reject.reason] += 1
    unknown: list[PendingRow] = []
    told = zip(mapped.s3_image_path, mapped.width_px, mapped.height_px, mapped.expected_bytes, strict=True)
    for number, (uri, width, height, size) in enumerate(told):
        if width and height:
            tally.add(width, height, size or 0)
        else:
            unknown.append(PendingRow(number, uri, number))
    if not unknown:
        return tally
    tally.unknown_sizes = len(unknown)
    count = min(len(unknown), PROBED_MAX)
    asked = [unknown[number * len(unknown) // count] for number in range(count)]
    nothing_known = ProbeCache(np.zeros(0, np.uint64), np.zeros((0, 2), np.int32), {})
    found = probe_sizes(run.stores, run.dataset, asked, nothing_known)
    weight = len(unknown) / count
    for probed in found.sizes.values():
        tally.add(probed.width_px, probed.height_px, max(probed.size_bytes, 0), weight)
    for reason, _ in found.rejected.values():
        tally.rejected[reason] += weight
    tally.pending = len(found.pending) * weight
    return tally


def _scale_buckets(run: Run, tally: _Tally, scale: float) -> tuple[dict[str, BucketPreview], WorkEstimate]:
    """Returns the buckets, in order, with what the whole manifest would put there, and the time that takes."""
    packing = run.dataset.packing
    previews: dict[str, BucketPreview] = {}
    work = WorkEstimate()
    for bucket in sorted(tally.rows):
        rows, size = round(tally.rows[bucket] * scale), round(tally.image_bytes[bucket] * scale)
        shards = max(1, math.ceil(rows / packing.shard_size), math.ceil(size / packing.max_shard_bytes))
        previews[BUCKETS[bucket].key] = BucketPreview(rows, shards, size, 0, 0, shards)
        work = work.plus(estimate_work(rows, size, round(tally.pixels[bucket] * scale), shards))
    return previews, work
