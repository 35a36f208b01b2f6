"""The kinds of fault that other people's image pipelines have met: IMG-01 to IMG-13 (IMG-15 is in test_verify)."""

import io
import struct
import zlib
from collections.abc import Iterator

import pytest
from PIL import Image, ImageFile, ImageOps

from dataset_packaging.imaging.jpeg_segments import header_segments
from dataset_packaging.imaging.verify import ImagePolicy, verify_image
from dataset_packaging_tests.imaging.png_files import chunk, header, png, raster
from dataset_packaging_tests.imaging.samples import CONTRACT_FORMATS, LOAD, STRICT, encoded, photograph

BOTH = pytest.mark.parametrize("policy", [STRICT, LOAD], ids=lambda policy: policy.integrity)


def small(mode: str = "RGB") -> Image.Image:
    return photograph().resize((40, 20)).convert(mode)


def oriented(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[274] = value
    return exif


def jpeg_with(segment: bytes, marker: int = 0xE1) -> bytes:
    """Put one segment right behind the start of a JPEG."""
    data = encoded(small(), "JPEG")
    return data[:2] + bytes([0xFF, marker]) + struct.pack(">H", len(segment) + 2) + segment + data[2:]


TRANSPARENT = {
    "palette with one transparent entry": encoded(small("P"), "PNG", transparency=3),
    "palette with many alphas": encoded(small("P"), "PNG", transparency=bytes(range(256))),
    "grey with tRNS": encoded(small("L"), "PNG", transparency=7),
    "bilevel with tRNS": encoded(small("1"), "PNG", transparency=0),
    "RGB with tRNS": encoded(small(), "PNG", transparency=(1, 2, 3)),
    "16-bit grey with tRNS": encoded(small("L").convert("I;16"), "PNG", transparency=7),
    "RGBA without a transparent pixel": encoded(small("RGBA"), "PNG"),
    "grey with alpha": encoded(small("LA"), "PNG"),
    "GIF with a transparent index": encoded(Image.new("RGBA", (8, 8), (1, 2, 3, 0)), "GIF"),
    "WebP with alpha": encoded(Image.new("RGBA", (8, 8), (1, 2, 3, 4)), "WEBP"),
    "tRNS behind the pixels": png(header(5, 5), zlib.compress(raster(5, 5)), behind=chunk(b"tRNS", bytes(6))),
}
OPAQUE = {
    "palette": encoded(small("P"), "PNG"),
    "RGB": encoded(small(), "PNG"),
    "CMYK": encoded(small("CMYK"), "JPEG"),
    "GIF": encoded(small("P"), "GIF"),
}


@BOTH
@pytest.mark.parametrize("name", TRANSPARENT | OPAQUE)
def test_transparency_is_found_in_every_form(name: str, policy: ImagePolicy) -> None:
    """IMG-01."""
    verdict = verify_image((TRANSPARENT | OPAQUE)[name], policy)
    assert (verdict.reason, verdict.is_rgba) == (None, name in TRANSPARENT)


@pytest.fixture
def raising() -> Iterator[list[BaseException]]:
    """Register a format whose decoder raises the exception that the test puts into the list."""
    errors: list[BaseException] = []

    class RaisingImage(ImageFile.ImageFile):
        format = "RAISING"

        def _open(self) -> None:
            self._mode, self._size = "RGB", (4, 4)

        def load(self) -> object:
            raise errors[0]

    Image.register_open("RAISING", RaisingImage, lambda prefix: prefix.startswith(b"raise"))
    yield errors
    Image.OPEN.pop("RAISING")
    Image.ID.remove("RAISING")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("broken data stream"), "corrupt_image"),
        (ValueError("not enough image data"), "corrupt_image"),
        (SyntaxError("APNG contains frame sequence errors"), "corrupt_image"),
        (struct.error("unpack requires a buffer of 4 bytes"), "corrupt_image"),
        (KeyError("mode"), "corrupt_image"),
        (RecursionError("maximum recursion depth exceeded"), "corrupt_image"),
        (NotImplementedError("Unknown pixel format"), "unsupported_format"),
        (Image.DecompressionBombError("Image size exceeds limit"), "too_many_pixels"),
        (MemoryError(), "decoder_crashed"),
    ],
)
def test_whatever_a_decoder_raises_is_one_verdict(raising: list[BaseException], error: Exception, reason: str) -> None:
    """IMG-02: the reason is stable, the detail names the class."""
    raising.append(error)
    verdict = verify_image(b"raise", ImagePolicy("strict", "upright", ("RAISING",), 100, 100))
    assert verdict.reason == reason
    assert verdict.detail.startswith(type(error).__name__)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_wish_to_stop_is_no_verdict(raising: list[BaseException], error: BaseException) -> None:
    """IMG-02."""
    raising.append(error)
    with pytest.raises(type(error)):
        verify_image(b"raise", ImagePolicy("strict", "upright", ("RAISING",), 100, 100))


def bmp_with(offset: int, value: int) -> bytes:
    data = bytearray(encoded(small("P"), "BMP"))
    struct.pack_into("<I", data, offset, value)
    return bytes(data)


@BOTH
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(bmp_with(46, 1 << 30), "corrupt_image", id="BMP palette of a billion entries"),
        pytest.param(bmp_with(30, 9), "corrupt_image", id="BMP of an unknown compression"),
        pytest.param(bmp_with(18, 1 << 30), "too_many_pixels", id="BMP of a billion columns"),
        pytest.param(b"GIF89a" + b"\xff\xff\xff\xff\0\0\0" + encoded(small("P"), "GIF")[13:], "too_many_pixels",
                     id="GIF canvas of 4 billion pixels"),
        pytest.param(b"II+\0\x08\0\0\0" + b"\xff" * 8, "truncated_image", id="TIFF directory beyond any file"),
        pytest.param(b"II*\0\x08\0\0\0", "truncated_image", id="TIFF without a directory"),
        pytest.param(encoded(small(), "WEBP")[:20], "truncated_image", id="WebP header only"),
    ],
)  # fmt: skip
def test_files_that_make_pillow_raise_odd_classes_are_rejected(data: bytes, reason: str, policy: ImagePolicy) -> None:
    """IMG-02."""
    assert verify_image(data, policy).reason == reason


def test_memory_that_a_decode_cannot_get_is_a_verdict() -> None:
    """IMG-02: a legal PNG with rows of more than 2 GiB, admitted by an absurd policy."""
    data = png(header(600_000_000, 1), zlib.compress(b""))
    unlimited = ImagePolicy("load", "upright", ("PNG",), max_pixels=10**15, max_bytes=10**9)
    assert verify_image(data, unlimited).reason == "decoder_crashed"
    assert verify_image(data, LOAD).reason == "too_many_pixels"


def png_with(before: bytes = b"", behind: bytes = b"") -> bytes:
    return png(header(5, 5), zlib.compress(raster(5, 5)), before, behind)


DOUBLED = jpeg_with(oriented(1).tobytes()).replace(b"\xff\xe0", b"\xff\xe1\0\x08Exif\0\0\xff\xe0")
GARBAGE_METADATA = {
    "PNG with garbage in eXIf": (png_with(before=chunk(b"eXIf", b"garbage")), "bad_exif"),
    "PNG with garbage behind": (png_with(behind=chunk(b"eXIf", b"garbage")), "bad_exif"),
    "JPEG with garbage EXIF": (jpeg_with(b"Exif\0\0garbage"), "bad_exif"),
    "JPEG with blank EXIF": (jpeg_with(b"Exif\0\0"), "bad_exif"),
    "JPEG with doubled EXIF": (DOUBLED, "bad_exif"),
    "JPEG with EXIF cut short": (jpeg_with(b"Exif\0\0MM\0*\0\0\0\x08\0\x09\x01"), "bad_exif"),
    "JPEG with XMP that is no text": (jpeg_with(b"http://ns.adobe.com/xap/1.0/\0\xff\xfe\xfd\x80\x81"), "bad_xmp"),
    "JPEG with half an ICC profile": (jpeg_with(b"ICC_PROFILE\0\x01\x02profile", 0xE2), "bad_icc"),
    "PNG with garbage in iCCP": (png_with(before=chunk(b"iCCP", b"x\0\0garbage")), "bad_icc"),
}


@BOTH
@pytest.mark.parametrize("name", GARBAGE_METADATA)
def test_broken_metadata_is_a_warning_and_turns_nothing(name: str, policy: ImagePolicy) -> None:
    """IMG-03."""
    data, warning = GARBAGE_METADATA[name]
    verdict = verify_image(data, policy)
    assert (verdict.reason, verdict.exif_orientation) == (None, 1)
    assert warning in verdict.warnings


@BOTH
def test_jpeg_that_lacks_only_its_end_marker_is_rejected(policy: ImagePolicy) -> None:
    """IMG-04."""
    assert verify_image(encoded(small(), "JPEG")[:-2], policy).reason == "truncated_image"


def test_verdict_is_of_a_decode_not_of_pillows_verify() -> None:
    """IMG-05: a cut JPEG passes ``verify()``; a PNG with a wrong IDAT checksum fails it and still loads."""
    data = encoded(photograph(), "JPEG")
    assert verify_image(data[: len(data) // 2], LOAD).reason == "truncated_image"
    whole = bytearray(png(header(9, 7), zlib.compress(raster(9, 7))))
    whole[whole.index(b"IDAT") + 4 + int.from_bytes(whole[33:37], "big")] ^= 1
    assert verify_image(bytes(whole), LOAD).reason is None
    assert verify_image(bytes(whole), STRICT).reason == "corrupt_image"


def turned_files() -> Iterator[tuple[str, bytes]]:
    for value in range(1, 9):
        for format_name in ("JPEG", "PNG", "WEBP", "TIFF"):
            yield f"{format_name} {value}", encoded(small(), format_name, exif=oriented(value))
        yield f"TIFF LZW {value}", encoded(small(), "TIFF", exif=oriented(value), compression="tiff_lzw")
        late = chunk(b"eXIf", oriented(value).tobytes().removeprefix(b"Exif\0\0"))
        yield f"PNG with late EXIF {value}", png(header(9, 7), zlib.compress(raster(9, 7)), behind=late)
        xmp = f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="{value}"/></x:xmpmeta>'.encode()
        yield f"JPEG with XMP only {value}", encoded(small(), "JPEG", xmp=xmp)
        yield (
            f"PNG with XMP only {value}",
            png(header(9, 7), zlib.compress(raster(9, 7)), chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp)),
        )


@BOTH
def test_size_as_shown_is_that_of_the_transposed_loaded_image(policy: ImagePolicy) -> None:
    """IMG-06, BKT-01: never turned twice, never left lying, wherever the orientation stands."""
    for name, data in turned_files():
        verdict = verify_image(data, policy)
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            shown = ImageOps.exif_transpose(image).size
        assert (verdict.width_px, verdict.height_px) == shown, name
        assert verdict.exif_orientation == int(name[-1]), name
        assert (verdict.stored_width_px, verdict.stored_height_px) in ((40, 20), (9, 7)), name


def test_orientation_that_is_no_number_turns_nothing() -> None:
    """BKT-01."""
    entry = struct.pack(">HHI4s", 274, 2, 4, b"six\0")
    verdict = verify_image(jpeg_with(b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + entry + bytes(4)), STRICT)
    assert (verdict.reason, verdict.width_px, verdict.height_px, verdict.exif_orientation) == (None, 40, 20, 1)


def test_picture_that_is_validly_encoded_grey_in_part_is_beyond_a_decode() -> None:
    """IMG-08: the documented limit; a checksum in the manifest is what finds it."""
    image = photograph().copy()
    image.paste((128, 128, 128), (0, 256, 512, 512))
    assert verify_image(encoded(image, "JPEG"), STRICT).reason is None


def test_strict_sees_a_zeroed_half_that_load_shows_as_grey() -> None:
    """IMG-08."""
    data = encoded(photograph(), "JPEG")
    zeroed = data[: len(data) // 2] + bytes(len(data) - len(data) // 2 - 2) + data[-2:]
    assert verify_image(zeroed, LOAD).reason is None
    assert verify_image(zeroed, STRICT).reason == "corrupt_image"


NO_IMAGES = {
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n",
    "metafile": b"\xd7\xcd\xc6\x9a" + bytes(200),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "GRIB": b"GRIB" + bytes(100),
    "Targa by guess": bytes([0, 0, 2]) + bytes(100),
    "S3 error": b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
    "HTML": b"<!DOCTYPE html><html></html>",
    "LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100),
    "AVIF": b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + bytes(100),
    "newline before the signature": b"\n" + encoded(small(), "PNG"),
    "byte order mark before the signature": b"\xef\xbb\xbf" + encoded(small(), "JPEG"),
    "four bytes": b"\xff\xd8\xfe\0",
}


@BOTH
@pytest.mark.parametrize("name", NO_IMAGES)
def test_what_is_no_admitted_image_is_unsupported(name: str, policy: ImagePolicy) -> None:
    """IMG-09, IMG-11: told by content, permanent, and no plugin outside of the list is tried."""
    assert verify_image(NO_IMAGES[name], policy).reason == "unsupported_format"


@BOTH
def test_jpeg_of_twelve_bits_is_unsupported_not_damaged(policy: ImagePolicy) -> None:
    """IMG-11."""
    data = bytearray(encoded(small(), "JPEG"))
    frame = next(segment for segment in header_segments(bytes(data)) if segment.is_frame)
    data[frame.start + 4] = 12
    assert verify_image(bytes(data), policy).reason == "unsupported_format"


@BOTH
def test_jpeg_of_several_pictures_is_admitted_under_its_own_name(policy: ImagePolicy) -> None:
    """IMG-10."""
    data = encoded(small(), "MPO", save_all=True, append_images=[photograph().resize((30, 60))])
    verdict = verify_image(data, policy)
    assert (verdict.reason, verdict.format, verdict.frames) == (None, "MPO", 2)
    assert (verdict.width_px, verdict.height_px) == (40, 20)
    without = ImagePolicy(policy.integrity, "upright", ("JPEG",), 10**6, 10**6)
    assert verify_image(data, without).reason == "unsupported_format"
    only = ImagePolicy(policy.integrity, "upright", ("MPO",), 10**6, 10**6)
    assert verify_image(data, only).reason is None
    assert verify_image(encoded(small(), "JPEG"), only).reason == "unsupported_format"


@BOTH
def test_later_frames_are_counted_and_not_judged(policy: ImagePolicy) -> None:
    """IMG-10: frame 0 is verified, the number of frames is recorded."""
    frames = [small("P"), photograph("coffee.png").resize((40, 20)), photograph("chelsea.png").resize((40, 20))]
    for format_name in ("GIF", "PNG", "WEBP", "TIFF"):
        data = encoded(frames[0], format_name, save_all=True, append_images=frames[1:])
        assert verify_image(data, policy).frames == 3, format_name
    gif = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    cut = verify_image(gif[:-300], policy)
    assert (cut.reason, cut.width_px, cut.height_px) == (None, 40, 20)


@BOTH
@pytest.mark.parametrize(
    ("data", "mode"),
    [
        (encoded(small("L").convert("I;16"), "PNG"), "I;16"),
        (encoded(small("L").convert("I;16"), "TIFF"), "I;16"),
        (encoded(small("CMYK"), "JPEG"), "CMYK"),
        (encoded(small("CMYK"), "TIFF"), "CMYK"),
        (encoded(small("L").convert("F"), "TIFF"), "F"),
        (encoded(small("1"), "PNG"), "1"),
    ],
)
def test_modes_are_recorded_and_never_converted(data: bytes, mode: str, policy: ImagePolicy) -> None:
    """IMG-13."""
    verdict = verify_image(data, policy)
    assert (verdict.reason, verdict.mode) == (None, mode)


@pytest.mark.parametrize("size", [(1, 20_000), (65_535, 1), (1, 1)])
def test_extreme_shapes_are_accepted(size: tuple[int, int]) -> None:
    verdict = verify_image(encoded(Image.new("L", size), "PNG"), STRICT)
    assert (verdict.reason, verdict.width_px, verdict.height_px) == (None, *size)


def test_avif_is_read_when_the_dataset_asks_for_it() -> None:
    """IMG-06: AVIF's rotation is exposed as an orientation beside the size as stored."""
    with_avif = ImagePolicy("strict", "upright", (*CONTRACT_FORMATS, "AVIF"), 10**6, 10**6)
    data = encoded(small(), "AVIF", exif=oriented(6))
    verdict = verify_image(data, with_avif)
    assert (verdict.reason, verdict.width_px, verdict.height_px, verdict.exif_orientation) == (None, 20, 40, 6)
    assert verify_image(data[: len(data) // 2], with_avif).reason == "truncated_image"
    assert verify_image(data, STRICT).reason == "unsupported_format"
