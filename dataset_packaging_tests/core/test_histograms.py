"""Counts in fixed classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.core.histograms import AREA_EDGES_PX, BYTES_EDGES, RATIO_EDGES, SIDE_EDGES_PX, Histogram

VALUES = st.lists(st.floats(0, 1e10))
EDGES = st.sampled_from([AREA_EDGES_PX, BYTES_EDGES, RATIO_EDGES, SIDE_EDGES_PX])


@given(VALUES, VALUES, EDGES)
def test_parts_add_up_to_the_whole(left: list[float], right: list[float], edges: tuple[float, ...]) -> None:
    empty = Histogram.empty(edges)
    parts = empty.add(np.array(left)) + empty.add(np.array(right))
    assert parts == empty.add(np.array([*left, *right]))
    assert parts.total == len(left) + len(right)


@given(st.floats(0, 1e10), EDGES)
def test_a_value_falls_between_its_edges(value: float, edges: tuple[float, ...]) -> None:
    (at,) = np.flatnonzero(Histogram.empty(edges).add(np.array([value])).counts)
    assert at == 0 or edges[at] <= value
    assert at == len(edges) - 2 or value < edges[at + 1]


def test_scales_of_buckets_are_edges() -> None:
    assert {512**2, 1024**2, 2048**2} <= set(AREA_EDGES_PX)
    assert 1.0 in RATIO_EDGES


def test_other_classes_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="do not add up"):
        Histogram.empty((0, 1)) + Histogram.empty((0, 2))
