"""What a dataset holds, counted from receipts and facts: rows, bytes, sizes, formats, nulls. No image is read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.crops import CropCounts
from dataset_packaging.core.histograms import AREA_EDGES_PX, BYTES_EDGES, RATIO_EDGES, SIDE_EDGES_PX, Histogram
from dataset_packaging.core.layout import Layout
from dataset_packaging.core.ledger import Ledger
from dataset_packaging.core.receipts import ShardReceipt, SidecarReceipt
from dataset_packaging.io.parquet import read_table
from dataset_packaging.io.store import StorageConfig, shared_stores
from dataset_packaging.packing.status import BucketStatus

_EDGES = {
    "width_px": SIDE_EDGES_PX,
    "height_px": SIDE_EDGES_PX,
    "area_px": AREA_EDGES_PX,
    "ratio": RATIO_EDGES,
    "image_bytes": BYTES_EDGES,
}
_FACTS = ["width", "height", "bytes", "format", "mode", "is_rgba", "frames"]


@dataclass(frozen=True, slots=True)
class BucketStats:
    """What one bucket holds.

    Attributes:
        bucket: its key.
        shards: with a receipt.
        rows: packed.
        image_bytes: of the original files.
        shard_bytes: of the shards.
        sidecar_bytes: of the sidecars.
        row_groups: of the shards.
        formats, modes: rows by format and by Pillow's mode.
        transparent, animated: rows.
        histograms: by name.
        nulls: rows without a value, by sidecar column.
        merged: merged columns: rows whose value is the source's.
        crops: what the crops did to captions.
    """

    bucket: str
    shards: int = 0
    rows: int = 0
    image_bytes: int = 0
    shard_bytes: int = 0
    sidecar_bytes: int = 0
    row_groups: int = 0
    formats: dict[str, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    transparent: int = 0
    animated: int = 0
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram.empty(edges) for name, edges in _EDGES.items()}
    )
    nulls: dict[str, int] = field(default_factory=dict)
    merged: dict[str, int] = field(default_factory=dict)
    crops: tuple[CropCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class StatsTask:
    """One bucket to count, by the receipts of its shards and sidecars."""

    dataset: DatasetConfig
    bucket: str
    shards: tuple[ShardReceipt, ...]
    sidecars: tuple[SidecarReceipt, ...]


def plan_stats(dataset: DatasetConfig, statuses: Iterable[BucketStatus]) -> list[StatsTask]:
    """Return the buckets to count, those without shards left out; pure."""
    return [
        StatsTask(
            dataset,
            status.bucket.key,
            tuple(state.receipt for state in status.shards if state.receipt is not None),
            tuple(state.receipt for state in status.sidecars if state.receipt is not None),
        )
        for status in statuses
        if status.shards
    ]


def count_bucket(task: StatsTask) -> BucketStats:
    """Count one bucket; reads the facts of its shards, one after the other."""
    stores = shared_stores(StorageConfig.of(task.dataset))
    layout = Layout(task.dataset.output_prefix, task.dataset.sidecar_prefix, task.dataset.work_prefix)
    bucket = next(bucket for bucket in BUCKETS if bucket.key == task.bucket)
    empty = BucketStats(task.bucket)
    histograms = dict(empty.histograms)
    formats: Counter[str] = Counter()
    modes: Counter[str] = Counter()
    transparent = animated = 0
    for receipt in task.shards:
        facts = read_table(stores, layout.facts_uri(bucket, receipt.number), _FACTS)
        width, height = (facts[name].to_numpy().astype(np.float64) for name in ("width", "height"))
        size = facts["bytes"].to_numpy().astype(np.float64)
        values = dict(zip(_EDGES, (width, height, width * height, width / height, size), strict=True))
        histograms = {name: histogram.add(values[name]) for name, histogram in histograms.items()}
        formats.update(facts["format"].to_pylist())
        modes.update(facts["mode"].to_pylist())
        transparent += int(np.count_nonzero(facts["is_rgba"].to_numpy()))
        animated += int(np.count_nonzero(facts["frames"].to_numpy() > 1))
    counted = _count_receipts(empty, task)
    return replace(
        counted,
        formats=dict(formats),
        modes=dict(modes),
        transparent=transparent,
        animated=animated,
        histograms=histograms,
    )


def _count_receipts(empty: BucketStats, task: StatsTask) -> BucketStats:
    nulls: Counter[str] = Counter()
    merged: Counter[str] = Counter()
    crops: dict[int, CropCounts] = {}
    for receipt in task.sidecars:
        nulls.update(receipt.null_counts)
        for column in receipt.merged:
            merged[column.column] += column.taken
        for counts in receipt.crops:
            crops[counts.size] = crops.get(counts.size, CropCounts(counts.size)).added(counts)
    return replace(
        empty,
        shards=len(task.shards),
        rows=sum(receipt.packed_rows for receipt in task.shards),
        image_bytes=sum(receipt.image_bytes for receipt in task.shards),
        shard_bytes=sum(receipt.object.size_bytes for receipt in task.shards),
        sidecar_bytes=sum(receipt.object.size_bytes for receipt in task.sidecars),
        row_groups=sum(receipt.row_groups for receipt in task.shards),
        nulls=dict(nulls),
        merged=dict(merged),
        crops=tuple(crops.values()),
    )


def sum_stats(buckets: Sequence[BucketStats]) -> BucketStats:
    """Return the counts of all buckets together; pure."""
    total = BucketStats("all")
    for bucket in buckets:
        total = _added(total, bucket)
    return total


def _added(left: BucketStats, right: BucketStats) -> BucketStats:
    def tally(name: str) -> dict[str, int]:
        return dict(Counter(getattr(left, name)) + Counter(getattr(right, name)))

    crops = {counts.size: counts for counts in left.crops}
    for counts in right.crops:
        crops[counts.size] = crops.get(counts.size, CropCounts(counts.size)).added(counts)
    return BucketStats(
        left.bucket,
        left.shards + right.shards,
        left.rows + right.rows,
        left.image_bytes + right.image_bytes,
        left.shard_bytes + right.shard_bytes,
        left.sidecar_bytes + right.sidecar_bytes,
        left.row_groups + right.row_groups,
        tally("formats"),
        tally("modes"),
        left.transparent + right.transparent,
        left.animated + right.animated,
        {name: left.histograms[name] + right.histograms[name] for name in _EDGES},
        tally("nulls"),
        tally("merged"),
        tuple(crops.values()),
    )


def describe_stats(buckets: Sequence[BucketStats], columns: Sequence[str], ledger: Ledger) -> dict[str, object]:
    """Return `stats.json` as plain data; pure.

    Args:
        buckets: those with shards.
        columns: of the sidecars, in order.
        ledger: the balance of the dataset.
    """
    total = sum_stats(buckets)
    balance = ledger.total
    return {
        "rows": total.rows,
        "shards": total.shards,
        "row_groups": total.row_groups,
        "image_bytes": total.image_bytes,
        "shard_bytes": total.shard_bytes,
        "sidecar_bytes": total.sidecar_bytes,
        "ledger": {
            "rows": balance.rows,
            "packed": balance.packed,
            "rejected": dict(sorted(balance.rejected.items())),
            "duplicates": balance.duplicates,
            "pending": balance.pending,
        },
        "formats": _descending(total.formats),
        "modes": _descending(total.modes),
        "transparent": total.transparent,
        "animated": total.animated,
        "buckets": {
            bucket.bucket: {
                "rows": bucket.rows,
                "shards": bucket.shards,
                "image_bytes": bucket.image_bytes,
                "shard_bytes": bucket.shard_bytes,
            }
            for bucket in buckets
            if bucket.rows
        },
        "histograms": {
            name: {"edges": [round(edge, 4) for edge in histogram.edges], "counts": list(histogram.counts)}
            for name, histogram in total.histograms.items()
        },
        "null_rates": {name: total.nulls.get(name, 0) / total.rows if total.rows else 0.0 for name in columns},
        "merged": total.merged,
        "crops": {
            str(counts.size): {
                "captions": counts.captions,
                "cropped": counts.cropped,
                "elements": counts.elements,
                "clipped": counts.clipped,
                "dropped": counts.dropped,
                "invalid": counts.invalid,
            }
            for counts in total.crops
        },
    }


def _descending(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
