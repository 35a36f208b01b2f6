"""Additive increase, multiplicative decrease."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.io.concurrency import ConcurrencyLimiter
from dataset_packaging.io.retry_policy import RetryPolicy


def answer(limiter: ConcurrencyLimiter, throttled: bool) -> None:
    limiter.acquire()
    limiter.release(throttled)


def test_a_throttled_answer_halves_and_good_ones_restore() -> None:
    limiter = ConcurrencyLimiter(64)
    answer(limiter, throttled=True)
    assert limiter.limit == 32
    for _ in range(32 * 2):
        answer(limiter, throttled=False)
    assert limiter.limit in (33, 34)
    for _ in range(3000):
        answer(limiter, throttled=False)
    assert limiter.limit == 64


def test_one_burst_of_refusals_halves_once() -> None:
    """64 requests that were in flight together are one message of the store, not 64."""
    limiter = ConcurrencyLimiter(64)
    for _ in range(64):
        limiter.acquire()
    for _ in range(64):
        limiter.release(throttled=True)
    assert limiter.limit == 32
    answer(limiter, throttled=True)
    assert limiter.limit == 16


def test_the_log_tells_each_low_once_and_the_recovery(caplog: pytest.LogCaptureFixture) -> None:
    limiter = ConcurrencyLimiter(8, name="S3")
    with caplog.at_level(logging.INFO):
        for _ in range(50):
            answer(limiter, throttled=True)
            answer(limiter, throttled=False)
        for _ in range(100):
            answer(limiter, throttled=False)
    assert [record.getMessage() for record in caplog.records] == [
        "S3 is throttling: 4 requests at once instead of 8",
        "S3 is throttling: 2 requests at once instead of 4",
        "S3: 8 requests at once again",
    ]


def test_it_never_stops_everything() -> None:
    limiter = ConcurrencyLimiter(64)
    for _ in range(100):
        answer(limiter, throttled=True)
    assert limiter.limit == 2
    assert ConcurrencyLimiter(1).limit == 1


def test_no_more_than_the_limit_are_in_flight() -> None:
    limiter = ConcurrencyLimiter(3)
    most, here, lock = 0, 0, threading.Lock()

    def work(_: int) -> None:
        nonlocal most, here
        limiter.acquire()
        with lock:
            here += 1
            most = max(most, here)
        threading.Event().wait(0.001)
        with lock:
            here -= 1
        limiter.release(throttled=False)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(100)))
    assert most == 3
    assert limiter.in_flight == 0


@given(st.lists(st.booleans(), max_size=300), st.integers(1, 100))
def test_the_limit_stays_within_its_bounds(answers: list[bool], largest: int) -> None:
    limiter = ConcurrencyLimiter(largest)
    for throttled in answers:
        answer(limiter, throttled)
        assert min(2, largest) <= limiter.limit <= largest


@given(st.integers(0, 200), st.floats(0, 100))
def test_waits_are_bounded_and_end(retries: int, failing_s: float) -> None:
    policy = RetryPolicy(max_retries=50, total_s=60)
    wait_s = policy.wait_s(retries, failing_s)
    if retries >= 50 or failing_s >= 60:
        assert wait_s is None
    else:
        assert wait_s is not None
        assert 0 <= wait_s <= min(5.0, 0.1 * 2**retries)
        assert failing_s + wait_s <= 60


def test_waits_are_drawn() -> None:
    policy = RetryPolicy(max_retries=50, total_s=60)
    assert len({policy.wait_s(5, 0) for _ in range(20)}) > 10, "workers that failed together do not return together"
