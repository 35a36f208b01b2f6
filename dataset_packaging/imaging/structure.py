"""Where a refused file ends, by the structure of its format: told apart from damage inside. Pure.

Only files that a decoder has already refused are looked at, so nothing here can refuse an image; it names the reason.
The rule of each format is stated with its function and does not depend on any decoder's messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from dataset_packaging.imaging.header import PNG_SIGNATURE
from dataset_packaging.imaging.jpeg_segments import END, SCAN, header_segments

_READABLE_FRAMES = (0xC0, 0xC1, 0xC2, 0xC9, 0xCA)  # sequential and progressive, Huffman and arithmetic


def ends_early(data: bytes | memoryview, format_name: str) -> bool:
    """Tell whether the file stops before the end that its own structure announces."""
    rules: dict[str, Callable[[memoryview], bool]] = {
        "JPEG": _jpeg_ends_early,
        "PNG": _png_ends_early,
        "WEBP": _riff_ends_early,
        "GIF": _gif_ends_early,
        "BMP": _bmp_ends_early,
        "TIFF": _tiff_ends_early,
        "AVIF": _iso_ends_early,
        "HEIF": _iso_ends_early,
    }
    rule = rules.get(format_name)
    if rule is None:
        return False
    try:
        return rule(memoryview(data))
    except (struct.error, IndexError, OverflowError):
        return True  # a field that the structure requires lies behind the end


def is_unsupported_variant(data: bytes | memoryview, format_name: str) -> bool:
    """Tell whether a JPEG is of a kind that baseline decoders do not read: not 8-bit, lossless or hierarchical."""
    if format_name != "JPEG":
        return False
    frame = next((segment for segment in header_segments(data) if segment.is_frame), None)
    if frame is None:
        return False
    return frame.marker not in _READABLE_FRAMES or bytes(data[frame.start + 4 : frame.start + 5]) not in (b"", b"\x08")


def _jpeg_ends_early(view: memoryview) -> bool:
    """A JPEG ends early when no end marker stands behind the start of its first scan.

    Within entropy-coded data 0xFF is always stuffed, so that an end marker there can only be one.
    """
    segments = header_segments(view)
    if not segments or segments[-1].marker not in (SCAN, END):
        return True
    return segments[-1].marker == SCAN and bytes(view[segments[-1].start :]).find(b"\xff\xd9") < 0


def _png_ends_early(view: memoryview) -> bool:
    """A PNG ends early when its chunks, followed by their lengths, run past the end of the file before IEND."""
    position = len(PNG_SIGNATURE)
    while position + 12 <= len(view):
        (length,) = struct.unpack_from(">I", view, position)
        if bytes(view[position + 4 : position + 8]) == b"IEND":
            return False
        position += 12 + length
    return True


def _riff_ends_early(view: memoryview) -> bool:
    """A WebP ends early when it is shorter than its RIFF header says."""
    (length,) = struct.unpack_from("<I", view, 4)
    return bool(len(view) < 8 + length)


def _gif_ends_early(view: memoryview) -> bool:
    """A GIF ends early when its blocks run past the end of the file before the trailer."""
    flags = view[10]
    position = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while view[position] != 0x3B:
        if view[position] == 0x21:
            position += 2
        elif view[position] == 0x2C:
            flags = view[position + 9]
            position += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
        else:
            return False  # not a block: damage, not an end
        while view[position]:
            position += 1 + view[position]
        position += 1
    return False


def _bmp_ends_early(view: memoryview) -> bool:
    """A BMP ends early when it is shorter than its file header says."""
    (length,) = struct.unpack_from("<I", view, 2)
    return bool(len(view) < length)


def _tiff_ends_early(view: memoryview) -> bool:
    """A TIFF ends early when its first directory, or a strip or tile that it lists, lies behind the end."""
    order = "<" if view[0] == 0x49 else ">"
    big = 43 in (view[2], view[3])
    wide, entry_bytes = ("Q", 20) if big else ("I", 12)
    (directory,) = struct.unpack_from(order + wide, view, 8 if big else 4)
    (count,) = struct.unpack_from(order + ("Q" if big else "H"), view, directory)
    listed: dict[int, tuple[int, ...]] = {}
    for index in range(min(count, 4096)):
        entry = directory + (8 if big else 2) + index * entry_bytes
        tag, kind, values = struct.unpack_from(order + "HH" + wide, view, entry)
        code = {3: "H", 4: "I", 16: "Q"}.get(kind)
        if tag not in (273, 279, 324, 325) or code is None:
            continue
        at = entry + (12 if big else 8)
        if struct.calcsize(code) * values > (8 if big else 4):
            (at,) = struct.unpack_from(order + wide, view, at)
        listed[tag] = struct.unpack_from(f"{order}{min(values, len(view))}{code}", view, at)
    return any(
        offset + length > len(view)
        for starts, lengths in ((273, 279), (324, 325))
        for offset, length in zip(listed.get(starts, ()), listed.get(lengths, ()), strict=False)
    )


def _iso_ends_early(view: memoryview) -> bool:
    """An AVIF or HEIF ends early when a top-level box runs past the end of the file."""
    position = 0
    while position + 8 <= len(view):
        (length,) = struct.unpack_from(">I", view, position)
        if length == 0:
            return False
        if length == 1:
            (length,) = struct.unpack_from(">Q", view, position + 8)
        if length < 8:
            return False
        position += length
    return position != len(view)
