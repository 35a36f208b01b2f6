"""Whole photographs and the ways to damage them, all of it seeded: the same files on every machine with one Pillow."""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image

from dataset_packaging_tests.imaging.samples import PHOTOGRAPHS, encoded, photograph

_PNG_SIGNATURE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """One whole image file."""

    name: str
    format: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Case:
    """One damaged file: ``kind`` names what was done to ``sample``; ``in_pixels`` tells whether pixel data was hit."""

    sample: Sample
    kind: str
    data: bytes
    in_pixels: bool


def crops(count: int, seed: int) -> Iterator[Image.Image]:
    """Cut ``count`` rectangles of 128 to 400 pixels a side from the photographs, in turn."""
    rng = random.Random(seed)
    for index in range(count):
        source = photograph(PHOTOGRAPHS[index % len(PHOTOGRAPHS)])
        width, height = rng.randrange(128, 400), rng.randrange(128, 300)
        left, top = rng.randrange(source.width - width), rng.randrange(source.height - height)
        yield source.crop((left, top, left + width, top + height))


def jpeg_samples() -> list[Sample]:
    """Make 36 JPEGs: 20 baseline (three with restart markers) and 16 progressive, qualities 85 to 92."""
    rng = random.Random(36)
    samples = []
    for index, image in enumerate(crops(36, seed=1)):
        progressive = index % 9 >= 5
        options = {"quality": rng.randint(85, 92), "progressive": progressive}
        if index in (0, 9, 18):
            options["restart_marker_rows"] = 1
        name = f"{'progressive' if progressive else 'baseline'}-{index}"
        samples.append(Sample(name, "JPEG", encoded(image, "JPEG", **options)))
    return samples


def png_samples() -> list[Sample]:
    """Make 16 PNGs: RGB, RGBA, grey and palette, each with a text chunk."""
    from PIL.PngImagePlugin import PngInfo

    samples = []
    for index, image in enumerate(crops(16, seed=2)):
        mode = ("RGB", "RGBA", "L", "P")[index % 4]
        info = PngInfo()
        info.add_text("Comment", "a photograph")
        samples.append(Sample(f"{mode}-{index}", "PNG", encoded(image.convert(mode), "PNG", pnginfo=info)))
    return samples


def webp_samples() -> list[Sample]:
    """Make 8 WebPs: 6 lossy, 2 lossless."""
    return [
        Sample(f"webp-{index}", "WEBP", encoded(image, "WEBP", quality=85, lossless=index >= 6, method=2))
        for index, image in enumerate(crops(8, seed=3))
    ]


def damaged(sample: Sample) -> Iterator[Case]:
    """Damage one file in every way of the matrix: 9 cases of a JPEG, 10 of a PNG, 8 of a WebP."""
    data, rng = sample.data, random.Random(sample.name)
    start = pixel_start(sample)
    for percent in (10, 50, 90, 99.5):
        yield Case(sample, f"cut at {percent} %", data[: int(len(data) * percent / 100)], True)
    yield Case(sample, "1 bit flipped", flipped(data, start, rng), True)
    yield Case(sample, "10 bytes changed", changed(data, start, 10, rng), True)
    middle = (start + len(data)) // 2
    run = min(4096, (len(data) - middle) // 2)
    yield Case(sample, "run zeroed", data[:middle] + bytes(run) + data[middle + run :], True)
    yield Case(sample, "run dropped", data[:middle] + data[middle + min(1024, run) :], True)
    if sample.format == "JPEG":
        yield Case(sample, "end marker missing", data[:-2], True)
    if sample.format == "PNG":
        yield Case(sample, "IDAT checksum wrong", with_bad_checksum(data, b"IDAT"), True)
        yield Case(sample, "tEXt checksum wrong", with_bad_checksum(data, b"tEXt"), False)


def pixel_start(sample: Sample) -> int:
    """Find where pixel data begins, a little behind its own header."""
    if sample.format == "JPEG":
        position = 2
        while sample.data[position + 1] != 0xDA:
            position += 2 + int.from_bytes(sample.data[position + 2 : position + 4], "big")
        return position + 2 + int.from_bytes(sample.data[position + 2 : position + 4], "big")
    if sample.format == "PNG":
        return sample.data.index(b"IDAT") + 20
    return 64


def flipped(data: bytes, start: int, rng: random.Random) -> bytes:
    """Flip one bit between ``start`` and 20 bytes before the end."""
    copy = bytearray(data)
    copy[rng.randrange(start, len(data) - 20)] ^= 1 << rng.randrange(8)
    return bytes(copy)


def changed(data: bytes, start: int, count: int, rng: random.Random) -> bytes:
    """Set ``count`` bytes between ``start`` and 20 bytes before the end to other values."""
    copy = bytearray(data)
    for _ in range(count):
        copy[rng.randrange(start, len(data) - 20)] ^= rng.randrange(1, 256)
    return bytes(copy)


def png_chunks(data: bytes) -> list[tuple[bytes, int, int]]:
    """List ``(name, offset of the length field, length of the body)`` of every chunk."""
    chunks, position = [], _PNG_SIGNATURE_BYTES
    while position < len(data):
        (length,) = struct.unpack_from(">I", data, position)
        chunks.append((data[position + 4 : position + 8], position, length))
        position += 12 + length
    return chunks


def with_bad_checksum(data: bytes, name: bytes) -> bytes:
    """Spoil the CRC of the first chunk of that name."""
    copy = bytearray(data)
    position, length = next((at, length) for found, at, length in png_chunks(data) if found == name)
    copy[position + 11 + length] ^= 1
    return bytes(copy)
