"""A PNG writer that also writes what no library would: every depth, interlacing, broken chunks."""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def chunk(kind: bytes, body: bytes, crc_xor: int = 0) -> bytes:
    """Returns one chunk; `crc_xor` other than 0 makes its checksum wrong."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body) ^ crc_xor)


def header(width: int, height: int, depth: int, colour: int, interlaced: bool = False) -> bytes:
    """Returns the IHDR chunk."""
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced)))


@dataclass(frozen=True, slots=True)
class Png:
    """A PNG in its parts: `samples` is height x width x channels of values below 2**depth."""

    samples: np.ndarray
    depth: int
    colour: int
    interlaced: bool = False
    before_data: bytes = b""

    def raw(self) -> bytes:
        """Returns the filtered scan lines (filter 0), before compression."""
        if not self.interlaced:
            return self._lines(self.samples)
        passes = (self.samples[top::down, left::right] for top, left, down, right in ADAM7)
        return b"".join(self._lines(part) for part in passes if part.size)

    def _lines(self, samples: np.ndarray) -> bytes:
        flat = samples.reshape(samples.shape[0], -1)
        if self.depth == 16:
            packed = flat.astype(">u2").view(np.uint8)
        elif self.depth == 8:
            packed = flat.astype(np.uint8)
        else:
            bits = (flat[..., None] >> np.arange(self.depth - 1, -1, -1)) & 1
            packed = np.packbits(bits.reshape(flat.shape[0], -1).astype(np.uint8), axis=1)
        return np.insert(packed.reshape(samples.shape[0], -1), 0, 0, axis=1).tobytes()

    def start(self) -> bytes:
        """Returns everything before the first IDAT."""
        height, width = self.samples.shape[:2]
        palette = b""
        if self.colour == PALETTE:
            steps = np.arange(2**self.depth, dtype=np.uint8) * (255 // (2**self.depth - 1))
            palette = chunk(b"PLTE", np.stack([steps, steps[::-1], steps], axis=1).tobytes())
        first = header(width, height, self.depth, self.colour, self.interlaced)
        return SIGNATURE + first + palette + self.before_data

    def encoded(self, data_pieces: int = 1, after_data: bytes = b"") -> bytes:
        """Returns the whole file, its data in one or several IDAT chunks."""
        stream = zlib.compress(self.raw(), 6)
        size = -(-len(stream) // data_pieces)
        pieces = (stream[start : start + size] for start in range(0, len(stream), size))
        return self.with_data((chunk(b"IDAT", piece) for piece in pieces), after_data + chunk(b"IEND", b""))

    def with_data(self, data: Iterable[bytes], end: bytes) -> bytes:
        """Returns the file with these chunks in place of its own."""
        return self.start() + b"".join(data) + end


def pattern(width: int, height: int, colour: int, depth: int) -> np.ndarray:
    """Returns samples of a smooth pattern that differs in each channel."""
    rows, columns, channels = np.mgrid[0:height, 0:width, 0 : CHANNELS[colour]]
    return (rows * 5 + columns * 3 + rows * columns // 7 + channels * 41) * (2**depth // 64 + 1) % 2**depth
