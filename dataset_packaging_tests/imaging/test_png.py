"""The strict check of PNG: what it accepts alone, what it hands to Pillow, what it refuses."""

import tracemalloc
import zlib

import pytest
from PIL import Image

from dataset_packaging.imaging.attempt import Finding
from dataset_packaging.imaging.png import check_png
from dataset_packaging.imaging.verify import verify_image
from dataset_packaging_tests.imaging.damage import png_chunks
from dataset_packaging_tests.imaging.png_files import ADAM7, COLOURS_AND_DEPTHS, chunk, header, png, raster
from dataset_packaging_tests.imaging.samples import LOAD, STRICT, encoded, photograph

SOUND = Finding()
ROWS = raster(9, 7)


def whole(before: bytes = b"", behind: bytes = b"") -> bytes:
    return png(header(9, 7), zlib.compress(ROWS), before, behind)


@pytest.mark.parametrize("interlaced", [0, 1])
@pytest.mark.parametrize(("colour", "depth"), COLOURS_AND_DEPTHS)
def test_every_kind_of_raster_is_accepted_without_the_referee(colour: int, depth: int, interlaced: int) -> None:
    """IMG-13: all colour types, depths and interlaced sizes, and Pillow agrees on each."""
    for width, height in [(1, 1), (2, 3), (3, 1), (4, 4), (5, 9), (8, 8), (17, 6)]:
        rows = raster(width, height, depth, colour, interlaced, seed=width)
        data = png(header(width, height, depth, colour, interlaced), zlib.compress(rows))
        assert check_png(data) == SOUND
        strict = verify_image(data, STRICT)
        assert strict == verify_image(data, LOAD)
        assert (strict.reason, strict.width_px, strict.height_px) == (None, width, height)


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2, 2, 3), (20, 40), tuple(range(1, 60))])
def test_division_into_chunks_does_not_matter(cuts: tuple[int, ...]) -> None:
    assert check_png(png(header(9, 7), zlib.compress(ROWS), cuts=cuts)) == SOUND


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (ROWS[:-1], "less pixel data"),
        (ROWS + b"\0", "more pixel data"),
        (ROWS[:28] + b"\5" + ROWS[29:], "unknown filter 5"),
        (b"", "less pixel data"),
    ],
)
def test_stream_that_does_not_fit_the_header_is_damage(rows: bytes, complaint: str) -> None:
    assert complaint in check_png(png(header(9, 7), zlib.compress(rows))).damage


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda stream: stream[:-1] + bytes([stream[-1] ^ 1]), id="Adler wrong"),
        pytest.param(lambda stream: stream[:-2], id="Adler cut"),
        pytest.param(lambda stream: b"\x79" + stream[1:], id="zlib header wrong"),
        pytest.param(lambda stream: stream[:2] + b"\xff" * 40 + stream[42:], id="deflate block wrong"),
    ],
)
def test_wrong_stream_under_right_checksums_is_damage(spoil: object) -> None:
    stream = zlib.compress(ROWS)
    assert callable(spoil)
    assert check_png(png(header(9, 7), spoil(stream))).damage


def test_filter_byte_of_every_row_of_every_pass_is_looked_at() -> None:
    rows = raster(8, 8, interlaced=1)
    start = 0
    for x, y, dx, dy in ADAM7:
        for _ in range(y, 8, dy):
            spoilt = rows[:start] + b"\x09" + rows[start + 1 :]
            assert "unknown filter 9" in check_png(png(header(8, 8, interlaced=1), zlib.compress(spoilt))).damage
            start += 1 + 3 * len(range(x, 8, dx))
    assert start == len(rows)


def test_missing_end_is_a_warning() -> None:
    """IMG-04, IMG-05: a PNG that lacks only its IEND is accepted; one that lacks a part of its pixels is not."""
    data = whole()
    for cut in range(1, 13):
        verdict = verify_image(data[:-cut], STRICT)
        assert (verdict.reason, verdict.warnings) == (None, ("missing_iend",))
        assert verify_image(data[:-cut], LOAD).reason is None
    for cut in range(13, 17):
        assert verify_image(data[:-cut], STRICT).reason == "truncated_image"
        assert verify_image(data[:-cut], LOAD).reason is None


@pytest.mark.parametrize("trailing", [b"text", b"PK\x03\x04", whole()])
def test_bytes_behind_the_end_do_no_harm(trailing: bytes) -> None:
    assert check_png(whole() + trailing) == SOUND


def test_wrong_checksum_behind_the_pixels_is_a_warning() -> None:
    for data in (whole(behind=chunk(b"tEXt", b"date:create\0today")), whole()):
        position, length = png_chunks(data)[-1 if b"tEXt" not in data else -2][1:]
        spoilt = bytearray(data)
        spoilt[position + 8 + length] ^= 1
        verdict = verify_image(bytes(spoilt), STRICT)
        assert (verdict.reason, verdict.warnings) == (None, ("bad_chunk_checksum",))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(whole(behind=chunk(b"tRNS", bytes(6))), id="transparency behind the pixels"),
        pytest.param(whole(behind=chunk(b"eXIf", b"MM\0*")), id="EXIF behind the pixels"),
        pytest.param(whole(behind=chunk(b"tEXt", b"Raw profile type exif\0")), id="EXIF as text behind the pixels"),
        pytest.param(whole(behind=chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0")), id="XMP behind the pixels"),
        pytest.param(whole(before=chunk(b"tEXt", b"interlace\0yes")), id="text that Pillow takes for a setting"),
        pytest.param(whole(behind=chunk(b"gAMA", b"")), id="short chunk that Pillow refuses"),
        pytest.param(whole()[:-12], id="no end"),
        pytest.param(encoded(Image.new("L", (8, 8)), "PNG", save_all=True, append_images=[Image.new("L", (8, 8), 9)]),
                     id="animation"),
    ],
)  # fmt: skip
def test_unusual_file_goes_to_the_referee(data: bytes) -> None:
    finding = check_png(data)
    assert (finding.needs_referee, finding.damage) == (True, "")
    assert verify_image(data, STRICT).reason == verify_image(data, LOAD).reason


def test_claimed_window_below_the_data_goes_to_the_referee() -> None:
    rows = raster(90, 70)
    stream = zlib.compressobj(wbits=10)
    data = png(header(90, 70), stream.compress(rows) + stream.flush())
    assert check_png(data).needs_referee


def test_damage_in_an_animation_is_damage() -> None:
    frames = [photograph().resize((40, 40)), photograph("coffee.png").resize((40, 40))]
    data = bytearray(encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]))
    assert verify_image(bytes(data), STRICT).frames == 2
    position = next(at for name, at, _ in png_chunks(bytes(data)) if name == b"IDAT")
    data[position + 60] ^= 1
    assert verify_image(bytes(data), STRICT).reason == "corrupt_image"


def test_memory_does_not_grow_with_the_raster() -> None:
    """A raster of 300 MB is checked in pieces."""
    rows = b"\0" * (1 + 3 * 10_000)
    deflater = zlib.compressobj(1)
    stream = b"".join(deflater.compress(rows) for _ in range(10_000)) + deflater.flush()
    data = png(header(10_000, 10_000), stream)
    tracemalloc.start()
    try:
        assert check_png(data) == SOUND
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
