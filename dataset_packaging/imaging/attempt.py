"""One step of a decoder on one image, with whatever it raises taken as data. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_MAX_DETAIL_CHARS = 300
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fault:
    """What a decoder raised."""

    error: Exception

    def describe(self) -> str:
        """Word the fault in one line of bounded length, the same for the same bytes."""
        text = _ADDRESS.sub("", " ".join(str(self.error).split()))
        return f"{type(self.error).__name__}: {text}"[:_MAX_DETAIL_CHARS]


def attempt(step: Callable[[], _T]) -> _T | Fault:
    """Run one step of a decoder on one image; whatever it raises is the image's fault.

    This is the one broad clause around an image: decoders raise nearly anything for damaged input (OSError,
    SyntaxError, ValueError, struct.error, KeyError, MemoryError, RecursionError). Steps hold calls into a decoder and
    nothing of our own, so that an error of the program is never taken for an image's; KeyboardInterrupt and SystemExit
    pass.
    """
    try:
        return step()
    except Exception as error:
        return Fault(error.with_traceback(None))


@dataclass(frozen=True, slots=True)
class Finding:
    """What a fast strict check found out about pixel data.

    ``damage`` words what is wrong with the pixels, ``""`` for nothing. With ``needs_referee`` the check did not see
    enough to accept the image alone: Pillow decides. ``warnings`` are stable names of faults outside the pixels.
    """

    damage: str = ""
    needs_referee: bool = False
    warnings: tuple[str, ...] = ()
