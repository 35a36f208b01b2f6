"""Shards that are packed side by side: times that add up to what the worker took."""

from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.packing.work_meter import WorkMeter


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=30))
def test_parts_add_up_whatever_overlaps(events: list[tuple[bool, int]]) -> None:
    """A second is told once, however many shards are open; one in which none is open is not told."""
    now = 0.0
    meter = WorkMeter(lambda: now)
    is_open, told, expected = 0, 0.0, 0.0
    for begins, passed in [*events, *[(False, 1)] * 30]:
        now += passed
        expected += passed if is_open else 0
        if begins:
            meter.begin()
            is_open += 1
        elif is_open:
            told += meter.end()
            is_open -= 1
    assert told == expected
