"""Counts in fixed classes, so that those of shards and buckets add up to those of the dataset. Pure."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values fall between edges.

    Attributes:
        edges: ascending; class i is [edges[i], edges[i + 1]), the first also takes all below, the last all above.
        counts: one less than edges.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]

    @classmethod
    def empty(cls, edges: tuple[float, ...]) -> "Histogram":
        """Return a histogram of nothing."""
        return cls(edges, (0,) * (len(edges) - 1))

    def add(self, values: npt.NDArray[np.float64]) -> "Histogram":
        """Return the histogram with more values."""
        at = np.clip(np.searchsorted(self.edges, values, "right") - 1, 0, len(self.counts) - 1)
        more = np.bincount(at, minlength=len(self.counts))
        return Histogram(self.edges, tuple(int(a + b) for a, b in zip(self.counts, more, strict=True)))

    def __add__(self, other: "Histogram") -> "Histogram":
        if self.edges != other.edges:
            raise ValueError("histograms of different classes do not add up")
        return Histogram(self.edges, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    @property
    def total(self) -> int:
        """All values."""
        return sum(self.counts)


def _doublings(start: float, count: int, steps: int = 1) -> tuple[float, ...]:
    return tuple(start * 2 ** (step / steps) for step in range(count * steps + 1))


SIDE_EDGES_PX = _doublings(16, 11, 2)
"""Width and height: from 16 to 32,768 pixels, two classes for each doubling."""

AREA_EDGES_PX = _doublings(4096, 16)
"""From 64² to 16,384² pixels, one class for each doubling; 512², 1024² and 2048² are edges."""

RATIO_EDGES = tuple(2 ** (step / 4) for step in range(-12, 13))
"""Width / height: from 1/8 to 8, four classes for each doubling, 1 is an edge."""

BYTES_EDGES = _doublings(1024, 18)
"""From 1 KiB to 256 MiB, one class for each doubling."""
