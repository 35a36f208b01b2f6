"""What a dataset asks of its images, and what is found out about one of them: plain frozen records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

POLICY_VERSION = 1
"""Raised whenever a change may turn an accepted image into a refused one, or the other way round."""


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """What a dataset asks of its images.

    ``formats`` are Pillow's names, told by content; ``max_pixels`` and ``max_bytes`` are inclusive.
    """

    integrity: Literal["strict", "load"]
    orientation: Literal["upright", "stored"]
    formats: tuple[str, ...]
    max_pixels: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of one image and what was learnt about it; unknown figures of a refused image are 0 or ``""``.

    ``reason`` is None for an accepted image, else one of the stable names of rejects. ``width_px`` and ``height_px``
    are as shown under the policy's orientation, ``stored_*`` as the raster lies in the file. ``warnings`` are stable
    names of faults outside the pixels: ``missing_iend``, ``bad_chunk_checksum``, ``stray_header_bytes``,
    ``odd_header``, ``not_strictly_checked``, ``bad_exif``, ``bad_icc``, ``bad_xmp``, ``unknown_frame_count``.
    """

    reason: str | None
    detail: str = ""
    format: str = ""
    mode: str = ""
    frames: int = 0
    stored_width_px: int = 0
    stored_height_px: int = 0
    width_px: int = 0
    height_px: int = 0
    exif_orientation: int = 1
    is_rgba: bool = False
    warnings: tuple[str, ...] = ()
