"""Whole files in every encoding that occurs: formats, modes, depths, rotations, sizes. All of them decode."""

import math
import struct
from collections.abc import Iterator
from io import BytesIO

import numpy as np
from PIL import Image

from dataset_packaging_tests.odd_images.png import GREY, GREY_ALPHA, PALETTE, RGB, RGBA, Png, chunk, pattern

Named = tuple[str, bytes]
RATIOS = (
    "0.3333 0.4000 0.4348 0.5000 0.5625 0.6316 0.6667 0.7059 0.7500 0.7778 0.8000 1.0000 1.1930 1.2500 1.2857 1.3333 "
    "1.4167 1.5000 1.7500 1.7778 1.9091 2.0000 2.3000 2.6667 3.0000 3.3750 4.0000"
).split()
ORIENTATION_TAG = 0x0112


def picture(mode: str = "RGB", width: int = 97, height: int = 61, seed: int = 0) -> Image.Image:
    """Returns a picture with edges, gradients and noise, the same for the same arguments."""
    noise = np.random.default_rng(seed).integers(0, 40, (height, width, 4))
    rows, columns = np.mgrid[0:height, 0:width]
    planes = [rows * 255 // height, columns * 255 // width, (rows // 8 + columns // 8) % 2 * 200, rows * 3 % 256]
    pixels = np.clip(np.stack(planes, axis=2) + noise, 0, 255).astype(np.uint8)
    whole = Image.fromarray(pixels, "RGBA") if mode in {"RGBA", "LA", "PA"} else Image.fromarray(pixels[..., :3], "RGB")
    if mode in {"I;16", "F", "I"}:
        values = (rows * 301 + columns * 97) % 65536
        return Image.fromarray(values.astype({"I;16": np.uint16, "F": np.float32, "I": np.int32}[mode]))
    return whole if whole.mode == mode else whole.convert(mode)


def encoded(image: Image.Image, format_: str, **options: object) -> bytes:
    """Returns the file's bytes."""
    target = BytesIO()
    image.save(target, format_, **options)
    return target.getvalue()


def exif(orientation: int) -> Image.Exif:
    """Returns EXIF data that hold an orientation and a camera."""
    found = Image.Exif()
    found[ORIENTATION_TAG] = orientation
    found[0x010F] = "Odd"
    return found


def jpegs() -> Iterator[Named]:
    """Yields JPEG variants: samplings, progressive, restart markers, grey, CMYK, MPO."""
    for sampling in ("4:4:4", "4:2:2", "4:2:0"):
        for progressive in (False, True):
            name = f"sampling_{sampling.replace(':', '')}_{'progressive' if progressive else 'baseline'}.jpg"
            yield name, encoded(picture(), "JPEG", subsampling=sampling, progressive=progressive)
    for quality in (1, 35, 75, 100):
        yield f"quality_{quality}.jpg", encoded(picture(), "JPEG", quality=quality)
    for mode in ("L", "CMYK", "YCbCr"):
        yield f"mode_{mode}.jpg", encoded(picture(mode), "JPEG")
    yield "restart_markers.jpg", encoded(picture(), "JPEG", restart_marker_blocks=2)
    yield "comment.jpg", encoded(picture(), "JPEG", comment=b"\xff\xfe binary \x00 comment")
    two = [picture(seed=1), picture(seed=2)]
    yield "two_frames.mpo", encoded(two[0], "MPO", save_all=True, append_images=two[1:])
    yield "two_frames_named.jpg", encoded(two[1], "MPO", save_all=True, append_images=two[:1])


def pngs() -> Iterator[Named]:
    """Yields every depth and colour type, plain and interlaced, with and without tRNS; APNG."""
    kinds = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGBA: (8, 16)}
    transparent = {GREY: b"\x00\x03", RGB: b"\x00\x03\x00\x2c\x00\x55", PALETTE: b"\xff\x00"}
    for colour, depths in kinds.items():
        for depth in depths:
            samples = pattern(37, 29, colour, depth)
            for interlaced in (False, True):
                name = f"colour{colour}_depth{depth}{'_interlaced' if interlaced else ''}"
                yield f"{name}.png", Png(samples, depth, colour, interlaced).encoded(data_pieces=1 + interlaced * 3)
                if colour in transparent:
                    keyed = Png(samples, depth, colour, interlaced, chunk(b"tRNS", transparent[colour]))
                    yield f"{name}_trns.png", keyed.encoded()
    frames = [picture("RGBA", seed=number) for number in range(3)]
    yield "animated.png", encoded(frames[0], "PNG", save_all=True, append_images=frames[1:], duration=50)
    yield "opaque_alpha.png", encoded(picture("RGB").convert("RGBA"), "PNG")
    yield "many_pieces.png", Png(pattern(64, 64, RGB, 8), 8, RGB).encoded(data_pieces=40)


def others() -> Iterator[Named]:
    """Yields GIF, WebP, TIFF and BMP variants."""
    frames = [picture("P", seed=number) for number in range(4)]
    yield "still.gif", encoded(frames[0], "GIF")
    yield "transparent.gif", encoded(frames[0], "GIF", transparency=3)
    yield "animated.gif", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=40, loop=0)
    yield "comment.gif", encoded(frames[0], "GIF", comment=b"\xe9\xff")
    yield "interlaced.gif", encoded(picture("L"), "GIF", interlace=1)
    coloured = [picture("RGBA", seed=number) for number in range(3)]
    yield "lossy.webp", encoded(picture(), "WEBP", quality=70)
    yield "lossless.webp", encoded(picture(), "WEBP", lossless=True)
    yield "alpha.webp", encoded(coloured[0], "WEBP")
    yield "alpha_lossless.webp", encoded(coloured[0], "WEBP", lossless=True)
    yield "animated.webp", encoded(coloured[0], "WEBP", save_all=True, append_images=coloured[1:], duration=40)
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        yield f"compression_{compression}.tif", encoded(picture(), "TIFF", compression=compression)
    yield "group4.tif", encoded(picture("1"), "TIFF", compression="group4")
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F", "LAB"):
        yield f"mode_{mode.replace(';', '')}.tif", encoded(picture(mode if mode != "LAB" else "RGB"), "TIFF")
    yield "pages.tif", encoded(picture(), "TIFF", save_all=True, append_images=[picture("L", 20, 30)])
    yield "big.tif", encoded(picture(), "TIFF", big_tiff=True)
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        yield f"mode_{mode}.bmp", encoded(picture(mode), "BMP")


def rotations() -> Iterator[Named]:
    """Yields EXIF orientations 0 to 9 and nonsense, in JPEG, PNG, WebP and TIFF."""
    for orientation in (*range(10), 65535):
        tags = exif(orientation)
        yield f"orientation_{orientation}.jpg", encoded(picture(), "JPEG", exif=tags)
        yield f"orientation_{orientation}.png", encoded(picture(), "PNG", exif=tags)
        yield f"orientation_{orientation}.webp", encoded(picture(), "WEBP", exif=tags)
        yield f"orientation_{orientation}.tif", encoded(picture(), "TIFF", tiffinfo={ORIENTATION_TAG: orientation})
    for name, type_, value in (("text", 2, b"6\0\0\0"), ("long", 4, struct.pack(">I", 6)), ("byte", 1, b"\x06\0\0\0")):
        entry = struct.pack(">HHI", ORIENTATION_TAG, type_, 2 if type_ == 2 else 1) + value
        block = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 1) + entry + b"\0\0\0\0"
        yield f"orientation_as_{name}.jpg", encoded(picture(), "JPEG", exif=block)


def sizes() -> Iterator[Named]:
    """Yields the edges of scales and ratios, and shapes that no bucket was made for."""
    for width, height in ((1, 1), (1, 20000), (20000, 1), (65535, 1), (1, 65535), (3, 2000), (2, 3), (750, 30)):
        yield f"shape_{width}x{height}.png", _flat_png(width, height)
    for side in (512, 1024, 1536, 2048):
        for width, height in ((side, side), (side + 1, side), (side, side + 1), (side // 2, side * 2)):
            yield f"limit_{width}x{height}.png", _flat_png(width, height)
    targets = [round(float(ratio) * 10000) for ratio in RATIOS]
    for target, following in zip(targets, [*targets[1:], 50000], strict=True):
        yield f"ratio_{target}.png", _flat_png(target // 20, 500)
        yield f"between_{target}_and_{following}.png", _flat_png(*_middle(target, following))
    yield "large_jpeg.jpg", encoded(picture(width=2300, height=1900), "JPEG", quality=50)
    yield "large_webp.webp", encoded(picture(width=1700, height=1300), "WEBP", quality=30, method=0)


def _middle(target: int, following: int) -> tuple[int, int]:
    """Returns a size whose ratio is the mean of two targets in 1/10000, exactly where that takes no giant."""
    width, height = target + following, 20000
    common = math.gcd(width, height)
    exact = (width // common, height // common)
    return exact if exact[0] * exact[1] < 4_000_000 else (width // 20, height // 20)


def _flat_png(width: int, height: int) -> bytes:
    return encoded(Image.new("1", (width, height)), "PNG")
