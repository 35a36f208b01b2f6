"""PNG files put together chunk by chunk, for what no encoder would write."""

import itertools
import random
import struct
import zlib
from collections.abc import Sequence

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
COLOURS_AND_DEPTHS = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8), (4, 8),
                      (4, 16), (6, 8), (6, 16)]  # fmt: skip
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def chunk(name: bytes, body: bytes = b"") -> bytes:
    """Build one chunk."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def header(width: int, height: int, depth: int = 8, colour: int = 2, interlaced: int = 0) -> bytes:
    """Build an IHDR chunk, and a PLTE behind it for palette images."""
    ihdr = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
    return ihdr + (chunk(b"PLTE", bytes(3 << depth)) if colour == 3 else b"")


def raster(width: int, height: int, depth: int = 8, colour: int = 2, interlaced: int = 0, seed: int = 0) -> bytes:
    """Make random rows with valid filter bytes, of all passes of an interlaced image one after the other."""
    rng = random.Random(seed)
    rows = []
    for x, y, dx, dy in ADAM7 if interlaced else ((0, 0, 1, 1),):
        columns, lines = len(range(x, width, dx)), len(range(y, height, dy))
        length = (columns * SAMPLES[colour] * depth + 7) // 8
        rows += [bytes([rng.randrange(5)]) + rng.randbytes(length) for _ in range(lines if columns else 0)]
    return b"".join(rows)


def png(ihdr: bytes, stream: bytes, before: bytes = b"", behind: bytes = b"", cuts: Sequence[int] = ()) -> bytes:
    """Build a file; ``cuts`` are the offsets at which the stream is divided into IDAT chunks."""
    edges = [0, *cuts, len(stream)]
    pixels = b"".join(chunk(b"IDAT", stream[start:end]) for start, end in itertools.pairwise(edges))
    return SIGNATURE + ihdr + before + pixels + behind + chunk(b"IEND")


def with_checksums_mended(data: bytes) -> bytes:
    """Make the CRC of every whole chunk right again."""
    mended, position = bytearray(data), len(SIGNATURE)
    while position + 12 <= len(mended):
        end = position + 8 + int.from_bytes(mended[position : position + 4], "big")
        if end + 4 > len(mended):
            break
        struct.pack_into(">I", mended, end, zlib.crc32(mended[position + 4 : end]))
        position = end + 4
    return bytes(mended)
