"""Photographs that come with scikit-image, and the policies that the tests judge them by."""

import io
from functools import cache
from pathlib import Path

import skimage
from PIL import Image

from dataset_packaging.imaging.verify import ImagePolicy

CONTRACT_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP")
STRICT = ImagePolicy("strict", "upright", CONTRACT_FORMATS, max_pixels=300_000_000, max_bytes=268_435_456)
LOAD = ImagePolicy("load", "upright", CONTRACT_FORMATS, max_pixels=300_000_000, max_bytes=268_435_456)
PHOTOGRAPHS = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "motorcycle_left.png",
    "rocket.jpg",
    "hubble_deep_field.jpg",
)


@cache
def photograph(name: str = "astronaut.png") -> Image.Image:
    """Read one of scikit-image's packaged photographs as RGB."""
    with Image.open(Path(skimage.__file__).parent / "data" / name) as image:
        return image.convert("RGB")


def encoded(image: Image.Image, format_name: str, **options: object) -> bytes:
    """Encode an image as Pillow does."""
    buffer = io.BytesIO()
    image.save(buffer, format_name, **options)
    return buffer.getvalue()
