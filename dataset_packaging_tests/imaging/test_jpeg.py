"""The strict check of JPEG: what it accepts alone, what it hands to Pillow, what it refuses."""

import pytest
from PIL import Image

from dataset_packaging.imaging.attempt import Finding
from dataset_packaging.imaging.jpeg import check_jpeg, is_pixel_damage
from dataset_packaging.imaging.jpeg_segments import header_segments
from dataset_packaging.imaging.verify import verify_image
from dataset_packaging_tests.imaging.samples import LOAD, STRICT, encoded, photograph


def jpeg(**options: object) -> bytes:
    return encoded(photograph().resize((200, 150)), "JPEG", quality=90, **options)


def segment_start(data: bytes, marker: int) -> int:
    return next(segment.start for segment in header_segments(data) if segment.marker == marker)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"progressive": True},
        {"optimize": True},
        {"subsampling": "4:4:4"},
        {"subsampling": "4:2:2"},
        {"restart_marker_rows": 2},
        {"icc_profile": bytes(128)},
        {"comment": b"a photograph"},
    ],
)
def test_whole_file_is_accepted_without_the_referee(options: dict[str, object]) -> None:
    assert check_jpeg(jpeg(**options), 200, 150) == Finding()


@pytest.mark.parametrize("size", [(1, 1), (7, 7), (8, 8), (9, 17), (1, 400)])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_small_and_odd_sizes_are_accepted_without_the_referee(size: tuple[int, int], mode: str) -> None:
    """IMG-13."""
    data = encoded(Image.new(mode, size), "JPEG")
    assert check_jpeg(data, *size) == Finding()
    assert verify_image(data, STRICT).mode == mode


@pytest.mark.parametrize("marker", [0xE0, 0xDB, 0xC0, 0xC4, 0xDA])
def test_stray_bytes_before_a_header_marker_are_a_warning(marker: int) -> None:
    data = jpeg()
    at = segment_start(data, marker)
    if marker == 0xE0:
        at += 18
    padded = data[:at] + b"hello" + data[at:]
    for policy in (STRICT, LOAD):
        verdict = verify_image(padded, policy)
        assert (verdict.reason, verdict.warnings) == (None, ("stray_header_bytes",))


@pytest.mark.parametrize("progressive", [False, True])
def test_odd_header_does_not_hide_damaged_pixels(progressive: bool) -> None:
    """libjpeg-turbo stops at its first complaint: without the second look the pixels behind it would go unseen."""
    data = jpeg(progressive=progressive)
    at = segment_start(data, 0xDB)
    middle = len(data) * 3 // 4
    damaged = data[:at] + b"hello" + data[at:middle] + data[middle + 600 :]
    assert verify_image(data[:at] + b"hello" + data[at:], STRICT).reason is None
    assert verify_image(damaged, STRICT).reason == "corrupt_image"


def test_metadata_that_the_decoder_dislikes_is_a_warning() -> None:
    data = jpeg().replace(b"JFIF\0\x01", b"JFIF\0\x09")
    verdict = verify_image(data, STRICT)
    assert (verdict.reason, verdict.warnings) == (None, ("odd_header",))


@pytest.mark.parametrize("marker", [0xD9, 0xD1])
def test_stray_bytes_amid_pixel_data_are_damage(marker: int) -> None:
    data = jpeg(restart_marker_rows=2)
    at = data.rindex(bytes([0xFF, marker]))
    assert verify_image(data[:at] + b"hello" * 20 + data[at:], STRICT).reason == "corrupt_image"


def test_stray_bytes_between_scans_are_damage() -> None:
    data = jpeg(progressive=True)
    at = data.rindex(b"\xff\xda")
    assert verify_image(data[:at] + b"hello" + data[at:], STRICT).reason == "corrupt_image"


@pytest.mark.parametrize("trailing", [b"text", b"PK\x03\x04 a zip archive", jpeg()])
def test_bytes_behind_the_end_do_no_harm(trailing: bytes) -> None:
    assert check_jpeg(jpeg() + trailing, 200, 150) == Finding()


def in_separate_scans(factors: int) -> bytes:
    """Put three grey JPEGs together into one of three components, a scan each, with the sampling factors given.

    Blocks of such scans stand in raster order whatever the factors are, as long as these are equal.
    """
    planes = [encoded(plane, "JPEG", quality=90) for plane in photograph().resize((64, 64)).split()]
    tables = [
        planes[0][segment.start : segment.start + segment.length]
        for segment in header_segments(planes[0])
        if segment.marker in (0xDB, 0xC4)
    ]
    frame = b"\xff\xc0\0\x11\x08\0\x40\0\x40\x03" + b"".join(bytes([number, factors, 0]) for number in (1, 2, 3))
    scans = [
        b"\xff\xda\0\x08\x01" + bytes([number, 0, 0, 63, 0]) + plane[segment_start(plane, 0xDA) + 10 : -2]
        for number, plane in enumerate(planes, 1)
    ]
    return b"\xff\xd8" + b"".join(tables) + frame + b"".join(scans) + b"\xff\xd9"


def test_kind_that_the_strict_decoder_lacks_is_decided_by_pillow() -> None:
    """Sampling factors that TurboJPEG has no name for: Pillow decides, and the row says so."""
    data = in_separate_scans(0x33)
    strict = verify_image(data, STRICT)
    assert (strict.reason, strict.warnings) == (None, ("not_strictly_checked",))
    assert check_jpeg(in_separate_scans(0x11), 64, 64) == Finding()
    assert verify_image(data[:-300], STRICT).reason == "truncated_image"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Corrupt JPEG data: premature end of data segment", True),
        ("Corrupt JPEG data: bad Huffman code", True),
        ("Corrupt JPEG data: 12 extraneous bytes before marker 0xd9", True),
        ("Corrupt JPEG data: found marker 0xd3 instead of RST2", True),
        ("Premature end of JPEG file", True),
        ("Inconsistent progression sequence for component 0 coefficient 1", True),
        ("Warning: unknown JFIF revision number 9.01", False),
        ("Invalid SOS parameters for sequential JPEG", False),
        ("Unknown Adobe color transform code 7", False),
        ("Unsupported color conversion request", False),
        ("tjDecompressHeader3(): Could not determine subsampling level of JPEG image", False),
    ],
)
def test_messages_of_the_decoder_are_told_apart(message: str, expected: bool) -> None:
    assert is_pixel_damage(message) is expected
