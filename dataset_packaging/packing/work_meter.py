"""What a worker did to its stores and how long, told in parts that add up. Runs in a worker."""

import threading
import time
from collections.abc import Callable
from functools import cache

from dataset_packaging.io.store import StorageConfig, Stores, shared_stores


class WorkMeter:
    """Shards that are packed side by side share stores and processor: each takes what came since another one ended.

    The parts of a run add up to what it did, and to the time in which any shard was open; whose it was is not known.

    Args:
        stores: that are shared.
        clock_s: tells the time.
    """

    def __init__(self, stores: Stores, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._stores = stores
        self._clock_s = clock_s
        self._told_s = 0.0
        self._lock = threading.Lock()
        self._open = 0
        self._told: dict[str, int] = {}

    def begin(self) -> None:
        """Says that a shard begins; what was done while none was open belongs to none."""
        with self._lock:
            if not self._open:
                self._told, self._told_s = self._stores.stats(), self._clock_s()
            self._open += 1

    def end(self) -> tuple[dict[str, int], float]:
        """Says that a shard ends, and returns its part: counts of the stores, and seconds."""
        with self._lock:
            self._open -= 1
            before, self._told = self._told, self._stores.stats()
            before_s, self._told_s = self._told_s, self._clock_s()
            counts = {name: count - before.get(name, 0) for name, count in self._told.items()}
            return counts, self._told_s - before_s


@cache
def shared_meter(storage: StorageConfig) -> WorkMeter:
    """Gives every shard of one process and one dataset the same meter."""
    return WorkMeter(shared_stores(storage))
