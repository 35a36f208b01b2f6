"""Names in Dagster: ranges of buckets, parts of asset keys, the bound on partitions."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.orchestration.keys import (
    BUCKET_KEYS,
    PARTITION_COUNT_MAX,
    build_bucket_partitions,
    safe_key_part,
    split_into_ranges,
)


def test_partitions_are_the_135_buckets_and_stay_far_below_the_bound():
    """DAG-08: partitions follow buckets, never shards, so that no dataset makes the UI crawl."""
    partitions = build_bucket_partitions()
    assert tuple(partitions.get_partition_keys()) == BUCKET_KEYS
    assert len(BUCKET_KEYS) == 135 < PARTITION_COUNT_MAX


@given(st.lists(st.sampled_from(BUCKET_KEYS)))
def test_ranges_cover_the_chosen_buckets_and_no_other(chosen: list[str]):
    covered: list[str] = []
    for first, last in split_into_ranges(chosen):
        start, end = BUCKET_KEYS.index(first), BUCKET_KEYS.index(last)
        covered += BUCKET_KEYS[start : end + 1]
    assert covered == [key for key in BUCKET_KEYS if key in set(chosen)]


@given(st.sets(st.sampled_from(BUCKET_KEYS)))
def test_neighbours_share_a_range(chosen: set[str]):
    ranges = list(split_into_ranges(chosen))
    gaps = [BUCKET_KEYS.index(right[0]) - BUCKET_KEYS.index(left[1]) for left, right in itertools.pairwise(ranges)]
    assert all(gap > 1 for gap in gaps)


def test_a_range_of_something_else_is_refused_by_name():
    with pytest.raises(ValueError, match="'1024/1' is not a bucket"):
        list(split_into_ranges(["1024/1"]))


@given(st.text())
def test_key_parts_are_safe_and_short(text: str):
    """DAG-05: commas, slashes, brackets and newlines in names break selections, links and paths."""
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,77}", safe_key_part(text))


@given(st.text(), st.text())
def test_different_names_keep_different_key_parts(left: str, right: str):
    """DAG-05: replacing characters must not make two names one."""
    assert (safe_key_part(left) == safe_key_part(right)) == (left == right)


def test_names_that_need_nothing_stay_readable():
    assert safe_key_part("photos.yaml") == "photos.yaml"
    assert safe_key_part("a/b") != safe_key_part("a_b") == "a_b"
