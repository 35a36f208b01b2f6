"""The verdict of one image: limits, formats, sizes as shown."""

import subprocess
import sys

import pytest
from PIL import Image

from dataset_packaging.imaging.header import estimate_decoded_bytes
from dataset_packaging.imaging.verify import HeaderSize, ImagePolicy, probe_header, unreadable_formats, verify_image
from dataset_packaging_tests.imaging.samples import CONTRACT_FORMATS, LOAD, STRICT, encoded, photograph

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")


def small(width: int = 40, height: int = 20) -> Image.Image:
    return photograph().resize((width, height))


def with_orientation(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[274] = value
    return exif


@pytest.mark.parametrize("policy", [STRICT, LOAD], ids=lambda policy: policy.integrity)
@pytest.mark.parametrize("format_name", FORMATS)
def test_whole_image_is_accepted_and_described(format_name: str, policy: ImagePolicy) -> None:
    verdict = verify_image(encoded(small(), format_name), policy)
    assert (verdict.reason, verdict.format, verdict.frames) == (None, format_name, 1)
    assert (verdict.width_px, verdict.height_px) == (verdict.stored_width_px, verdict.stored_height_px) == (40, 20)
    assert (verdict.exif_orientation, verdict.is_rgba, verdict.warnings) == (1, False, ())


def test_memoryview_and_bytes_have_one_verdict() -> None:
    data = encoded(small(), "JPEG")
    padded = memoryview(b"xx" + data + b"yy")
    assert verify_image(padded[2:-2], STRICT) == verify_image(data, STRICT)


def test_no_bytes_are_an_empty_object() -> None:
    assert verify_image(b"", STRICT).reason == "empty_object"


def test_limits_are_inclusive() -> None:
    data = encoded(small(), "PNG")
    for field, limit, reason in (("max_pixels", 800, "too_many_pixels"), ("max_bytes", len(data), "too_large")):
        limits = {"max_pixels": 10**9, "max_bytes": 10**9}
        assert verify_image(data, ImagePolicy("load", "upright", ("PNG",), **{**limits, field: limit})).reason is None
        over = ImagePolicy("load", "upright", ("PNG",), **{**limits, field: limit - 1})
        assert verify_image(data, over).reason == reason


@pytest.mark.parametrize("width", [799, 800])
def test_pixel_limit_takes_the_place_of_pillows_own(width: int) -> None:
    """IMG-02: the limit is the policy's, also where Pillow would only warn or would refuse at another size."""
    data = encoded(Image.new("L", (width, 1)), "WEBP")
    policy = ImagePolicy("load", "upright", ("WEBP",), max_pixels=799, max_bytes=10**6)
    assert verify_image(data, policy).reason == (None if width <= 799 else "too_many_pixels")


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_size_is_as_shown_and_as_stored(format_name: str) -> None:
    """IMG-06, BKT-01: a raster of 40 x 20 with orientation 6 is shown as 20 x 40 in every format."""
    data = encoded(small(), format_name, exif=with_orientation(6))
    verdict = verify_image(data, STRICT)
    assert (verdict.width_px, verdict.height_px, verdict.exif_orientation) == (20, 40, 6)
    assert (verdict.stored_width_px, verdict.stored_height_px) == (40, 20)
    stored = verify_image(data, ImagePolicy("strict", "stored", CONTRACT_FORMATS, 10**9, 10**9))
    assert (stored.width_px, stored.height_px, stored.exif_orientation) == (40, 20, 6)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_orientation_that_means_nothing_turns_nothing(orientation: int) -> None:
    """BKT-01."""
    verdict = verify_image(encoded(small(), "JPEG", exif=with_orientation(orientation)), STRICT)
    assert (verdict.width_px, verdict.height_px, verdict.exif_orientation) == (40, 20, orientation)


def test_probe_tells_the_size_as_shown_from_the_first_bytes() -> None:
    image = photograph("coffee.png")
    sideways = encoded(image, "JPEG", exif=with_orientation(8), quality=95)
    assert probe_header(sideways[:4096], STRICT) == HeaderSize(400, 600)
    assert probe_header(sideways[:300], STRICT) is None
    assert probe_header(encoded(image, "PNG")[:64], STRICT) == HeaderSize(600, 400)
    assert probe_header(encoded(image, "WEBP")[:64], STRICT) == HeaderSize(600, 400)
    assert probe_header(encoded(image, "WEBP", exif=with_orientation(8))[:4096], STRICT) is None
    assert probe_header(b"<html>", STRICT) is None


@pytest.mark.parametrize("format_name", FORMATS)
def test_estimate_counts_four_bytes_for_each_pixel_of_the_header(format_name: str) -> None:
    assert estimate_decoded_bytes(encoded(small(), format_name)) == 40 * 20 * 4


def test_estimate_of_what_is_no_image_is_nothing() -> None:
    assert estimate_decoded_bytes(b"<Error><Code>NoSuchKey</Code></Error>") == 0


def test_openers_are_loaded_in_a_fresh_process() -> None:
    """IMG-15: the contract's list of formats, as it stands, in a process where no plugin has been loaded yet."""
    script = (
        "import sys; from dataset_packaging.imaging.verify import ImagePolicy, verify_image;"
        f"p = ImagePolicy('strict', 'upright', {CONTRACT_FORMATS!r}, 10**9, 10**9);"
        "print(verify_image(sys.stdin.buffer.read(), p).reason)"
    )
    data = encoded(small(), "PNG")
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], input=data, capture_output=True, check=True)
    assert done.stdout.strip() == b"None"


def test_format_without_a_decoder_is_the_programs_fault_not_the_images() -> None:
    """IMG-15."""
    policy = ImagePolicy("load", "upright", ("PNG", "NOSUCH"), 10**9, 10**9)
    assert unreadable_formats(policy.formats) == ("NOSUCH",)
    with pytest.raises(ValueError, match="NOSUCH"):
        verify_image(encoded(small(), "PNG"), policy)


def test_format_outside_of_the_list_is_unsupported() -> None:
    only_png = ImagePolicy("load", "upright", ("PNG",), 10**9, 10**9)
    assert verify_image(encoded(small(), "JPEG"), only_png).reason == "unsupported_format"


def test_details_hold_no_addresses() -> None:
    verdict = verify_image(encoded(small(), "PNG")[:20], STRICT)
    assert verdict.reason == "truncated_image"
    assert "0x" not in verdict.detail
