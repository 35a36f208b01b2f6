"""The strict check of PNG: every checksum, the whole inflate, its length and its filter bytes; no unfiltering.

What follows from these is that the pixels are those that were written: unfiltering and unpacking cannot fail after
that, so the raster is never built.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from isal import isal_zlib

from dataset_packaging.imaging.attempt import Finding
from dataset_packaging.imaging.header import PNG_SIGNATURE

_SAMPLES_PER_PIXEL = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_INPUT_BYTES = 64 * 1024
_OUTPUT_BYTES = 256 * 1024
_HIGHEST_FILTER = 4
_TEXT_CHUNKS = (b"tEXt", b"zTXt", b"iTXt")
_MAX_TRAILING_TEXT_BYTES = 64 * 1024
_KEYWORDS_THAT_STEER_PILLOW = {b"exif", b"Raw profile type exif", b"transparency", b"XML:com.adobe.xmp", b"xmp",
                               b"interlace", b"bbox", b"default_image"}  # fmt: skip


@dataclass(slots=True)
class _Layout:
    """What a walk over the chunks found, in file order."""

    header: bytes = b""
    pixels: list[memoryview] = field(default_factory=list)
    pixel_checksums_hold: bool = True
    other_checksums_hold: bool = True
    ended: bool = False
    unusual: bool = False


@dataclass(frozen=True, slots=True)
class _Raster:
    """One raster of the stream: the whole image, or one of the seven of an interlaced one."""

    row_bytes: int
    rows: int


def check_png(data: bytes | memoryview) -> Finding:
    """Check the pixel data of a PNG whose header Pillow has already read.

    Pure, releases the GIL for most of its time, needs about 1 MiB whatever the size of the image. Whatever is out of
    the ordinary (an animation, metadata behind the pixels that changes how they are shown, a missing palette) needs
    the referee as well; damage is damage in such files too.
    """
    layout = _walk(memoryview(data))
    if not layout.pixels or len(layout.header) < 13:
        return Finding(needs_referee=True)
    if not layout.pixel_checksums_hold:
        return Finding(damage="the checksum of an IDAT chunk is wrong or missing")
    warnings: tuple[str, ...] = () if layout.ended else ("missing_iend",)
    if not layout.other_checksums_hold:
        warnings += ("bad_chunk_checksum",)
    rasters = _rasters(layout.header)
    unusual = layout.unusual or not layout.ended or _window_is_small(layout.pixels, rasters)
    try:
        damage = _check_stream(layout.pixels, rasters)
    except isal_zlib.error as error:  # type: ignore[misc]  # isal's stub declares an instance
        damage = f"the stream does not inflate: {error}"
    if damage:
        return Finding(damage=damage)
    return Finding(needs_referee=unusual, warnings=warnings)


def _walk(view: memoryview) -> _Layout:
    """Follow the chunks to IEND or to the end of the file, and check every CRC on the way."""
    layout = _Layout()
    trailing_text_bytes, behind_pixels, has_palette = 0, False, False
    for name, body, sound in _chunks(view):
        if name == b"IEND":
            layout.ended = True
            layout.other_checksums_hold = layout.other_checksums_hold and sound
            break
        if name == b"IDAT" and not behind_pixels:
            layout.pixels.append(body)
            layout.pixel_checksums_hold = layout.pixel_checksums_hold and sound
            continue
        layout.other_checksums_hold = layout.other_checksums_hold and sound
        behind_pixels = bool(layout.pixels)
        if name == b"IHDR":
            layout.unusual = layout.unusual or bool(layout.header)
            layout.header = bytes(body)
        elif name == b"PLTE":
            has_palette = True
        elif name in _TEXT_CHUNKS and bytes(body[:80]).split(b"\0")[0] in _KEYWORDS_THAT_STEER_PILLOW:
            layout.unusual = True
        if name in (b"acTL", b"CgBI"):
            layout.unusual = True
        elif behind_pixels:
            trailing_text_bytes += len(body)
            layout.unusual = layout.unusual or name not in (b"tEXt", b"tIME")
    palette_missing = layout.header[9:10] == b"\x03" and not has_palette
    layout.unusual = layout.unusual or palette_missing or trailing_text_bytes > _MAX_TRAILING_TEXT_BYTES
    return layout


def _chunks(view: memoryview) -> Iterator[tuple[bytes, memoryview, bool]]:
    """Yield name, body and whether the CRC holds; a chunk that the end of the file cuts comes last, with False.

    An IEND that is cut is not an end: it is not yielded.
    """
    position = len(PNG_SIGNATURE)
    while position + 8 <= len(view):
        (length,) = struct.unpack_from(">I", view, position)
        name = bytes(view[position + 4 : position + 8])
        end = position + 8 + length
        if end + 4 > len(view):
            if name != b"IEND":
                yield name, view[position + 8 : end], False
            return
        (crc,) = struct.unpack_from(">I", view, end)
        yield name, view[position + 8 : end], isal_zlib.crc32(view[position + 4 : end]) == crc
        position = end + 4


def _rasters(header: bytes) -> list[_Raster]:
    """List the rasters that the stream holds, in order; one row is its filter byte and its packed samples."""
    width_px, height_px, depth, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", header)
    bits = depth * _SAMPLES_PER_PIXEL[colour]
    grid = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(width_px - x) // dx), -(-(height_px - y) // dy)) for x, y, dx, dy in grid]
    return [_Raster(1 + (columns * bits + 7) // 8, rows) for columns, rows in sizes if columns > 0 and rows > 0]


def _window_is_small(pixels: list[memoryview], rasters: list[_Raster]) -> bool:
    """Tell whether the zlib header claims a window below both 32 KiB and the data: decoders differ on such streams."""
    claimed_bytes = 256 << (next((body[0] for body in pixels if len(body)), 0) >> 4)
    return claimed_bytes < min(32 * 1024, sum(raster.row_bytes * raster.rows for raster in rasters))


def _check_stream(pixels: list[memoryview], rasters: list[_Raster]) -> str:
    """Inflate all pieces and compare what comes out with the rasters; returns what is wrong, or ``""``.

    The Adler checksum is compared by the decoder, which raises. Memory: one piece of input and one of output.
    """
    inflater = isal_zlib.decompressobj()
    left = [raster.row_bytes * raster.rows for raster in rasters]
    current, offset = 0, 0
    for piece in _inflated(inflater, pixels):
        at = 0
        while at < len(piece):
            if current == len(rasters):
                return "there is more pixel data than the header announces"
            row_bytes = rasters[current].row_bytes
            take = min(len(piece) - at, left[current])
            filters = piece[at + (-offset) % row_bytes : at + take : row_bytes]
            if filters and max(filters) > _HIGHEST_FILTER:
                return f"a row has the unknown filter {max(filters)}"
            at, offset, left[current] = at + take, offset + take, left[current] - take
            if not left[current]:
                current, offset = current + 1, 0
    if not inflater.eof:
        return "the pixel data ends before its stream does"
    return "" if current == len(rasters) else "there is less pixel data than the header announces"


def _inflated(inflater: isal_zlib.Decompress, pixels: list[memoryview]) -> Iterator[bytes]:
    """Inflate piece by piece; input is fed in slices, because what a bounded call leaves over is copied."""
    for body in pixels:
        for start in range(0, len(body), _INPUT_BYTES):
            rest: bytes | memoryview = body[start : start + _INPUT_BYTES]
            while not inflater.eof:
                piece = inflater.decompress(rest, _OUTPUT_BYTES)
                yield piece
                rest = inflater.unconsumed_tail
                if not rest and len(piece) < _OUTPUT_BYTES:
                    break
