"""One image to a smaller or larger WebP as it is shown: turned upright, in sRGB, with its alpha. Pure.

Of an animated image the first frame is taken, which is the one that was verified.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from PIL import Image, ImageCms

from dataset_packaging.imaging.attempt import Fault, attempt
from dataset_packaging.imaging.opening import open_image
from dataset_packaging.imaging.pillow_state import pillow_held
from dataset_packaging.imaging.shown import orientation_to_apply, turned

RESIZE_VERSION = 1
"""Raised when the pixels or the encoding of resized images change."""

WEBP_QUALITY = 95
WEBP_SIDE_MAX_PX = 16383
"""The format's own limit."""

_RESIZED_PX_MAX = 1 << 26
"""What may be held before the crop: 256 MB. Only images of a few pixels in height or width come near it."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SPACES = {"RGB ": ("RGB",), "GRAY": ("L",), "CMYK": ("CMYK",)}


@dataclass(frozen=True, slots=True)
class Resize:
    """What is wanted of an image; sizes as shown.

    Attributes:
        resized_px: width and height before the crop.
        crop_px: left, top, right, bottom within them; right and bottom exclusive.
        formats: that the dataset admits.
        max_pixels: largest image that is decoded.
        upright: whether the EXIF orientation is applied.
    """

    resized_px: tuple[int, int]
    crop_px: tuple[int, int, int, int]
    formats: tuple[str, ...]
    max_pixels: int
    upright: bool = True


def resize_image(data: bytes | memoryview, wish: Resize) -> bytes | str:
    """Return the resized image as a WebP without metadata, or in one line why there is none.

    The same bytes and the same versions of Pillow, libwebp and LittleCMS give the same result. A colour profile that is
    broken, or is not of the image's own colour space, counts as absent. Never raises for anything that the image did.
    Memory: one decode (of a JPEG reduced by whole steps, where it is far larger than wanted) and the result.

    Raises:
        MemoryError: there is not enough of it now, which is no fault of the image.
    """
    left, top, right, bottom = wish.crop_px
    if max(right - left, bottom - top) > WEBP_SIDE_MAX_PX:
        return f"{right - left} x {bottom - top} pixels are more than the {WEBP_SIDE_MAX_PX} of a WebP's side"
    if wish.resized_px[0] * wish.resized_px[1] > _RESIZED_PX_MAX:
        return f"too narrow: it would have {wish.resized_px[0]} x {wish.resized_px[1]} pixels before the crop"
    with pillow_held(wish.max_pixels):
        made = attempt(lambda: _resize(data, wish))
    if isinstance(made, Fault):
        if isinstance(made.error, MemoryError):
            raise made.error
        return made.describe()
    return made


def _resize(data: bytes | memoryview, wish: Resize) -> bytes:
    image = open_image(data, wish.formats)
    orientation = _orientation(image) if wish.upright else 1
    raster_px = turned(wish.resized_px, orientation)
    image.draft(None, (2 * raster_px[0], 2 * raster_px[1]))  # None keeps the mode
    image.load()
    profile = image.info.get("icc_profile")
    # A TIFF is upright once it is loaded, and has no orientation any more.
    orientation = _orientation(image) if wish.upright else 1
    # Pillow weighs colours by their alpha, so that what is transparent does not bleed into edges.
    resized = _in_bytes(image).resize(turned(wish.resized_px, orientation), Image.Resampling.LANCZOS)
    plain, alpha = _split_alpha(resized)
    shown = _in_srgb(plain, profile if isinstance(profile, bytes) else None)
    if alpha is not None:
        shown.putalpha(alpha)
    if orientation in _UPRIGHT:
        shown = shown.transpose(_UPRIGHT[orientation])
    shown = shown.crop(wish.crop_px)
    shown.info = {}
    target = io.BytesIO()
    shown.save(target, "WEBP", quality=WEBP_QUALITY, method=4)
    return target.getvalue()


def _orientation(image: Image.Image) -> int:
    """Read the orientation; metadata that cannot be read turns nothing, as where the image was verified."""
    found = attempt(lambda: orientation_to_apply(image))
    return 1 if isinstance(found, Fault) else found


def _in_bytes(image: Image.Image) -> Image.Image:
    """Return the image with 8 bits per sample: L, LA, RGB, RGBA or CMYK; Pillow itself would clip 16-bit grey."""
    if image.mode.startswith("I;16"):
        samples = np.asarray(image).astype(np.uint32)
        grey = Image.fromarray(((samples * 255 + 32767) // 65535).astype(np.uint8))
        key = image.info.get("transparency")
        if isinstance(key, int):
            grey.putalpha(Image.fromarray(np.where(samples == key, 0, 255).astype(np.uint8)))
        return grey
    if image.mode in ("I", "F"):
        raise ValueError(f"samples of mode {image.mode} have no range of their own")
    if image.mode in ("LA", "RGBA") or (image.mode in ("L", "RGB", "CMYK") and not image.has_transparency_data):
        return image
    return image.convert("RGBA" if image.has_transparency_data else "L" if image.mode == "1" else "RGB")


def _split_alpha(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    if image.mode not in ("LA", "RGBA"):
        return image, None
    *bands, alpha = image.split()
    return Image.merge(image.mode[:-1], bands), alpha


def _in_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Return the image as RGB in sRGB; where no profile applies, its numbers are taken as sRGB already."""
    if profile:
        converted = attempt(lambda: _convert(image, profile))
        if not isinstance(converted, Fault):
            return converted
        if isinstance(converted.error, MemoryError):
            raise converted.error
    return image.convert("RGB")


def _convert(image: Image.Image, profile: bytes) -> Image.Image:
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    described = cast(Any, source.profile)
    if image.mode not in _SPACES.get(described.xcolor_space, ()):
        raise ValueError(f"a profile of {described.xcolor_space} in an image of mode {image.mode}")
    target = ImageCms.createProfile("sRGB")
    return cast(Image.Image, ImageCms.profileToProfile(image, source, target, outputMode="RGB"))
