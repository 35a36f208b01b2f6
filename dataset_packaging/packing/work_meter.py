"""What a worker did to its stores, told in parts that add up. Runs in a worker."""

import threading
from functools import cache

from dataset_packaging.io.store import StorageConfig, Stores, shared_stores


class WorkMeter:
    """Shards that are packed side by side share their stores: each takes what was done since another one ended.

    The parts of a run add up to what it did; which request was whose is not known.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._lock = threading.Lock()
        self._open = 0
        self._told: dict[str, int] = {}

    def begin(self) -> None:
        """Says that a shard begins; what was done while none was open belongs to none."""
        with self._lock:
            if not self._open:
                self._told = self._stores.stats()
            self._open += 1

    def end(self) -> dict[str, int]:
        """Says that a shard ends, and returns its part."""
        with self._lock:
            self._open -= 1
            before, self._told = self._told, self._stores.stats()
            return {name: count - before.get(name, 0) for name, count in self._told.items()}


@cache
def shared_meter(storage: StorageConfig) -> WorkMeter:
    """Gives every shard of one process and one dataset the same meter."""
    return WorkMeter(shared_stores(storage))
