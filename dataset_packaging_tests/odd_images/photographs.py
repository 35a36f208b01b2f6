"""Real photographs in every shape that they have in real buckets: as cameras, editors and crawlers leave them."""

import base64
import gzip
import random
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import skimage
from PIL import Image, ImageCms

from dataset_packaging_tests.odd_images.encodings import Named, encoded, exif
from dataset_packaging_tests.odd_images.png import GREY, GREY_ALPHA, PALETTE, RGB, RGBA, Png

EXAMPLES = Path(__file__).parents[2] / "examples" / "photos"
SCIKIT_IMAGE = Path(skimage.__file__).parent / "data"
SUBJECTS = (
    "astronaut.png brick.png camera.png chelsea.png clock_motion.png coffee.png coins.png grass.png gravel.png "
    "hubble_deep_field.jpg ihc.png moon.png motorcycle_left.png motorcycle_right.png retina.jpg rocket.jpg"
).split()
WRONG_NAMES = ("jpg.png", "png.jpg", "webp.jpeg", "gif.jpg", "tif.png", "bmp", "jpg.html", "")


@cache
def subject(name: str, width: int = 144, height: int = 96) -> Image.Image:
    """Returns the middle of a photograph in its own mode, at another size for each."""
    with Image.open(SCIKIT_IMAGE / name) as image:
        middle = (image.width // 4, image.height // 4, image.width * 3 // 4, image.height * 3 // 4)
        number = SUBJECTS.index(name)
        return image.crop(middle).resize((width + 3 * number, height + number % 5))


def originals() -> Iterator[Named]:
    """Yields the photographs of the examples that decode, byte by byte as they are."""
    for path in sorted(EXAMPLES.iterdir()):
        if path.suffix != ".md" and "_cut" not in path.stem:
            yield f"example/{path.name}", path.read_bytes()


def whole() -> Iterator[Named]:
    """Yields about 45 files of each photograph; all of them decode."""
    yield from originals()
    for name in SUBJECTS:
        image = subject(name)
        colour, stem = image.convert("RGB"), name.partition(".")[0]
        for variant, data in (*_jpegs(colour), *_pngs(colour), *_others(colour), *_wrongly_named(colour)):
            yield f"{stem}_{variant}", data
        yield f"{stem}_as_it_is.png", encoded(image, "PNG")


def damaged() -> Iterator[Named]:
    """Yields about 20 files of each photograph that are cut, changed, lie about their size or are none any more."""
    for name in SUBJECTS:
        colour, stem = subject(name).convert("RGB"), name.partition(".")[0]
        for variant, data in _damaged(colour, random.Random(name)):
            yield f"{stem}_{variant}", data


def _jpegs(image: Image.Image) -> Iterator[Named]:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    yield "baseline.jpg", encoded(image, "JPEG", quality=80)
    yield "progressive.jpg", encoded(image, "JPEG", quality=80, progressive=True)
    yield "subsampled_422.jpg", encoded(image, "JPEG", subsampling="4:2:2")
    yield "full_colour.JPG", encoded(image, "JPEG", subsampling="4:4:4", quality=95)
    yield "restarts.jpeg", encoded(image, "JPEG", restart_marker_rows=1)
    yield "optimized.jpg", encoded(image, "JPEG", optimize=True)
    undated = profile[:24] + bytes(12) + profile[36:]
    yield "profile.jpg", encoded(image, "JPEG", icc_profile=undated)
    yield "cmyk.jpg", encoded(image.convert("CMYK"), "JPEG")
    yield "grey.jpg", encoded(image.convert("L"), "JPEG")
    yield "burst.jpg", encoded(image, "MPO", save_all=True, append_images=[image.rotate(90), image])
    yield "thumbnail_behind.jpg", encoded(image, "JPEG") + encoded(image.resize((16, 16)), "JPEG")
    for orientation in range(2, 9):
        yield f"turned_{orientation}.jpg", encoded(image, "JPEG", exif=exif(orientation))


def _pngs(image: Image.Image) -> Iterator[Named]:
    pixels = np.asarray(image)
    grey = np.asarray(image.convert("L"))[..., None].astype(np.int64)
    alpha = np.broadcast_to(np.arange(image.width)[None, :, None] % 256, grey.shape)
    yield "plain.png", encoded(image, "PNG")
    yield "palette.png", encoded(image.quantize(64), "PNG")
    yield "palette_transparent.png", encoded(image.quantize(16), "PNG", transparency=3)
    yield "keyed.png", encoded(image, "PNG", transparency=(0, 0, 0))
    yield "bilevel.png", encoded(image.convert("1"), "PNG")
    yield "turned.png", encoded(image, "PNG", exif=exif(6))
    yield "interlaced.png", Png(pixels, 8, RGB, interlaced=True).encoded(data_pieces=3)
    yield "interlaced_palette.png", Png(grey // 16, 4, PALETTE, interlaced=True).encoded()
    yield "sixteen_bits.png", Png(grey * 257, 16, GREY).encoded()
    yield "sixteen_bits_interlaced.png", Png(pixels.astype(np.int64) * 257, 16, RGB, interlaced=True).encoded()
    yield "alpha.png", Png(np.concatenate([pixels, alpha], axis=2), 8, RGBA).encoded()
    yield "grey_alpha.png", Png(np.concatenate([grey, alpha], axis=2), 8, GREY_ALPHA).encoded()
    yield "animated.png", encoded(image, "PNG", save_all=True, append_images=[image.rotate(5), image.rotate(9)])


def _others(image: Image.Image) -> Iterator[Named]:
    frames = [image.rotate(angle) for angle in (3, 6)]
    yield "lossy.webp", encoded(image, "WEBP", quality=70)
    yield "lossless.webp", encoded(image, "WEBP", lossless=True, method=0)
    yield "turned.webp", encoded(image, "WEBP", exif=exif(8))
    yield "animated.webp", encoded(image, "WEBP", save_all=True, append_images=frames, method=0)
    yield "still.gif", encoded(image, "GIF")
    yield "animated.gif", encoded(image, "GIF", save_all=True, append_images=frames)
    yield "lzw.tif", encoded(image, "TIFF", compression="tiff_lzw")
    yield "cmyk.tif", encoded(image.convert("CMYK"), "TIFF")
    yield "sixteen_bits.tiff", encoded(image.convert("L").convert("I;16"), "TIFF")
    yield "pages.tif", encoded(image, "TIFF", save_all=True, append_images=frames)
    yield "bitmap.bmp", encoded(image, "BMP")
    yield "sliver.png", encoded(image.crop((0, 0, image.width, 1)), "PNG")
    yield "pixel.webp", encoded(image.crop((5, 5, 6, 6)), "WEBP")


def _wrongly_named(image: Image.Image) -> Iterator[Named]:
    kinds = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "JPEG", "PNG")
    for suffix, kind in zip(WRONG_NAMES, kinds, strict=True):
        yield f"named.{suffix}".rstrip("."), encoded(image, kind)


def _damaged(image: Image.Image, chance: random.Random) -> Iterator[Named]:
    jpeg, png = encoded(image, "JPEG", quality=85), encoded(image, "PNG")
    files = {
        "jpg": jpeg,
        "progressive.jpg": encoded(image, "JPEG", progressive=True),
        "png": png,
        "webp": encoded(image, "WEBP"),
        "gif": encoded(image, "GIF"),
        "tif": encoded(image, "TIFF", compression="tiff_lzw"),
    }
    for suffix, data in files.items():
        yield f"cut.{suffix}", data[: chance.randrange(len(data) // 20, len(data))]
    for suffix in ("jpg", "progressive.jpg", "png", "webp"):
        data = files[suffix]
        place = chance.randrange(len(data) // 4, len(data) - 200)
        yield f"changed.{suffix}", data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        yield f"zeroed.{suffix}", data[:place] + bytes(100) + data[place + 100 :]
    yield "without_end.jpg", jpeg[:-2]
    yield "padded.jpg", jpeg + bytes(1000)
    yield "bomb.png", png[:16] + struct.pack(">II", 50_000, 50_000) + png[24:]
    frame = jpeg.index(b"\xff\xc0") + 5
    yield "bomb.jpg", jpeg[:frame] + struct.pack(">HH", 65_000, 65_000) + jpeg[frame + 4 :]
    yield "packed.jpg", gzip.compress(jpeg, mtime=0)
    yield "as_text.jpg", b"data:image/jpeg;base64," + base64.b64encode(jpeg)
    yield "forbidden.jp2", encoded(image, "JPEG2000")
