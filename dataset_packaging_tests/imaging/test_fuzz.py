"""Mutated small images: no verdict raises, and what `strict` accepts, Pillow accepts with the same description."""

import random
import struct

import pytest
from PIL import Image

from dataset_packaging.imaging.verify import ImagePolicy, Verdict, estimate_decoded_bytes, probe_header, verify_image
from dataset_packaging_tests.imaging.png_files import with_checksums_mended
from dataset_packaging_tests.imaging.samples import CONTRACT_FORMATS, encoded, photograph

MUTATIONS_PER_SEED = 2500
STRICT = ImagePolicy("strict", "upright", CONTRACT_FORMATS, max_pixels=4_000_000, max_bytes=10**7)
LOAD = ImagePolicy("load", "upright", CONTRACT_FORMATS, max_pixels=4_000_000, max_bytes=10**7)


def whole_images() -> list[tuple[str, bytes]]:
    image, turned = photograph("coffee.png").resize((48, 36)), photograph("chelsea.png").resize((48, 36))
    exif = Image.Exif()
    exif[274], exif[270] = 6, "a photograph"
    jpegs = [
        encoded(image, "JPEG", exif=exif),
        encoded(image, "JPEG", progressive=True),
        encoded(image, "JPEG", restart_marker_blocks=2, subsampling=0),
        encoded(image.convert("CMYK"), "JPEG"),
        encoded(image.convert("L"), "JPEG"),
        encoded(image, "MPO", save_all=True, append_images=[turned]),
    ]
    pngs = [
        encoded(image, "PNG", exif=exif),
        encoded(image.convert("P"), "PNG", transparency=3),
        encoded(image.convert("RGBA"), "PNG"),
        encoded(image.convert("1"), "PNG"),
        encoded(image.convert("L").convert("I;16"), "PNG"),
        encoded(image, "PNG", save_all=True, append_images=[turned]),
    ]
    others = [
        encoded(image, "WEBP", exif=exif),
        encoded(image, "WEBP", lossless=True),
        encoded(image, "GIF", save_all=True, append_images=[turned]),
        encoded(image, "TIFF", exif=exif),
        encoded(image, "BMP"),
    ]
    return (
        [("JPEG", data) for data in jpegs] * 2 + [("PNG", data) for data in pngs] * 2 + [("", data) for data in others]
    )


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Change bits and bytes, drop, insert and repeat runs, overwrite length fields, cut; mostly near the header."""
    copy = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(copy)) if rng.random() < 0.6 else rng.randrange(min(len(copy), 400))
        match rng.randrange(7):
            case 0:
                copy[at] ^= 1 << rng.randrange(8)
            case 1:
                copy[at] = rng.choice((0, 255, 0xD9, 0xD8, 0xDA, rng.randrange(256)))
            case 2:
                del copy[at : at + rng.randrange(1, 40)]
            case 3:
                copy[at:at] = rng.randbytes(rng.randrange(1, 20))
            case 4:
                del copy[at + 1 :]
            case 5:
                copy[at:at] = copy[(start := rng.randrange(len(copy))) : start + rng.randrange(1, 60)]
            case 6:
                values = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 65535, rng.randrange(1 << 32))
                copy[at : at + 4] = struct.pack(">I", rng.choice(values))
        if not copy:
            return b"x"
    return bytes(copy)


def facts(verdict: Verdict) -> tuple[object, ...]:
    return (
        verdict.reason, verdict.format, verdict.mode, verdict.frames, verdict.stored_width_px, verdict.stored_height_px,
        verdict.width_px, verdict.height_px, verdict.exif_orientation, verdict.is_rgba,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_accepted_by_strict_implies_accepted_by_pillow(seed: int) -> None:
    rng, images = random.Random(seed), whole_images()
    accepted = refused_by_strict_alone = 0
    for _ in range(MUTATIONS_PER_SEED):
        name, data = rng.choice(images)
        mutant = mutated(data, rng)
        if name == "PNG" and rng.random() < 0.6:
            mutant = with_checksums_mended(mutant)
        strict, load = verify_image(mutant, STRICT), verify_image(memoryview(mutant), LOAD)
        if strict.reason is None:
            accepted += 1
            assert facts(strict) == facts(load)
        elif load.reason is None:
            refused_by_strict_alone += 1
            assert strict.reason in ("corrupt_image", "truncated_image")
        probe_header(mutant[: rng.randrange(1, len(mutant) + 1)], STRICT)
        assert estimate_decoded_bytes(mutant) >= 0
    assert accepted > MUTATIONS_PER_SEED // 20
    assert refused_by_strict_alone > MUTATIONS_PER_SEED // 50
