"""When a failed request is tried again."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of the tries of one request.

    Attributes:
        max_retries: Tries after the first.
        total_s: No try begins later than this after the first failure.
        first_wait_s: Upper bound of the first wait; it doubles with every further one.
        longest_wait_s: Upper bound of any wait.
    """

    max_retries: int
    total_s: float
    first_wait_s: float = 0.1
    longest_wait_s: float = 5.0

    def wait_s(self, retries_done: int, since_first_failure_s: float) -> float | None:
        """Draw the wait before the next try ("full jitter"); None when there is to be none.

        Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
        """
        if retries_done >= self.max_retries or since_first_failure_s >= self.total_s:
            return None
        bound_s = min(self.longest_wait_s, self.first_wait_s * 2.0 ** min(retries_done, 30))
        return min(random.uniform(0, bound_s), self.total_s - since_first_failure_s)
