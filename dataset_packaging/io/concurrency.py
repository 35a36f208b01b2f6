"""How many requests a process keeps in flight: fewer when the store says that it is too much."""

import logging
import threading

_log = logging.getLogger(__name__)


class ConcurrencyLimiter:
    """Additive increase, multiplicative decrease, as TCP does it. Thread-safe.

    A throttled answer halves the limit, once for all the requests that were in flight at that moment; a limit's worth
    of good answers raises it by one. The log tells each new low, and when the limit is back.
    """

    def __init__(self, largest: int, smallest: int = 2, name: str = "S3") -> None:
        self._largest = largest
        self._smallest = min(smallest, largest)
        self._name = name
        self._condition = threading.Condition()
        self._limit = float(largest)
        self._in_flight = 0
        self._stale_answers = 0  # of requests that were sent before the last decrease
        self._lowest_told = largest  # since the limit was last at its largest

    @property
    def limit(self) -> int:
        """Largest number of requests in flight at present."""
        return int(self._limit)

    @property
    def in_flight(self) -> int:
        """Number of requests that have been admitted and not released."""
        return self._in_flight

    def acquire(self) -> None:
        """Wait until one more request may be sent."""
        with self._condition:
            while self._in_flight >= int(self._limit):
                self._condition.wait()
            self._in_flight += 1

    def release(self, throttled: bool) -> None:
        """Report the answer of an admitted request."""
        with self._condition:
            self._in_flight -= 1
            stale = self._stale_answers > 0
            self._stale_answers = max(0, self._stale_answers - 1)
            if not throttled:
                self._increase()
            elif not stale:
                self._decrease()
            self._condition.notify(max(1, int(self._limit) - self._in_flight))

    def _increase(self) -> None:
        self._limit = min(float(self._largest), self._limit + 1 / self._limit)
        if self._limit == self._largest > self._lowest_told:
            self._lowest_told = self._largest
            _log.info("%s: %d requests at once again", self._name, self._largest)

    def _decrease(self) -> None:
        before = int(self._limit)
        self._limit = max(float(self._smallest), self._limit / 2)
        self._stale_answers = self._in_flight
        if int(self._limit) < self._lowest_told:
            self._lowest_told = int(self._limit)
            _log.warning("%s is throttling: %d requests at once instead of %d", self._name, self._lowest_told, before)
