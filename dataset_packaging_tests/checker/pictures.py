"""What Pillow says of one picture, under the dataset's limits."""

import hashlib
import warnings
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageFile, ImageOps

from dataset_packaging_tests.checker.contract import Dataset
from dataset_packaging_tests.checker.png_stream import is_damaged

BROKEN = frozenset({"corrupt_image", "truncated_image"})
CRASHED = frozenset({"decoder_crashed", "decoder_timeout"})
_SIGNATURES = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "BMP": (b"BM",),
    "WEBP": (b"RIFF",),
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The fate of one file.

    Attributes:
        reasons: reject reasons that would be right.
        accepted: Pillow decodes it. With `reasons` as well, a strict check may still refuse it.
    """

    accepted: bool
    reasons: frozenset[str]
    size_bytes: int = 0
    sha256: str = ""
    md5: str = ""
    width: int = 0
    height: int = 0
    is_rgba: bool = False
    format: str = ""
    modes: frozenset[str] = frozenset()
    frames: int | None = None
    orientation: int | None = None
    stored_size: tuple[int, int] | None = None


def refused(*reasons: str) -> Judgement:
    """Returns the judgement of a file that must be rejected for one of these reasons."""
    return Judgement(False, frozenset(reasons))


def judge(uri: str, dataset: Dataset) -> Judgement:
    """Reads one local file and decides; anything Pillow raises is a refusal."""
    path = Path(uri.removeprefix("file://"))
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return refused("not_found")
    except PermissionError:
        return refused("access_denied")
    except (OSError, ValueError):  # a folder, a name that is too long, a NUL
        return refused("not_found", "bad_path", "access_denied")
    if not data:
        return refused("empty_object")
    if len(data) > dataset.max_bytes:
        return refused("too_large")
    judgement = judge_bytes(data, dataset)
    sha256, md5 = hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest()
    return replace(judgement, size_bytes=len(data), sha256=sha256, md5=md5)


def judge_bytes(data: bytes, dataset: Dataset) -> Judgement:
    """Decides about the bytes of one file; not to be called from several threads at once."""
    _load_plugins()
    Image.MAX_IMAGE_PIXELS = None
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    openers = [name for name in dataset.formats if name != "MPO"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(BytesIO(data), formats=openers) as picture:
                return _judge_opened(picture, data, dataset)
        except Exception:
            return refused(*_why(data, dataset), *CRASHED)


def _judge_opened(picture: Image.Image, data: bytes, dataset: Dataset) -> Judgement:
    if picture.format not in dataset.formats:
        return refused("unsupported_format")
    if picture.width * picture.height > dataset.max_pixels:
        return refused("too_many_pixels", "corrupt_image", "truncated_image")
    stored_size, opened_mode = _stored_size(picture), picture.mode
    picture.load()  # before anything else is asked: getexif() loads a PNG as well, and a second load() always succeeds
    if dataset.strict and picture.format == "PNG" and is_damaged(data):
        return refused(*BROKEN)
    width, height = _shown_size(picture) if dataset.upright else stored_size
    return Judgement(
        accepted=True,
        reasons=BROKEN if dataset.strict and picture.format in {"JPEG", "MPO"} else frozenset(),
        width=width,
        height=height,
        is_rgba=picture.has_transparency_data,
        format=str(picture.format),
        modes=frozenset({opened_mode, picture.mode}),
        frames=_frames(picture),
        orientation=_orientation(data),
        stored_size=stored_size,
    )


def _why(data: bytes, dataset: Dataset) -> frozenset[str]:
    known = any(data.startswith(head) for name in dataset.formats for head in _SIGNATURES.get(name, ()))
    return BROKEN | {"unsupported_format", "too_many_pixels"} if known else frozenset({"unsupported_format"})


def _shown_size(picture: Image.Image) -> tuple[int, int]:
    try:
        return ImageOps.exif_transpose(picture).size
    except Exception:
        return picture.size  # metadata that cannot be read turns nothing


def _stored_size(picture: Image.Image) -> tuple[int, int]:
    if picture.format == "TIFF":
        tags = picture.tag_v2  # type: ignore[attr-defined]
        return int(tags[256]), int(tags[257])
    return picture.size


def _orientation(data: bytes) -> int | None:
    try:
        with Image.open(BytesIO(data)) as picture:  # anew: loading a TIFF turns it and drops the tag
            found = picture.getexif().get(0x0112)
    except Exception:
        return None
    return found if isinstance(found, int) and 2 <= found <= 8 else None


def _frames(picture: Image.Image) -> int | None:
    try:
        return int(getattr(picture, "n_frames", 1))
    except Exception:
        return None


@cache
def _load_plugins() -> None:
    Image.init()
