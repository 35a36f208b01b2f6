"""Pillow's process-wide switches, held at known values while an image is judged.

Pillow reads its pixel limit and its leniency about truncated files from module globals that any library in the process
may set. This module is the only one that touches them. The lock and the counter below mirror that foreign state; there
is no other mutable state in this package.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, cast

from PIL import Image, ImageFile

_Filter: TypeAlias = tuple[str, re.Pattern[str] | None, type[Warning], re.Pattern[str] | None, int]

_PILLOW_WARNINGS: _Filter = ("ignore", None, Warning, re.compile(r"PIL"), 0)


@dataclass(slots=True)
class _Switches:
    """The values in force, who uses them and what to put back; every field is guarded by ``changed``."""

    changed: threading.Condition
    users_count: int = 0
    limit_px: int | None = None
    interferences_count: int = 0
    outer_limit_px: int | None = None
    outer_lenient: bool = False


_SWITCHES = _Switches(threading.Condition())


@dataclass(frozen=True, slots=True)
class Hold:
    """One caller's claim on the switches."""

    interferences_count: int

    def undisturbed(self) -> bool:
        """Tell whether nobody else changed a switch since this hold began; put the values back if somebody did.

        A verdict that was reached while another thread had made Pillow lenient is worth nothing, so callers repeat it.
        """
        with _SWITCHES.changed:
            _impose(_SWITCHES)
            return _SWITCHES.interferences_count == self.interferences_count


@contextmanager
def pillow_held(max_pixels: int) -> Iterator[Hold]:
    """Make Pillow strict about truncation and limited to ``max_pixels`` until the block ends.

    Thread-safe: any number of threads may hold the same limit at once; a caller with another limit waits for them. The
    last one to leave restores what it found, unless somebody else changed it meanwhile. Warnings of Pillow's own
    modules are ignored inside, so that a caller's ``-W error`` cannot turn odd metadata into a refusal.
    """
    limit_px = (max_pixels + 1) // 2  # Pillow raises above twice its limit; an odd max_pixels is compared again by size
    switches = _SWITCHES
    with switches.changed:
        while switches.users_count and switches.limit_px != limit_px:
            switches.changed.wait()
        if not switches.users_count:
            switches.outer_limit_px, switches.outer_lenient = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
            Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = limit_px, False
            switches.limit_px = limit_px
            warnings.filterwarnings("ignore", module="PIL")
        switches.users_count += 1
        _impose(switches)
        hold = Hold(switches.interferences_count)
    try:
        yield hold
    finally:
        with switches.changed:
            switches.users_count -= 1
            if not switches.users_count:
                _restore(switches)
            switches.changed.notify_all()


def _impose(switches: _Switches) -> None:
    """Set the switches again where a stranger changed them, and remember the stranger's wish for the end."""
    if ImageFile.LOAD_TRUNCATED_IMAGES is not False:
        switches.outer_lenient = ImageFile.LOAD_TRUNCATED_IMAGES
        ImageFile.LOAD_TRUNCATED_IMAGES = False
        switches.interferences_count += 1
    if switches.limit_px != Image.MAX_IMAGE_PIXELS:
        switches.outer_limit_px = Image.MAX_IMAGE_PIXELS
        Image.MAX_IMAGE_PIXELS = switches.limit_px
        switches.interferences_count += 1


def _restore(switches: _Switches) -> None:
    """Put the switches back as their owner left them."""
    _impose(switches)
    Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = switches.outer_limit_px, switches.outer_lenient
    filters = cast(list[_Filter], warnings.filters)
    while _PILLOW_WARNINGS in filters:
        filters.remove(_PILLOW_WARNINGS)
