"""Where a file ends by its own structure: what tells `truncated_image` from `corrupt_image`."""

import struct

import pytest
from PIL import Image

from dataset_packaging.imaging.header import read_header, sniff_format
from dataset_packaging.imaging.structure import ends_early
from dataset_packaging_tests.imaging.samples import encoded, photograph

FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF"]


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {name: encoded(photograph().resize((64, 48)), name) for name in FORMATS}


@pytest.mark.parametrize("name", FORMATS)
def test_whole_file_does_not_end_early(files: dict[str, bytes], name: str) -> None:
    assert not ends_early(files[name], name)
    assert not ends_early(files[name] + b"trailing", name) or name == "AVIF"


@pytest.mark.parametrize("name", FORMATS)
def test_every_cut_behind_the_signature_ends_early(files: dict[str, bytes], name: str) -> None:
    data = files[name]
    last = len(data) - (0 if name != "TIFF" else 16)  # what follows the strips of a TIFF is its directory, or nothing
    for cut in range(16, last, max(1, len(data) // 200)):
        assert ends_early(data[:cut], name), cut


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate"])
@pytest.mark.parametrize("big", [False, True])
def test_tiff_is_cut_where_a_strip_is(compression: str | None, big: bool) -> None:
    data = encoded(photograph(), "TIFF", compression=compression, big_tiff=big)
    assert not ends_early(data, "TIFF")
    assert ends_early(data[: len(data) // 2], "TIFF")
    assert read_header(data).width_px == 512


def test_gif_with_junk_amid_its_blocks_is_damaged_not_cut() -> None:
    data = encoded(Image.new("P", (8, 8)), "GIF")
    assert not ends_early(data[:-1] + b"\x99\x99", "GIF")


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\0\0\0\x18ftypavif", "AVIF"),
        (b"\0\0\0\x18ftypheic", "HEIF"),
        (b"\0\0\0\x18ftypmp42", ""),
        (b"MM\0*", "TIFF"),
        (b"MM\0+", "TIFF"),
        (b"RIFF\0\0\0\0WAVE", ""),
        (b"GIF88a", ""),
        (b"", ""),
    ],
)
def test_formats_are_told_by_their_signature(head: bytes, name: str) -> None:
    assert sniff_format(head) == name


@pytest.mark.parametrize("name", ["TIFF", "PNG", "WEBP", "GIF", "BMP", "JPEG", "AVIF", "HEIF", ""])
@pytest.mark.parametrize("value", [0, 0xFF, 0x7F])
def test_no_bytes_are_too_odd_for_the_parsers(name: str, value: int) -> None:
    signatures = {
        "TIFF": b"II+\0",
        "PNG": b"\x89PNG\r\n\x1a\n",
        "WEBP": b"RIFF\0\0\0\0WEBPVP8X",
        "GIF": b"GIF89a",
        "BMP": b"BM",
        "JPEG": b"\xff\xd8\xff",
        "AVIF": struct.pack(">I", 24) + b"ftypavif",
        "HEIF": struct.pack(">I", 24) + b"ftypheic",
        "": b"?",
    }
    for length in (0, 1, 7, 30, 500):
        data = signatures[name] + bytes([value]) * length
        header = read_header(data)
        assert header.width_px >= 0
        assert isinstance(ends_early(data, name), bool)
