"""Whether the pixel data of a PNG are whole: what `strict` promises beyond Pillow."""

import struct
import zlib

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def is_damaged(data: bytes) -> bool:
    """Whether an IDAT checksum, the Adler or the length of the pixel data is wrong. For files that Pillow accepts."""
    position, stream, length = 8, bytearray(), None
    while position + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, position)
        body = data[position + 8 : position + 8 + size]
        if kind == b"IHDR" and length is None:
            length = _raw_length(*struct.unpack(">IIBBxxB", body))
        if kind == b"IDAT":
            if data[position + 8 + size : position + 12 + size] != struct.pack(">I", zlib.crc32(kind + body)):
                return True
            stream += body
        if kind == b"IEND":
            break
        position += 12 + size
    return length is None or _inflated_length(bytes(stream)) != length


def _inflated_length(stream: bytes) -> int | None:
    inflater, count, rest = zlib.decompressobj(), 0, stream
    try:
        while rest and not inflater.eof:
            count += len(inflater.decompress(rest, 1 << 20))
            rest = inflater.unconsumed_tail
    except zlib.error:
        return None
    return count if inflater.eof else None


def _raw_length(width: int, height: int, depth: int, colour: int, interlaced: int) -> int:
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    total = 0
    for left, top, right, down in passes:
        columns, rows = -(-(width - left) // right), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + (columns * depth * _CHANNELS[colour] + 7) // 8)
    return total
