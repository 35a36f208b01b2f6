"""Size and format of an image from its first bytes, without any decoder: pure struct parsing, bounded work.

Nothing here decides about acceptance. The figures serve limits that must hold before a decoder allocates, and the
admission of decodes to memory.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from dataset_packaging.imaging.jpeg_segments import header_segments

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BYTES_PER_PIXEL = 4  # Pillow's widest storage of a pixel: RGBA, CMYK, I and F
_ISO_IMAGE_BRANDS = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIF", b"heix": "HEIF", b"hevc": "HEIF",
                     b"hevx": "HEIF", b"heim": "HEIF", b"heis": "HEIF", b"mif1": "HEIF", b"msf1": "HEIF"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Header:
    """What the first bytes claim; the sizes are 0 where the claim could not be found."""

    format: str
    width_px: int
    height_px: int


def sniff_format(data: bytes | memoryview) -> str:
    """Name the format that the signature belongs to, in Pillow's words, or ``""``. Pure; reads at most 16 bytes."""
    head = bytes(data[:16])
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith(PNG_SIGNATURE):
        return "PNG"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "WEBP"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return "TIFF"
    if head.startswith(b"BM"):
        return "BMP"
    if head[4:8] == b"ftyp":
        return _ISO_IMAGE_BRANDS.get(head[8:12], "")
    return ""


def read_header(data: bytes | memoryview) -> Header:
    """Read the claimed size in pixels as stored (EXIF orientation not applied). Pure; damaged headers give size 0."""
    name = sniff_format(data)
    readers = {"JPEG": _jpeg_size, "PNG": _png_size, "WEBP": _webp_size, "GIF": _gif_size, "TIFF": _tiff_size,
               "BMP": _bmp_size, "AVIF": _iso_size, "HEIF": _iso_size}  # fmt: skip
    try:
        size = readers[name](memoryview(data)) if name else (0, 0)
    except (struct.error, IndexError, OverflowError):
        size = (0, 0)
    return Header(name, *size)


def estimate_decoded_bytes(data: bytes | memoryview) -> int:
    """Bound the memory of a full decode: 4 bytes for every pixel that the header claims, 0 where it claims none.

    Pure, and cheap enough to ask before every decode.
    """
    header = read_header(data)
    return header.width_px * header.height_px * _BYTES_PER_PIXEL


def _jpeg_size(view: memoryview) -> tuple[int, int]:
    for segment in header_segments(view):
        if segment.is_frame:
            height_px, width_px = struct.unpack_from(">HH", view, segment.start + 5)
            return width_px, height_px
    return 0, 0


def _png_size(view: memoryview) -> tuple[int, int]:
    if bytes(view[12:16]) != b"IHDR":
        return 0, 0
    width_px, height_px = struct.unpack_from(">II", view, 16)
    return width_px, height_px


def _webp_size(view: memoryview) -> tuple[int, int]:
    chunk = bytes(view[12:16])
    if chunk == b"VP8X" and len(view) >= 30:
        return int.from_bytes(view[24:27], "little") + 1, int.from_bytes(view[27:30], "little") + 1
    if chunk == b"VP8 " and bytes(view[23:26]) == b"\x9d\x01\x2a":
        width_px, height_px = struct.unpack_from("<HH", view, 26)
        return width_px & 0x3FFF, height_px & 0x3FFF
    if chunk == b"VP8L" and view[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", view, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return 0, 0


def _gif_size(view: memoryview) -> tuple[int, int]:
    width_px, height_px = struct.unpack_from("<HH", view, 6)
    return width_px, height_px


def _bmp_size(view: memoryview) -> tuple[int, int]:
    (header_bytes,) = struct.unpack_from("<I", view, 14)
    if header_bytes == 12:
        width_px, height_px = struct.unpack_from("<HH", view, 18)
    else:
        width_px, height_px = struct.unpack_from("<ii", view, 18)
    return abs(width_px), abs(height_px)


def _tiff_size(view: memoryview) -> tuple[int, int]:
    """Read ImageWidth and ImageLength of the first directory, of classic and of big TIFF."""
    order = "<" if view[0] == 0x49 else ">"
    big = view[2] == 43 or view[3] == 43
    (offset,) = struct.unpack_from(order + ("Q" if big else "I"), view, 8 if big else 4)
    (count,) = struct.unpack_from(order + ("Q" if big else "H"), view, offset)
    offset += 8 if big else 2
    sizes = {256: 0, 257: 0}
    for entry in range(offset, offset + min(count, 4096) * (20 if big else 12), 20 if big else 12):
        tag, kind = struct.unpack_from(order + "HH", view, entry)
        if tag in sizes:
            code = {1: "B", 3: "H", 4: "I", 16: "Q"}.get(kind, "I")
            (sizes[tag],) = struct.unpack_from(order + code, view, entry + (12 if big else 8))
    return sizes[256], sizes[257]


def _iso_size(view: memoryview) -> tuple[int, int]:
    """Take the largest image spatial extent (``ispe``) in the first 64 KiB: grids name the whole picture's too."""
    head = bytes(view[: 1 << 16])
    largest = (0, 0)
    position = head.find(b"ispe")
    while position >= 0:
        width_px, height_px = struct.unpack_from(">II", head, position + 8)
        largest = max(largest, (width_px, height_px), key=lambda size: size[0] * size[1])
        position = head.find(b"ispe", position + 4)
    return largest
