"""Which bucket an image of a given size belongs to: the only place that knows scales and aspect ratios.

The numbers are the specification of the public contract, section 1.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import total_ordering

import numpy as np
import numpy.typing as npt

SCALES: tuple[str, ...] = ("0_512", "512_1024", "1024_1536", "1536_2048", "2048_inf")
"""Names of the area classes, smallest first."""

_SCALE_LIMITS_PX2: tuple[int, ...] = (512**2, 1024**2, 1536**2, 2048**2)
"""Largest area (inclusive, px²) of each scale but the last, which has none."""

ASPECT_RATIOS: tuple[float, ...] = (
    0.3333, 0.4000, 0.4348, 0.5000, 0.5625, 0.6316, 0.6667, 0.7059, 0.7500,
    0.7778, 0.8000, 1.0000, 1.1930, 1.2500, 1.2857, 1.3333, 1.4167, 1.5000,
    1.7500, 1.7778, 1.9091, 2.0000, 2.3000, 2.6667, 3.0000, 3.3750, 4.0000,
)  # fmt: skip
"""Target ratios, width / height, ascending."""

AR_IDS: tuple[int, ...] = tuple(round(ratio * 10000) for ratio in ASPECT_RATIOS)
"""The ratios as they stand in paths: 3333, 10000, 17778."""

MAX_SIDE_PX = 2**31 - 1
"""Largest side that the int32 columns `width` and `height` can say."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Bucket:
    """One of the 135 buckets; ordered as in `BUCKETS` (by scale, then by ratio), not by its name."""

    scale: str
    ar_id: int
    index: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.scale not in SCALES or self.ar_id not in AR_IDS:
            raise ValueError(f"there is no bucket {self.scale}/{self.ar_id}")
        place = SCALES.index(self.scale) * len(AR_IDS) + AR_IDS.index(self.ar_id)
        object.__setattr__(self, "index", place)

    @property
    def key(self) -> str:
        """The bucket as it stands in paths, for example `512_1024/10000`."""
        return f"{self.scale}/{self.ar_id}"

    @classmethod
    def parse(cls, key: str) -> "Bucket":
        """Return the bucket of a key as `Bucket.key` writes it; anything else raises ValueError."""
        bucket = _BUCKET_OF_KEY.get(key)
        if bucket is None:
            raise ValueError(f"{key!r} is not a bucket: expected SCALE/RATIO such as 512_1024/10000")
        return bucket

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Bucket):
            return NotImplemented
        return self.index < other.index


BUCKETS: tuple[Bucket, ...] = tuple(Bucket(scale, ar_id) for scale in SCALES for ar_id in AR_IDS)
"""All 135, scale-major, ratios ascending; `BUCKETS[b.index] is b`."""

_BUCKET_OF_KEY: dict[str, Bucket] = {bucket.key: bucket for bucket in BUCKETS}


def bucket_of(width_px: int, height_px: int) -> Bucket:
    """Return the bucket of an image of this size as shown.

    Pure. The scale comes from the area, limits inclusive; the ratio is the target with the smallest absolute
    difference (float64) to width / height, the lower of two equally near ones.

    Args:
        width_px: 1 to `MAX_SIDE_PX`.
        height_px: 1 to `MAX_SIDE_PX`.

    Raises:
        ValueError: a side is out of its range.
    """
    if not (1 <= width_px <= MAX_SIDE_PX and 1 <= height_px <= MAX_SIDE_PX):
        raise ValueError(f"{width_px} x {height_px} is not the size of an image")
    scale = bisect_left(_SCALE_LIMITS_PX2, width_px * height_px)
    ratio = width_px / height_px
    upper = min(max(bisect_left(ASPECT_RATIOS, ratio), 1), len(ASPECT_RATIOS) - 1)
    # Targets ascend, so that the nearest is one of the two neighbours.
    lower_is_near = abs(ratio - ASPECT_RATIOS[upper - 1]) <= abs(ratio - ASPECT_RATIOS[upper])
    return BUCKETS[scale * len(ASPECT_RATIOS) + upper - lower_is_near]


def bucket_ids(width_px: npt.ArrayLike, height_px: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Return the indexes into `BUCKETS` of many sizes; agrees with `bucket_of` for each.

    Pure.

    Args:
        width_px: integers, 1 to `MAX_SIDE_PX`, shape (n,).
        height_px: the same shape.

    Raises:
        ValueError: a side is out of its range.
    """
    width = np.asarray(width_px, dtype=np.int64)
    height = np.asarray(height_px, dtype=np.int64)
    if width.size and (min(width.min(), height.min()) < 1 or max(width.max(), height.max()) > MAX_SIDE_PX):
        raise ValueError(f"sides must be 1 to {MAX_SIDE_PX} px")
    scale = np.searchsorted(np.array(_SCALE_LIMITS_PX2, dtype=np.int64), width * height, side="left")
    targets = np.array(ASPECT_RATIOS, dtype=np.float64)
    ratio = width / height
    upper = np.clip(np.searchsorted(targets, ratio, side="left"), 1, len(targets) - 1)
    lower_is_near = np.abs(ratio - targets[upper - 1]) <= np.abs(ratio - targets[upper])
    return (scale * len(targets) + upper - lower_is_near).astype(np.uint8)
