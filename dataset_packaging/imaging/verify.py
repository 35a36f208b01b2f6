"""The integrity policy: from the bytes of one object to a verdict about one image.

Everything here is pure: no clock, no files, no network. What an image does wrong is data (a `Verdict`), never an
exception; an exception that leaves this module is a fault of the program.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, TypeVar

from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from dataset_packaging.imaging.header import read_header, sniff_format
from dataset_packaging.imaging.pillow_state import pillow_held
from dataset_packaging.imaging.structure import ends_early, is_unsupported_variant

POLICY_VERSION = 1
"""Raised whenever a change may turn an accepted image into a refused one, or the other way round."""

_MAX_ATTEMPTS = 8
_MAX_DETAIL_CHARS = 300
_ORIENTATION_TAG = 274
_SIDEWAYS_ORIENTATIONS = (5, 6, 7, 8)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ImagePolicy:
    """What a dataset asks of its images.

    ``formats`` are Pillow's names, told by content; ``max_pixels`` and ``max_bytes`` are inclusive.
    """

    integrity: Literal["strict", "load"]
    orientation: Literal["upright", "stored"]
    formats: tuple[str, ...]
    max_pixels: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of one image and what was learnt about it; unknown figures of a refused image are 0 or ``""``.

    ``reason`` is None for an accepted image, else one of the stable names of rejects. ``width_px`` and ``height_px``
    are as shown under the policy's orientation, ``stored_*`` as the raster lies in the file. ``warnings`` are stable
    names of faults outside the pixels.
    """

    reason: str | None
    detail: str = ""
    format: str = ""
    mode: str = ""
    frames: int = 0
    stored_width_px: int = 0
    stored_height_px: int = 0
    width_px: int = 0
    height_px: int = 0
    exif_orientation: int = 1
    is_rgba: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeaderSize:
    """The size in pixels as shown, as far as the header alone can tell."""

    width_px: int
    height_px: int


def verify_image(data: bytes | memoryview, policy: ImagePolicy) -> Verdict:
    """Decide whether these bytes are a whole image that the policy admits.

    Pure and thread-safe; the decoders release the GIL. Memory: one decode (see ``estimate_decoded_bytes``), less where
    a fast check stands in for it. Never raises for anything that the image did, including exhausted memory or
    recursion; KeyboardInterrupt and SystemExit pass.

    Raises:
        RuntimeError: another thread kept changing Pillow's switches, so that no verdict could be trusted.
        ValueError: the policy names a format that this installation cannot read.
    """
    if not len(data):
        return Verdict("empty_object", "0 bytes")
    if len(data) > policy.max_bytes:
        return Verdict("too_large", f"{len(data)} bytes exceed max_bytes {policy.max_bytes}", sniff_format(data))
    openers = _openers(policy.formats)
    for _ in range(_MAX_ATTEMPTS):
        with pillow_held(policy.max_pixels) as hold:
            verdict = _judge(data, policy, openers)
            if hold.undisturbed():
                return verdict
    raise RuntimeError("another thread keeps changing Image.MAX_IMAGE_PIXELS or ImageFile.LOAD_TRUNCATED_IMAGES")


def probe_header(head: bytes | memoryview, policy: ImagePolicy) -> HeaderSize | None:
    """Tell the size as shown from the first bytes of an object, without decoding.

    Pure. None means that these bytes do not tell it: more of them or a full verdict is needed. A size from here is a
    good guess for planning (an orientation may still stand behind the pixels); only a verdict is binding.
    """
    name = sniff_format(head)
    if name in ("WEBP", "AVIF", "HEIF"):
        return _probe_container(head, name, policy)
    with pillow_held(policy.max_pixels):
        image = _attempt(lambda: Image.open(io.BytesIO(head), formats=_openers(policy.formats)))
        if isinstance(image, _Fault) or not image.tile:
            return None
        stored = _attempt(lambda: _stored_size(image))
        orientation = _attempt(lambda: _orientation(image))
        shown = image.size
    if isinstance(stored, _Fault):
        return None
    if policy.orientation == "stored":
        return HeaderSize(*stored)
    if image.format == "TIFF":
        return HeaderSize(*shown)
    sideways = not isinstance(orientation, _Fault) and orientation in _SIDEWAYS_ORIENTATIONS
    return HeaderSize(*(stored[::-1] if sideways else stored))


def unreadable_formats(formats: tuple[str, ...]) -> tuple[str, ...]:
    """Name the formats of an allow-list that this installation has no decoder for, in their order. Pure."""
    _register_plugins()
    return tuple(name for name in formats if name != "MPO" and name not in Image.OPEN)


@dataclass(frozen=True, slots=True)
class _Fault:
    """What a decoder raised."""

    error: Exception

    def describe(self) -> str:
        """Word the fault so that the same bytes always give the same text: no object addresses, bounded length."""
        text = re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"\1", str(self.error))
        return f"{type(self.error).__name__}: {text}"[:_MAX_DETAIL_CHARS]


def _attempt(step: Callable[[], _T]) -> _T | _Fault:
    """Run one step of a decoder on one image; whatever it raises is the image's fault.

    Decoders raise nearly anything for damaged input (OSError, SyntaxError, ValueError, struct.error, KeyError,
    MemoryError, RecursionError), hence the broad clause: steps hold calls into Pillow and nothing of our own.
    """
    try:
        return step()
    except Exception as error:
        return _Fault(error.with_traceback(None))


def _judge(data: bytes | memoryview, policy: ImagePolicy, openers: list[str]) -> Verdict:
    """Open, decode and describe one image while Pillow's switches are held."""
    image = _attempt(lambda: Image.open(io.BytesIO(data), formats=openers))
    if isinstance(image, _Fault):
        return _refusal(image, data, policy)
    name = image.format or ""
    width_px, height_px = image.size
    if name not in policy.formats:
        return Verdict("unsupported_format", f"{name} is not among the formats of the dataset", name)
    if width_px * height_px > policy.max_pixels:
        return _too_many_pixels(f"{width_px} x {height_px} pixels exceed max_pixels {policy.max_pixels}", data)
    stored = _attempt(lambda: _stored_size(image))
    raw_orientation = _attempt(lambda: _tiff_orientation(image))
    loaded = _attempt(image.load)
    if isinstance(loaded, _Fault):
        return _refusal(loaded, data, policy)
    return _acceptance(image, policy, stored, raw_orientation, ())


def _acceptance(
    image: Image.Image,
    policy: ImagePolicy,
    stored: tuple[int, int] | _Fault,
    raw_orientation: int | _Fault | None,
    warnings: tuple[str, ...],
) -> Verdict:
    """Describe an image whose pixels are whole. Asks for the number of frames last: counting may move the image."""
    mode, size = image.mode, image.size
    transparent = _attempt(lambda: image.has_transparency_data)
    orientation = _attempt(lambda: _orientation(image))
    frames = _attempt(lambda: int(getattr(image, "n_frames", 1)))
    if isinstance(orientation, _Fault):
        orientation, warnings = 1, (*warnings, "bad_exif")
    if isinstance(frames, _Fault):
        frames, warnings = 1, (*warnings, "unknown_frame_count")
    stored = size if isinstance(stored, _Fault) else stored
    shown = size[::-1] if orientation in _SIDEWAYS_ORIENTATIONS else size
    if policy.orientation == "stored":
        shown = stored
    if isinstance(raw_orientation, int):
        orientation = raw_orientation
    return Verdict(
        reason=None,
        format=image.format or "",
        mode=mode,
        frames=frames,
        stored_width_px=stored[0],
        stored_height_px=stored[1],
        width_px=shown[0],
        height_px=shown[1],
        exif_orientation=orientation,
        is_rgba=transparent is True,
        warnings=warnings,
    )


def _refusal(fault: _Fault, data: bytes | memoryview, policy: ImagePolicy) -> Verdict:
    """Name the reason for what a decoder raised: by exception class first, then by the structure of the file.

    A file that carries the signature of an admitted format is damaged (``truncated_image`` where its structure ends
    early, else ``corrupt_image``), unless it is a variant that no decoder here supports; any other is unsupported.
    """
    header = read_header(data)
    detail = fault.describe()
    if isinstance(fault.error, Image.DecompressionBombError):
        return _too_many_pixels(detail, data)
    if isinstance(fault.error, MemoryError):
        reason = "decoder_crashed"
    elif isinstance(fault.error, UnidentifiedImageError) and not _admits(policy, header.format):
        reason, detail = "unsupported_format", "no admitted format recognises these bytes"
    elif isinstance(fault.error, NotImplementedError) or is_unsupported_variant(data, header.format):
        reason = "unsupported_format"
    else:
        reason = "truncated_image" if ends_early(data, header.format) else "corrupt_image"
    return Verdict(
        reason,
        detail,
        header.format,
        stored_width_px=header.width_px,
        stored_height_px=header.height_px,
    )


def _too_many_pixels(detail: str, data: bytes | memoryview) -> Verdict:
    header = read_header(data)
    return Verdict(
        "too_many_pixels",
        detail,
        header.format,
        stored_width_px=header.width_px,
        stored_height_px=header.height_px,
    )


def _admits(policy: ImagePolicy, format_name: str) -> bool:
    return format_name in policy.formats or (format_name == "JPEG" and "MPO" in policy.formats)


def _stored_size(image: Image.Image) -> tuple[int, int]:
    """Read the raster's size as it lies in the file; Pillow swaps a TIFF's size already when it opens it."""
    if isinstance(image, TiffImageFile):
        return int(image.tag_v2[256]), int(image.tag_v2[257])
    return image.size


def _tiff_orientation(image: Image.Image) -> int | None:
    """Read a TIFF's own tag, which decoding removes; None for every other format."""
    if isinstance(image, TiffImageFile):
        return _whole_number(image.tag_v2.get(_ORIENTATION_TAG, 1))
    return None


def _orientation(image: Image.Image) -> int:
    """Read the orientation that ``ImageOps.exif_transpose`` would follow, without a decode of its own."""
    exif = Image.Image.getexif(image)  # a PNG's own getexif() decodes the pixels
    return _whole_number(exif.get(_ORIENTATION_TAG, 1))


def _whole_number(value: object) -> int:
    """Take an EXIF value as an integer where it equals one, else as 1 (no orientation)."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return 1
    return number if number == value else 1


def _probe_container(head: bytes | memoryview, name: str, policy: ImagePolicy) -> HeaderSize | None:
    """Probe the formats that Pillow can only open whole; orientation there stands in chunks that the head lacks."""
    header = read_header(head)
    if not header.width_px or name != "WEBP" or name not in policy.formats:
        return None
    has_metadata = bytes(head[12:16]) == b"VP8X" and head[20] & 0b1100
    if has_metadata and policy.orientation == "upright":
        return None
    return HeaderSize(header.width_px, header.height_px)


@cache
def _register_plugins() -> None:
    """Load every plugin of Pillow once in this process: an allow-list of formats not yet loaded fails on any file."""
    Image.init()
    if find_spec("pillow_heif"):
        import_module("pillow_heif").register_heif_opener()


@cache
def _openers(formats: tuple[str, ...]) -> list[str]:
    """Turn an allow-list into the names that ``Image.open`` takes; MPO has no opener, the JPEG one returns it.

    Raises:
        ValueError: this installation has no decoder for a format of the list.
    """
    missing = unreadable_formats(formats)
    if missing:
        raise ValueError(f"no decoder is installed for {', '.join(missing)}")
    return list(dict.fromkeys("JPEG" if name == "MPO" else name for name in formats))
