"""How long packing takes, from pixels, bytes, images and shards; pure.

Source: `docs/performance.md`, CPU time of one worker on local files, measured on photographs of 0.2 to 12 megapixels.
The formats decide most of it and are not known before images are read: hence a range. It holds where decoding is the
bound; a network or a store that is slower than the workers adds to it.
"""

from dataclasses import dataclass

from dataset_packaging.core.shard_plan import ESTIMATED_BYTES_PER_PX

DECODE_S_PER_MEGAPIXEL = (0.0015, 0.0047, 0.013)
"""All baseline JPEG; the corpus of docs/performance.md (80 % JPEG, 13 % PNG, 7 % WebP); all WebP."""

_S_PER_MEGABYTE = 0.0023
_S_PER_IMAGE = 0.0001
_S_PER_SHARD = 0.01


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """Seconds of one worker, for images whose formats are unknown."""

    low_s: float = 0.0
    likely_s: float = 0.0
    high_s: float = 0.0

    def plus(self, other: "WorkEstimate") -> "WorkEstimate":
        """Return the sum of both."""
        return WorkEstimate(self.low_s + other.low_s, self.likely_s + other.likely_s, self.high_s + other.high_s)


def estimate_work(images: int, image_bytes: int, pixels: int, shards: int) -> WorkEstimate:
    """Return the time to pack so much. Where pixels are not known (0), they follow from the bytes."""
    megapixels = (pixels or image_bytes / ESTIMATED_BYTES_PER_PX) / 1e6
    rest_s = _S_PER_MEGABYTE * image_bytes / 1e6 + _S_PER_IMAGE * images + _S_PER_SHARD * shards
    return WorkEstimate(*(rest_s + rate * megapixels for rate in DECODE_S_PER_MEGAPIXEL))
