"""Which row goes where, and that plans only grow."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.shard_plan import ShardAssigner, ShardTotals

SIZES = st.lists(st.integers(0, 400), max_size=200)


def _assign(sizes: list[int], shard_size: int, max_bytes: int, first: int, cuts: list[int]) -> list[tuple[int, int]]:
    assigner = ShardAssigner(shard_size, max_bytes, first)
    places: list[tuple[int, int]] = []
    bounds = [0, *sorted(cut % (len(sizes) + 1) for cut in cuts), len(sizes)]
    for start, end in itertools.pairwise(bounds):
        shard, position = assigner.assign(np.array(sizes[start:end], np.int64))
        places += zip(shard.tolist(), position.tolist(), strict=True)
    return places


@given(SIZES, st.integers(1, 20), st.integers(1, 1000), st.integers(0, 5), st.lists(st.integers(0, 300), max_size=5))
def test_rows_fill_shards_in_order_and_whatever_the_slices(
    sizes: list[int], shard_size: int, max_bytes: int, first: int, cuts: list[int]
) -> None:
    places = _assign(sizes, shard_size, max_bytes, first, cuts)
    assert places == _assign(sizes, shard_size, max_bytes, first, [])
    expected: list[tuple[int, int]] = []
    number, rows, held = first, 0, 0
    for size in sizes:
        if rows and (rows == shard_size or held + size > max_bytes):
            number, rows, held = number + 1, 0, 0
        expected.append((number, rows))
        rows, held = rows + 1, held + size
    assert places == expected


@given(st.permutations(range(12)))
def test_a_fingerprint_does_not_depend_on_the_order_of_rows(order: list[int]) -> None:
    hashes = np.arange(100, 112, dtype=np.uint64)
    shard = np.array([0] * 6 + [1] * 6, np.int32)
    position = np.array([*range(6), *range(6)], np.int32)
    ones = np.ones(12, np.int64)

    def fingerprints(rows: list[int]) -> list[str]:
        totals = ShardTotals()
        for row in rows:
            at = [row]
            totals.add_live(shard[at], position[at], hashes[at], hashes[at], ones[at], ones[at])
        return [planned.fingerprint for planned in totals.planned(BUCKETS[0])]

    assert fingerprints(list(order)) == fingerprints(list(range(12)))


def test_a_fingerprint_tells_which_row_stands_where() -> None:
    hashes = np.array([7, 9], np.uint64)
    place = np.zeros(2, np.int32)
    ones = np.ones(2, np.int64)

    def fingerprint(position: list[int]) -> str:
        totals = ShardTotals()
        totals.add_live(place, np.array(position, np.int32), hashes, hashes, ones, ones)
        return totals.planned(BUCKETS[0])[0].fingerprint

    assert fingerprint([0, 1]) != fingerprint([1, 0])


def test_a_row_that_never_stood_in_the_file_leaves_the_shard_valid_and_a_removed_one_does_not() -> None:
    hashes = np.array([7, 9, 11], np.uint64)
    place = np.zeros(3, np.int32)
    position = np.arange(3, dtype=np.int32)
    ones = np.ones(3, np.int64)

    def planned(absent: bool | None) -> tuple[str, str, int, int]:
        totals = ShardTotals()
        live = slice(0, 3 if absent is None else 2)
        totals.add_live(place[live], position[live], hashes[live], hashes[live], ones[live], ones[live])
        if absent is not None:
            totals.add_tombstones(place[2:], position[2:], hashes[2:], hashes[2:], np.array([absent]))
        shard = totals.planned(BUCKETS[0])[0]
        return shard.fingerprint, shard.sidecar_fingerprint, shard.rows, shard.live_rows

    whole = planned(None)
    assert planned(True) == (*whole[:2], 3, 2)
    assert planned(False)[0] != whole[0]
    assert planned(False)[1] != whole[1]
