"""The fast check of still WebP: libwebp reads every bit of the picture; colours are not computed, nothing is copied.

The library is the very one that Pillow's reader is linked with, found through it. Pillow decodes every WebP as an
animation, with a canvas, blending and three copies in RGBA. What can be wrong with the coded data is the same for both.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from PIL import _webp

from dataset_packaging.imaging.attempt import Finding

_ABI_VERSION = 0x0209  # of decode.h; the library compares the upper byte, which fixes the records below
_MODE_RGBA, _MODE_YUVA = 1, 12
_STATUS_OK = 0


class _Features(ctypes.Structure):
    """WebPBitstreamFeatures."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("width", "height", "has_alpha", "has_animation", "format")),
        ("pad", ctypes.c_uint32 * 5),
    )


class _Planes(ctypes.Structure):
    """WebPYUVABuffer, the larger member of the union of output buffers."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("y", "u", "v", "a")),
        *((name, ctypes.c_int) for name in ("y_stride", "u_stride", "v_stride", "a_stride")),
        *((name, ctypes.c_size_t) for name in ("y_size", "u_size", "v_size", "a_size")),
    )


class _Output(ctypes.Structure):
    """WebPDecBuffer."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("colorspace", "width", "height", "is_external_memory")),
        ("planes", _Planes),
        ("pad", ctypes.c_uint32 * 4),
        ("private_memory", ctypes.c_void_p),
    )


class _Options(ctypes.Structure):
    """WebPDecoderOptions."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("bypass_filtering", "no_fancy_upsampling", "use_cropping")),
        *((name, ctypes.c_int) for name in ("crop_left", "crop_top", "crop_width", "crop_height")),
        *((name, ctypes.c_int) for name in ("use_scaling", "scaled_width", "scaled_height", "use_threads")),
        *((name, ctypes.c_int) for name in ("dithering_strength", "flip", "alpha_dithering_strength")),
        ("pad", ctypes.c_uint32 * 5),
    )


class _Config(ctypes.Structure):
    """WebPDecoderConfig."""

    _fields_ = (("input", _Features), ("output", _Output), ("options", _Options))


def check_webp(data: bytes | memoryview, width_px: int, height_px: int) -> Finding:
    """Decode a WebP whose container Pillow has already read; the size is the one that Pillow read.

    Pure, releases the GIL, needs 2.5 bytes per pixel (lossless: 8). An animation, a file that does not decode and one
    of another size need the referee, so that this check refuses nothing itself. The loop filter, which smooths pixels
    that were read already, is left out.
    """
    library, picture = _library(), _picture(memoryview(data))
    if library is None or picture is None:
        return Finding(needs_referee=True)
    config = _Config()
    if not library.WebPInitDecoderConfigInternal(ctypes.byref(config), _ABI_VERSION):
        return Finding(needs_referee=True)
    config.output.colorspace = _MODE_RGBA if bytes(picture[:4]) == b"VP8L" else _MODE_YUVA
    config.options.bypass_filtering = 1
    view = np.frombuffer(picture, np.uint8)
    try:
        status = library.WebPDecode(view.ctypes.data, len(view), ctypes.byref(config))
        size = (config.output.width, config.output.height)
    finally:
        library.WebPFreeDecBuffer(ctypes.byref(config.output))
    return Finding(needs_referee=status != _STATUS_OK or size != (width_px, height_px))


def _picture(view: memoryview) -> memoryview | None:
    """Cut out the chunk of the picture, with the one of its alpha where that stands right before it.

    libwebp reads a lossless picture to the end of what it is given; Pillow gives it these chunks and nothing behind.
    """
    position, start = 12, 0
    while position + 8 <= len(view):
        name = bytes(view[position : position + 4])
        end = position + 8 + int.from_bytes(view[position + 4 : position + 8], "little")
        if name in (b"VP8 ", b"VP8L"):
            return view[start or position : end] if end <= len(view) else None
        start = position if name == b"ALPH" else 0
        position = end + (end & 1)
    return None


@cache
def _library() -> Any:
    """Return libwebp with the signatures of what is called, or None where Pillow's reader does not lead to it.

    The dynamic linker looks for a name in a module and in all that the module is linked with.
    """
    try:
        library = ctypes.CDLL(_webp.__file__)
        begin, decode, free = library.WebPInitDecoderConfigInternal, library.WebPDecode, library.WebPFreeDecBuffer
    except (OSError, AttributeError):
        return None
    begin.argtypes, begin.restype = (ctypes.c_void_p, ctypes.c_int), ctypes.c_int
    decode.argtypes, decode.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p), ctypes.c_int
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    return library
