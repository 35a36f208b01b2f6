"""A decoder that does what native ones do at their worst, for images that a test names by their hash."""

import ctypes
import hashlib
import os
import signal
from collections.abc import Callable
from types import ModuleType

import numpy as np


def install(verify: ModuleType, marked: dict[str, str]) -> None:
    """Makes the decoding step of the verification module misbehave for the marked images, and only for them."""
    check_pixels: Callable[..., object] = verify._check_pixels

    def bad_check_pixels(data: bytes | memoryview, *args: object) -> object:
        what = marked.get(hashlib.sha256(data).hexdigest())
        if what is not None:
            _BEHAVIOURS[what]()
        return check_pixels(data, *args)

    verify._check_pixels = bad_check_pixels


def _sleep() -> None:
    """Waits inside native code, with the GIL released, as a decoder in an endless loop would."""
    ctypes.CDLL(None).sleep(100_000)


def _devour() -> None:
    """Allocates without end; it does not write there, so that the machine of the test is safe."""
    held = []
    while True:
        held.append(np.empty(64 << 20, np.uint8))


_BEHAVIOURS: dict[str, Callable[[], None]] = {
    "abort": os.abort,
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),  # as the kernel does where memory runs out
    "sleep": _sleep,
    "devour": _devour,
}
