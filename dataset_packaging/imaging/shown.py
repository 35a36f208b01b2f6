"""How large an image is as stored and as shown, from an image that Pillow has opened or loaded."""

from __future__ import annotations

from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

_IMAGE_WIDTH_TAG, _IMAGE_LENGTH_TAG, _ORIENTATION_TAG = 256, 257, 274
_SIDEWAYS_ORIENTATIONS = (5, 6, 7, 8)


def stored_size(image: Image.Image) -> tuple[int, int]:
    """Read the raster's size as it lies in the file: Pillow swaps a turned TIFF's size already when it opens it."""
    if isinstance(image, TiffImageFile):
        return int(image.tag_v2[_IMAGE_WIDTH_TAG]), int(image.tag_v2[_IMAGE_LENGTH_TAG])
    return image.size


def tiff_orientation(image: Image.Image) -> int | None:
    """Read a TIFF's own tag, which decoding removes; None for every other format."""
    if isinstance(image, TiffImageFile):
        return _whole_number(image.tag_v2.get(_ORIENTATION_TAG, 1))
    return None


def orientation_to_apply(image: Image.Image) -> int:
    """Read the orientation that ``ImageOps.exif_transpose`` would follow, without a decode of its own.

    Raises whatever Pillow raises for metadata that it cannot read.
    """
    exif = Image.Image.getexif(image)  # a PNG's own getexif() decodes the pixels first
    return _whole_number(exif.get(_ORIENTATION_TAG, 1))


def turned(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Give the size of a raster as shown under an orientation; a value that means nothing turns nothing."""
    return size[::-1] if orientation in _SIDEWAYS_ORIENTATIONS else size


def _whole_number(value: object) -> int:
    """Take a tag's value as an integer where it equals one, else as 1: no orientation."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return 1
    return number if number == value else 1
