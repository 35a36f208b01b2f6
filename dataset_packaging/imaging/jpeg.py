"""The strict check of JPEG: every entropy-coded byte is decoded, at 1/8 scale, and complaints inside it are damage.

The decoder is libjpeg-turbo, as in Pillow, which reports damage inside the pixel data as warnings that Pillow does not
read. Decoding at 1/8 scale reads the same coefficients as a full decode and skips most of the inverse transform.
"""

from __future__ import annotations

import simplejpeg

from dataset_packaging.imaging.attempt import Fault, Finding, attempt
from dataset_packaging.imaging.jpeg_segments import SCAN, header_segments

_SCALE = 8


def check_jpeg(data: bytes | memoryview, width_px: int, height_px: int) -> Finding:
    """Decode all pixel data strictly; the size is the one that Pillow read from the header.

    Pure, releases the GIL, needs 1/64 of the raster (a progressive file: all its coefficients). libjpeg-turbo stops at
    the first complaint, so that one about the header would hide what is wrong behind it: such a file is looked at a
    second time without its metadata and without stray bytes between header segments. What still complains then
    complains about pixel data. A file that passes only the second time, or is of a kind that the decoder does not
    support (unusual subsampling, some four-colour files), needs the referee.
    """
    first = attempt(lambda: _decoded_size(data))
    if first == (-(-height_px // _SCALE), -(-width_px // _SCALE)):
        return Finding(warnings=header_warnings(data))
    bare = without_metadata(data)
    second = attempt(lambda: _decoded_size(bare))
    if isinstance(second, Fault) and is_pixel_damage(str(second.error)):
        return Finding(damage=f"{type(second.error).__name__}: {second.error}")
    if isinstance(second, Fault):
        return Finding(needs_referee=True, warnings=(*header_warnings(data), "not_strictly_checked"))
    return Finding(needs_referee=True, warnings=header_warnings(data) or ("odd_header",))


def is_pixel_damage(message: str) -> bool:
    """Tell whether a message of libjpeg-turbo, about a file reduced to its essential segments, is about pixel data.

    The messages are constants of the library (``jerror.h``): all damage of entropy-coded data is worded "Corrupt JPEG
    data: ..." (bad code, premature end of a segment, stray bytes before a marker, a wrong restart marker), a file that
    stops is a "Premature end of JPEG file", and scans that do not fit together are an "Inconsistent progression
    sequence". Everything else says that the decoder cannot or will not decode.
    """
    return message.startswith(("Corrupt JPEG data", "Premature end of JPEG file", "Inconsistent progression sequence"))


def header_warnings(data: bytes | memoryview) -> tuple[str, ...]:
    """Name what is odd before the first scan of a JPEG and harmless to its pixels. Pure."""
    expected = 2
    for segment in header_segments(data):
        if bytes(memoryview(data)[expected : segment.start]).strip(b"\xff"):
            return ("stray_header_bytes",)
        expected = segment.start + segment.length
    return ()


def without_metadata(data: bytes | memoryview) -> bytes:
    """Keep what decoding needs: tables, frame and everything from the first scan on; no APPn, COM or stray bytes."""
    view = memoryview(data)
    kept: list[bytes | memoryview] = [b"\xff\xd8"]
    for segment in header_segments(data):
        if segment.marker == SCAN:
            kept.append(view[segment.start :])
        elif not segment.is_metadata:
            kept.append(view[segment.start : segment.start + segment.length])
    return b"".join(kept)


def _decoded_size(data: bytes | memoryview) -> tuple[int, int]:
    """Decode at 1/8 scale, raising for every complaint; ``min_height`` and ``min_width`` are what selects the scale."""
    height, width, _ = simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1, strict=True).shape
    return height, width
