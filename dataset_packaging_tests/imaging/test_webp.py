"""The fast check of WebP: what it accepts alone, and that Pillow refuses none of it."""

import random

import pytest
from PIL import Image

from dataset_packaging.imaging.attempt import Finding
from dataset_packaging.imaging.verify import verify_image
from dataset_packaging.imaging.webp import check_webp
from dataset_packaging_tests.imaging.samples import LOAD, STRICT, encoded, photograph

SOUND, UNSURE = Finding(), Finding(needs_referee=True)


def webp(mode: str = "RGB", size: tuple[int, int] = (200, 150), **options: object) -> bytes:
    image = photograph().resize(size)
    if mode == "RGBA":
        image.putalpha(photograph("coffee.png").resize(size).convert("L"))
    return encoded(image, "WEBP", **options)


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lossless": True},
        {"quality": 1, "alpha_quality": 5},
        {"icc_profile": bytes(128)},
        {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0"},
        {"xmp": b"<x/>"},
    ],
)
@pytest.mark.parametrize("size", [(1, 1), (17, 3), (200, 150)])
def test_whole_file_is_accepted_without_the_referee(
    mode: str, size: tuple[int, int], options: dict[str, object]
) -> None:
    data = webp(mode, size, **options)
    assert check_webp(data, *size) == check_webp(memoryview(data), *size) == SOUND
    assert verify_image(data, STRICT) == verify_image(data, LOAD)


def test_animation_and_another_size_are_left_to_the_referee() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    animation = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])
    assert check_webp(animation, 8, 8) == UNSURE
    assert verify_image(animation, STRICT) == verify_image(animation, LOAD)
    assert check_webp(webp(), 200, 151) == UNSURE


@pytest.mark.parametrize("cut", [0, 11, 12, 16, 30, 64, 1000, -1])
def test_cut_file_is_never_accepted_alone(cut: int) -> None:
    assert check_webp(webp()[:cut], 200, 150) == UNSURE


@pytest.mark.parametrize(("mode", "options"), [("RGB", {}), ("RGBA", {}), ("RGBA", {"lossless": True})])
def test_damage_anywhere_gives_the_verdict_of_pillow(mode: str, options: dict[str, object]) -> None:
    """Alpha and colours are separate streams: both are read."""
    whole, rng = webp(mode, (64, 48), **options), random.Random(mode)
    refused = 0
    for _ in range(1500):
        copy = bytearray(whole)
        for _ in range(rng.choice((1, 4, 30))):
            copy[rng.randrange(len(copy))] = rng.randrange(256)
        if rng.random() < 0.3:
            start = rng.randrange(len(copy))
            del copy[start : start + rng.randrange(1, 200)]
        strict, load = verify_image(bytes(copy), STRICT), verify_image(bytes(copy), LOAD)
        assert strict == load
        refused += strict.reason is not None
    assert 100 < refused < 1450
