"""The benchmark corpus: crops of real photographs in the encodings of the wild, and a few damaged files.

The same spec and the same Pillow give the same bytes. Enlarged crops get grain, so that a pixel costs as many bits as
one of a camera.
"""

import json
import math
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance
from PIL.PngImagePlugin import PngInfo

from benchmarks.damage import DAMAGES, damage

_RATIOS = (1.0, 4 / 3, 3 / 2, 16 / 9, 3 / 4, 2 / 3, 9 / 16, 2.35, 1 / 2, 5 / 4, 4 / 5)
_LARGEST_MP = {"jpeg": 12.0, "png": 5.0, "webp": 6.0}
_SMALLEST_MP = 0.2
_PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg", "ihc.png", "motorcycle_left.png",
                "motorcycle_right.png", "retina.jpg", "rocket.jpg")  # fmt: skip
_EXAMPLES = ("astronaut.png", "chelsea.png", "coffee.png", "hubble.jpg", "retina.jpg", "rocket.jpg")
_KIND_OF_SUFFIX = {".jpg": "baseline", ".jpeg": "baseline", ".png": "png", ".webp": "webp", ".gif": "gif",
                   ".tif": "tiff", ".tiff": "tiff", ".bmp": "bmp"}  # fmt: skip
_WORDS = "sky river mountain house red blue old bright a the of with near standing small quiet city tree light".split()


@dataclass(frozen=True, slots=True)
class CorpusSpec:
    """What to build.

    Attributes:
        images: pictures: 80 % JPEG (three of ten progressive), 13 % PNG, 7 % WebP; 0.2 to 12 megapixels.
        repeats: times that every picture is listed, each time under another key.
        damaged: damaged copies beside them, each listed once.
        seed: another seed, other pictures.
    """

    images: int = 700
    repeats: int = 2
    damaged: int = 12
    seed: int = 1

    @property
    def name(self) -> str:
        """Names the folder of the corpus."""
        return f"photographs-{self.images}x{self.repeats}-{self.damaged}-seed{self.seed}"


@dataclass(frozen=True, slots=True)
class _Picture:
    """One file that was written, as its manifest line needs it."""

    path: Path
    kind: str
    width_px: int
    height_px: int
    size_bytes: int


def build_corpus(folder: Path, spec: CorpusSpec, processes: int = 2) -> Path:
    """Returns the manifest of the corpus below `folder`; builds what is missing. The manifest is written last."""
    root = folder / spec.name
    manifest = root / "manifest.jsonl"
    if manifest.exists():
        return manifest
    (root / "images").mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(processes) as pool:
        numbers = range(spec.images)
        pictures = list(pool.map(_write_picture, numbers, [root] * spec.images, [spec] * spec.images, chunksize=4))
    damaged = _write_damaged(root, spec, pictures)
    lines = [
        _line(picture, f"{picture.path.stem}-{repeat}")
        for repeat in range(spec.repeats)
        for picture in pictures + (damaged if repeat == 0 else [])
    ]
    random.Random(spec.seed).shuffle(lines)
    unfinished = manifest.with_suffix(".part")
    unfinished.write_text("".join(lines))
    unfinished.rename(manifest)
    return manifest


def list_folder(folder: Path, manifest: Path) -> Path:
    """Writes a manifest of all images below a folder, in order of their paths, and returns it."""
    lines: list[str] = []
    for path in sorted(folder.rglob("*")):
        kind = _KIND_OF_SUFFIX.get(path.suffix.lower())
        if kind is None or not path.is_file():
            continue
        try:
            with Image.open(path) as image:
                width_px, height_px = image.size
        except OSError:
            width_px = height_px = 0
        picture = _Picture(path, kind, width_px, height_px, path.stat().st_size)
        lines.append(_line(picture, f"{len(lines):07d}"))
    manifest.write_text("".join(lines))
    return manifest


def _line(picture: _Picture, key: str) -> str:
    chance = random.Random(key)
    row = {
        "id": key,
        "s3_image_path": f"file://{picture.path.resolve()}",
        "width": picture.width_px,
        "height": picture.height_px,
        "caption": " ".join(chance.choices(_WORDS, k=chance.randint(8, 60))),
        "metadata": {
            "kind": picture.kind,
            "exif": {"Make": chance.choice(["Canon", "Nikon"]), "ISO": chance.choice([100, "200", 400.0])},
            "tags": chance.choices(_WORDS, k=chance.randint(0, 6)),
            "scores": {"aesthetic": chance.uniform(0, 10), "nsfw": chance.random(), "none": None},
        },
    }
    return json.dumps(row) + "\n"


def _kind(number: int, spec: CorpusSpec) -> str:
    share = number / spec.images
    if share < 0.8:
        return "jpeg"
    return "png" if share < 0.93 else "webp"


def _write_picture(number: int, root: Path, spec: CorpusSpec) -> _Picture:
    chance = random.Random(f"{spec.seed}/{number}")
    kind = _kind(number, spec)
    megapixels = math.exp(chance.uniform(math.log(_SMALLEST_MP), math.log(_LARGEST_MP[kind])))
    ratio = chance.choice(_RATIOS) * chance.uniform(0.97, 1.03)
    width_px, height_px = round(math.sqrt(megapixels * 1e6 * ratio)), round(math.sqrt(megapixels * 1e6 / ratio))
    image = photograph(chance, width_px, height_px)
    suffix = {"jpeg": "jpg"}.get(kind, kind)
    path = root / "images" / f"{number:05d}.{suffix}"
    if kind == "jpeg":
        progressive = chance.random() < 0.3
        optimize = progressive or chance.random() < 0.3
        image.save(
            path, quality=chance.randint(85, 92), subsampling="4:2:0", progressive=progressive, optimize=optimize
        )
        kind = "progressive" if progressive else "baseline"
    elif kind == "png":
        if chance.random() < 0.35:
            image.putalpha(_vignette(width_px, height_px))
        text = PngInfo()
        text.add_text("Software", "benchmarks")
        image.save(path, pnginfo=text, compress_level=5)
    else:
        if chance.random() < 0.2:
            image.putalpha(_vignette(width_px, height_px))
        image.save(path, quality=chance.randint(78, 90), lossless=chance.random() < 0.15, method=2)
    return _Picture(path, kind, width_px, height_px, path.stat().st_size)


def photograph(chance: random.Random, width_px: int, height_px: int) -> Image.Image:
    """Cuts a window of a photograph, scales it, and gives it tone and grain of its own."""
    source = chance.choice(_sources())
    scale = min(source.width / width_px, source.height / height_px) * chance.uniform(0.7, 1.0)
    crop_width, crop_height = width_px * scale, height_px * scale
    left = chance.uniform(0, source.width - crop_width)
    top = chance.uniform(0, source.height - crop_height)
    image = source.resize(
        (width_px, height_px), Image.Resampling.BICUBIC, box=(left, top, left + crop_width, top + crop_height)
    )
    if chance.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    image = ImageEnhance.Contrast(image).enhance(chance.uniform(0.9, 1.15))
    return _with_grain(image, chance.randrange(1 << 20), chance.uniform(0.6, 1.6))


def _with_grain(image: Image.Image, offset: int, strength: float) -> Image.Image:
    pixels = np.asarray(image)
    count = pixels.shape[0] * pixels.shape[1]
    grain = np.resize(np.roll(_grain(), offset), count).reshape(pixels.shape[:2])
    rough = pixels.astype(np.int16) + (grain * strength).astype(np.int16)[:, :, None]
    return Image.fromarray(np.clip(rough, 0, 255).astype(np.uint8))


@cache
def _grain() -> npt.NDArray[np.float32]:
    return np.random.default_rng(7).normal(0, 4, 1_299_709).astype(np.float32)


@cache
def _sources() -> tuple[Image.Image, ...]:
    """Returns the photographs of scikit-image's wheel, and those of the examples that are not enlargements."""
    import skimage

    wheel = Path(skimage.__file__).parent / "data"
    examples = Path(__file__).parent.parent / "examples" / "photos"
    paths = [wheel / name for name in _PHOTOGRAPHS] + [examples / name for name in _EXAMPLES]
    return tuple(Image.open(path).convert("RGB") for path in paths)


def _vignette(width_px: int, height_px: int) -> Image.Image:
    rows, columns = np.mgrid[0:height_px, 0:width_px]
    distance = (columns / width_px - 0.5) ** 2 + (rows / height_px - 0.5) ** 2
    return Image.fromarray(np.clip(255 * (1.4 - 3 * distance), 0, 255).astype(np.uint8))


def _write_damaged(root: Path, spec: CorpusSpec, pictures: list[_Picture]) -> list[_Picture]:
    written: list[_Picture] = []
    for number in range(spec.damaged):
        family, kind = DAMAGES[number % len(DAMAGES)]
        of_family = [picture for picture in pictures if picture.path.suffix == family]
        whole = of_family[number % len(of_family)]
        path = whole.path.with_name(f"damaged-{number:02d}-{kind}{family}")
        path.write_bytes(damage(whole.path.read_bytes(), family, kind, seed=number))
        written.append(_Picture(path, f"damaged {kind}", whole.width_px, whole.height_px, path.stat().st_size))
    return written
