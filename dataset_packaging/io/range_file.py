"""A seekable file over range reads."""

import io
from collections.abc import Callable
from typing import Any

SMALLEST_READ_AHEAD_BYTES = 64 * 2**10
LARGEST_READ_AHEAD_BYTES = 8 * 2**20


class RangeFile(io.RawIOBase):
    """Reads an object of known size; reading on where the last read ended doubles the read-ahead, a seek resets it.

    Args:
        read_range: (start, length) -> bytes; shorter than asked is an error of its own.
        size_bytes: Length of the object.
        tail: Its last bytes, where they are known: they are not asked for.
    """

    def __init__(
        self, read_range: Callable[[int, int], memoryview], size_bytes: int, tail: bytes | memoryview = b""
    ) -> None:
        super().__init__()
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._tail = tail
        self._tail_start = size_bytes - len(tail)
        self._position = 0
        self._window = memoryview(b"")
        self._window_start = 0
        self._read_ahead_bytes = SMALLEST_READ_AHEAD_BYTES

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def tell(self) -> int:
        """See `io.IOBase`."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """See `io.IOBase`."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        if origin + offset < 0:
            raise ValueError("a position before the start")
        self._position = origin + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """See `io.RawIOBase`."""
        target = memoryview(buffer).cast("B")
        wanted = min(len(target), self._size_bytes - self._position)
        if wanted <= 0:
            return 0
        known: bytes | memoryview = self._window
        start = self._window_start
        if self._position >= self._tail_start:
            known, start = self._tail, self._tail_start
        elif not start <= self._position < start + len(known):
            known, start = self._fetch(wanted), self._position
        offset = self._position - start
        count = min(wanted, len(known) - offset)
        target[:count] = known[offset : offset + count]
        self._position += count
        return count

    def _fetch(self, wanted: int) -> memoryview:
        goes_on = len(self._window) > 0 and self._position == self._window_start + len(self._window)
        grown_bytes = min(self._read_ahead_bytes * 2, LARGEST_READ_AHEAD_BYTES)
        self._read_ahead_bytes = grown_bytes if goes_on else SMALLEST_READ_AHEAD_BYTES
        length = min(max(wanted, self._read_ahead_bytes), self._tail_start - self._position)
        self._window = memoryview(b"")  # freed before the next one is there
        self._window = self._read_range(self._position, length)
        self._window_start = self._position
        if len(self._window) != length:
            raise EOFError(f"{len(self._window)} of {length} bytes at {self._position}")
        return self._window
