"""Decode rates of verification on one core, ours against Pillow's ``load()``.

Both judge the same files in turn within one run, so that the ratios hold on a busy machine too; the rates alone do not.
The files are crops of scikit-image's photographs, scaled up to about 2 megapixels and encoded anew.
Run: ``python -m benchmarks.verify [--rounds N]``.
"""

import argparse
import io
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import skimage
from PIL import Image

from dataset_packaging.imaging.verify import ImagePolicy, verify_image

PHOTOGRAPHS = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "motorcycle_left.png",
    "rocket.jpg",
    "hubble_deep_field.jpg",
)
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP")
STRICT = ImagePolicy("strict", "upright", FORMATS, max_pixels=300_000_000, max_bytes=268_435_456)
FILES_PER_KIND = 6
KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "JPEG baseline": ("JPEG", {"quality": 89}),
    "JPEG progressive": ("JPEG", {"quality": 89, "progressive": True}),
    "PNG RGB": ("PNG", {}),
    "PNG RGBA": ("PNG", {}),
    "WebP lossy": ("WEBP", {"quality": 84, "method": 3}),
}


def build_files(kind: str) -> tuple[list[bytes], float]:
    """Encode the photographs of one kind; gives the files and their megapixels in all."""
    format_name, options = KINDS[kind]
    rng = random.Random(kind)
    files, megapixels = [], 0.0
    for index in range(FILES_PER_KIND):
        with Image.open(Path(skimage.__file__).parent / "data" / PHOTOGRAPHS[index]) as source:
            image = source.convert("RGBA" if kind == "PNG RGBA" else "RGB")
        scale = (rng.uniform(1.5, 2.5) * 1e6 / (image.width * image.height)) ** 0.5
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, format_name, **options)
        files.append(buffer.getvalue())
        megapixels += image.width * image.height / 1e6
    return files, megapixels


def load(data: bytes) -> None:
    """Decode as a bare Pillow loop does."""
    with Image.open(io.BytesIO(data)) as image:
        image.load()


def judge(data: bytes) -> None:
    """Verify as the packer does."""
    verdict = verify_image(data, STRICT)
    if verdict.reason is not None:
        raise AssertionError(verdict)


def seconds(check: Callable[[bytes], object], files: list[bytes]) -> float:
    """Time one pass over the files."""
    start = time.perf_counter()
    for data in files:
        check(data)
    return time.perf_counter() - start


def measure(kind: str, rounds: int) -> str:
    """Measure one kind in turn, who begins alternating, and give its row of the table: medians of the rounds."""
    files, megapixels = build_files(kind)
    runs: dict[Callable[[bytes], object], list[float]] = {load: [], judge: []}
    for round_number in range(rounds):
        for check in (load, judge) if round_number % 2 else (judge, load):
            runs[check].append(seconds(check, files))
    pillow, ours = statistics.median(runs[load]), statistics.median(runs[judge])
    return f"| {kind} | {megapixels / pillow:.0f} | {megapixels / ours:.0f} | {pillow / ours:.1f} |"


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print("| format | Pillow `load()`, MP/s | `strict`, MP/s | ratio |")
    print("|---|---:|---:|---:|")
    for kind in KINDS:
        print(measure(kind, rounds), flush=True)


if __name__ == "__main__":
    main()
