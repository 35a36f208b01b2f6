"""How bytes in memory are opened with Pillow: by content, with a dataset's own list of formats, without a copy."""

from __future__ import annotations

import io
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import IO, cast

from PIL import Image
from PIL.ImageFile import ImageFile


def open_image(data: bytes | memoryview, formats: tuple[str, ...]) -> ImageFile:
    """Open an image by its content, trying only the formats given. Raises whatever Pillow raises."""
    file = io.BytesIO(data) if isinstance(data, bytes) else _ByteView(data)
    return Image.open(cast(IO[bytes], file), formats=openers(formats))


@cache
def openers(formats: tuple[str, ...]) -> tuple[str, ...]:
    """Turn an allow-list into the names that ``Image.open`` takes; MPO has no opener, the JPEG one returns it.

    Raises:
        ValueError: this installation has no decoder for a format of the list.
    """
    missing = unreadable_formats(formats)
    if missing:
        raise ValueError(f"no decoder is installed for {', '.join(missing)}")
    return tuple(dict.fromkeys("JPEG" if name == "MPO" else name for name in formats))


def unreadable_formats(formats: tuple[str, ...]) -> tuple[str, ...]:
    """Name the formats of an allow-list that this installation has no decoder for, in their order."""
    _register_plugins()
    return tuple(name for name in formats if name != "MPO" and name not in Image.OPEN)


@cache
def _register_plugins() -> None:
    """Load every plugin of Pillow once in this process: a list with a name not yet loaded would fail on any file."""
    Image.init()
    if find_spec("pillow_heif"):
        import_module("pillow_heif").register_heif_opener()


class _ByteView(io.RawIOBase):
    """A readable file over a memoryview: headers are read without copying the object that they stand in."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._position = 0

    def readable(self) -> bool:
        """Tell that this file can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that this file can be positioned."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Read up to ``size`` bytes, all that are left for None or a negative size."""
        end = len(self._view) if size is None or size < 0 else self._position + size
        piece = bytes(self._view[self._position : end])
        self._position += len(piece)
        return piece

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset; as in BytesIO, one behind the end is kept and reads nothing."""
        origin = (0, self._position, len(self._view))[whence]
        if origin + offset < 0 and whence == io.SEEK_SET:
            raise ValueError(f"negative seek value {offset}")
        self._position = max(0, origin + offset)
        return self._position

    def tell(self) -> int:
        """Tell the present offset."""
        return self._position

    def getvalue(self) -> bytes:
        """Return everything; libtiff's reader asks for it."""
        return bytes(self._view)
