"""Questions about many bytes of JSON at once, answered without parsing them.

The answers err on one side only, which each function names, so that a parser need look at doubtful bytes alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_QUOTE, _COLON, _BLANK = 34, 58, 32
_DIGIT, _EXPONENT = b"\1", b"\2"
_KINDS = bytes(1 if character in b"0123456789" else 2 if character in b"eE+" else 0 for character in range(256))
_LONG_EXPONENT = _EXPONENT + 3 * _DIGIT
_LONG_NUMBER = 200 * _DIGIT


def may_hold_huge_number(data: bytes) -> bool:
    """Return False if surely no number in it is too large for a double; pure.

    Such a number has an exponent of three digits or more than two hundred digits in a row.
    """
    kinds = data.translate(_KINDS)
    return _LONG_EXPONENT in kinds or _LONG_NUMBER in kinds


class NameCounter:
    """Counts names of objects in buffers of some hundred kilobytes; keeps its scratch memory. Not thread-safe."""

    def __init__(self) -> None:
        self._flags: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)

    def count(self, data: bytes) -> int | None:
        """Return how many colons follow a quote: each name of an object is one, a text may hold more.

        None if a blank may stand between a name and its colon, so that the count would miss it.
        """
        found = np.frombuffer(data, dtype=np.uint8)
        if len(self._flags) < len(found):
            self._flags = np.empty(len(found), dtype=np.bool_)
        at = np.flatnonzero(np.equal(found, _COLON, out=self._flags[: len(found)]))
        before = found[at - 1]
        blank = before <= _BLANK
        if blank.any():
            second = found[at[blank] - 2]
            if ((second == _QUOTE) | (second <= _BLANK)).any():
                return None
        return int(np.count_nonzero(before == _QUOTE))
