"""The size of an image as shown, from the first bytes of its object."""

from __future__ import annotations

from dataclasses import dataclass

from dataset_packaging.imaging.attempt import Fault, attempt
from dataset_packaging.imaging.header import read_header, sniff_format
from dataset_packaging.imaging.opening import open_image, openers
from dataset_packaging.imaging.pillow_state import pillow_held
from dataset_packaging.imaging.policy import ImagePolicy
from dataset_packaging.imaging.shown import orientation_to_apply, stored_size, turned

_WEBP_EXIF_AND_XMP_FLAGS = 0b1100


@dataclass(frozen=True, slots=True)
class HeaderSize:
    """The size in pixels as shown, as far as the header alone can tell."""

    width_px: int
    height_px: int


def probe_header(head: bytes | memoryview, policy: ImagePolicy) -> HeaderSize | None:
    """Tell the size as shown from the first bytes of an object, without decoding.

    Pure. None means that these bytes do not tell it: more of them or a full verdict is needed. A size from here is a
    good guess for planning (an orientation may still stand behind the pixels); only a verdict is binding.
    """
    openers(policy.formats)
    if sniff_format(head) in ("WEBP", "AVIF", "HEIF"):
        return _probe_container(head, policy)
    with pillow_held(policy.max_pixels):
        image = attempt(lambda: open_image(head, policy.formats))
        if isinstance(image, Fault) or not image.tile or image.format not in policy.formats:
            return None
        stored = attempt(lambda: stored_size(image))
        orientation = attempt(lambda: orientation_to_apply(image))
    if isinstance(stored, Fault):
        return None
    if policy.orientation == "stored" or isinstance(orientation, Fault):
        return HeaderSize(*stored)
    return HeaderSize(*turned(stored, orientation))


def _probe_container(head: bytes | memoryview, policy: ImagePolicy) -> HeaderSize | None:
    """Probe the formats that Pillow can only open whole; orientation stands there in chunks that the head may lack."""
    header = read_header(head)
    if not header.width_px or header.format != "WEBP" or header.format not in policy.formats:
        return None
    has_metadata = bytes(head[12:16]) == b"VP8X" and bool(head[20] & _WEBP_EXIF_AND_XMP_FLAGS)
    if has_metadata and policy.orientation == "upright":
        return None
    return HeaderSize(header.width_px, header.height_px)
