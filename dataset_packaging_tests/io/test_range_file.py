"""A file over range reads behaves like the bytes themselves, and reads ahead only where it is read on."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.io.range_file import LARGEST_READ_AHEAD_BYTES, SMALLEST_READ_AHEAD_BYTES, RangeFile

BODY = bytes(range(256)) * 1000


class Ranges:
    """Serves ranges of a body and remembers them."""

    def __init__(self, body: bytes) -> None:
        self.body = memoryview(body)
        self.asked: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> memoryview:
        self.asked.append((start, length))
        return self.body[start : start + length]


STEPS = st.one_of(
    st.tuples(st.just("read"), st.one_of(st.just(-1), st.integers(0, 300_000))),
    st.tuples(st.just("seek"), st.integers(0, len(BODY) + 10)),
    st.tuples(st.just("back"), st.integers(0, len(BODY))),
    st.tuples(st.just("line"), st.just(0)),
)


@given(st.lists(STEPS, max_size=20), st.sampled_from([0, 1, 100_000, len(BODY)]))
def test_it_reads_like_the_bytes_themselves(steps: list[tuple[str, int]], tail_bytes: int) -> None:
    tail = memoryview(BODY)[len(BODY) - tail_bytes :]
    ours, plain = io.BufferedReader(RangeFile(Ranges(BODY).read, len(BODY), tail)), io.BytesIO(BODY)
    for step, number in steps:
        if step == "read":
            assert ours.read(number) == plain.read(number)
        elif step == "line":
            assert ours.readline() == plain.readline()
        else:
            where = (number,) if step == "seek" else (-number, io.SEEK_END)
            assert ours.seek(*where) == plain.seek(*where)
        assert ours.tell() == plain.tell()


def test_reading_on_reads_ahead_ever_further() -> None:
    body = bytes(100 << 20)
    ranges = Ranges(body)
    with io.BufferedReader(RangeFile(ranges.read, len(body))) as file:
        while file.read(10_000):
            pass
    lengths = [length for _, length in ranges.asked]
    assert lengths[0] == SMALLEST_READ_AHEAD_BYTES
    assert max(lengths) == LARGEST_READ_AHEAD_BYTES
    assert len(lengths) < 25
    assert sum(lengths) == len(body), "nothing is fetched twice"


def test_reading_here_and_there_fetches_little() -> None:
    body = bytes(100 << 20)
    ranges = Ranges(body)
    with io.BufferedReader(RangeFile(ranges.read, len(body))) as file:
        for start in range(0, 100 << 20, 10 << 20):
            file.seek(start)
            file.read(1000)
    assert {length for _, length in ranges.asked} == {SMALLEST_READ_AHEAD_BYTES}


def test_a_large_read_is_one_request() -> None:
    body = bytes(50 << 20)
    ranges = Ranges(body)
    with io.BufferedReader(RangeFile(ranges.read, len(body))) as file:
        file.seek(5)
        assert len(file.read(40 << 20)) == 40 << 20
    assert len(ranges.asked) <= 2


def test_a_source_that_ends_early_is_an_error() -> None:
    with io.BufferedReader(RangeFile(Ranges(b"short").read, 10)) as file, pytest.raises(EOFError):
        file.read()


def test_a_position_before_the_start_is_refused() -> None:
    with pytest.raises(ValueError, match="before the start"):
        RangeFile(Ranges(BODY).read, len(BODY)).seek(-1)


def test_an_end_that_is_known_is_not_asked_for() -> None:
    ranges = Ranges(BODY)
    tail = memoryview(BODY)[-1000:]
    with io.BufferedReader(RangeFile(ranges.read, len(BODY), tail)) as file:
        file.seek(-1000, io.SEEK_END)
        assert file.read() == tail
        assert ranges.asked == []
        file.seek(-1001, io.SEEK_END)
        assert file.read() == BODY[-1001:]
    assert ranges.asked == [(len(BODY) - 1001, 1)]
