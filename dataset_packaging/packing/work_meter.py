"""How long a worker was at work, told in parts that add up. Runs in a worker."""

import threading
import time
from collections.abc import Callable
from functools import cache


class WorkMeter:
    """Shards that are packed side by side share a processor: each takes the time since another one ended.

    The parts of a run add up to the time in which any shard was open; whose it was is not known.

    Args:
        clock_s: tells the time.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._told_s = 0.0
        self._lock = threading.Lock()
        self._open = 0

    def begin(self) -> None:
        """Says that a shard begins; the time while none was open belongs to none."""
        with self._lock:
            if not self._open:
                self._told_s = self._clock_s()
            self._open += 1

    def end(self) -> float:
        """Says that a shard ends, and returns its seconds."""
        with self._lock:
            self._open -= 1
            before_s, self._told_s = self._told_s, self._clock_s()
            return self._told_s - before_s


@cache
def shared_meter() -> WorkMeter:
    """Gives every shard of one process the same meter."""
    return WorkMeter()
