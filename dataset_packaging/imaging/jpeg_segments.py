"""The segments of a JPEG before its first scan: pure parsing, no decoder."""

from __future__ import annotations

from dataclasses import dataclass

SCAN, END, COMMENT = 0xDA, 0xD9, 0xFE
_NOT_A_FRAME = (0xC4, 0xC8, 0xCC)  # Huffman tables, reserved, arithmetic conditioning: amid the frame headers' codes


@dataclass(frozen=True, slots=True)
class Segment:
    """One marker segment: its code, where its 0xFF stands, and its length with the marker's two bytes."""

    marker: int
    start: int
    length: int

    @property
    def is_frame(self) -> bool:
        """Whether this is a frame header, which holds the size."""
        return 0xC0 <= self.marker <= 0xCF and self.marker not in _NOT_A_FRAME

    @property
    def is_metadata(self) -> bool:
        """Whether decoding the pixels can do without it: APPn and COM."""
        return 0xE0 <= self.marker <= 0xEF or self.marker == COMMENT


def header_segments(data: bytes | memoryview) -> list[Segment]:
    """List the segments from the start up to the first scan or end marker, that one included.

    Bytes between segments are passed over as libjpeg does: up to the next 0xFF that a marker code follows. A segment
    may claim to reach beyond the data.
    """
    view = memoryview(data)
    segments = []
    position = 2
    while position + 4 <= len(view):
        marker = view[position + 1]
        if view[position] != 0xFF or marker in (0x00, 0xFF):
            position += 1
            continue
        standalone = marker == 0x01 or 0xD0 <= marker <= END
        length = 2 if standalone else 2 + int.from_bytes(view[position + 2 : position + 4], "big")
        segments.append(Segment(marker, position, length))
        if marker in (SCAN, END):
            break
        position += length
    return segments
