"""BKT entries of the fault list, and the contract's section 1 literally."""

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataset_packaging.core.bucketing import (
    AR_IDS,
    ASPECT_RATIOS,
    BUCKETS,
    MAX_SIDE_PX,
    SCALES,
    Bucket,
    bucket_ids,
    bucket_of,
)

SIDES_PX = st.integers(1, 5000) | st.integers(1, MAX_SIDE_PX)


def literal_bucket(width_px: int, height_px: int) -> str:
    """The contract's words as code, without any of the module's tricks."""
    area = width_px * height_px
    limits = {"0_512": 512, "512_1024": 1024, "1024_1536": 1536, "1536_2048": 2048}
    scale = next((name for name, side in limits.items() if area <= side * side), "2048_inf")
    distances = [abs(width_px / height_px - target) for target in ASPECT_RATIOS]
    return f"{scale}/{round(ASPECT_RATIOS[distances.index(min(distances))] * 10000)}"


@given(SIDES_PX, SIDES_PX)
@example(1, 20000)
@example(65535, 1)
@example(MAX_SIDE_PX, 1)
@example(1, MAX_SIDE_PX)
@example(MAX_SIDE_PX, MAX_SIDE_PX)
def test_scalar_is_the_literal_specification(width_px: int, height_px: int) -> None:
    assert bucket_of(width_px, height_px).key == literal_bucket(width_px, height_px)


@given(st.lists(st.tuples(SIDES_PX, SIDES_PX), max_size=50))
def test_vectorised_equals_scalar(sizes: list[tuple[int, int]]) -> None:
    ids = bucket_ids(np.array([w for w, _ in sizes], dtype=np.int32), np.array([h for _, h in sizes], dtype=np.int32))
    assert ids.dtype == np.uint8
    assert [BUCKETS[i] for i in ids] == [bucket_of(w, h) for w, h in sizes]


@pytest.mark.parametrize(("side_px", "scale"), [(512, 0), (1024, 1), (1536, 2), (2048, 3)])
def test_area_limits_are_inclusive(side_px: int, scale: int) -> None:
    assert bucket_of(side_px, side_px).scale == SCALES[scale]
    assert bucket_of(side_px * side_px, 1).scale == SCALES[scale]
    assert bucket_of(side_px * side_px + 1, 1).scale == SCALES[scale + 1]


@pytest.mark.parametrize(
    ("width_px", "height_px", "key"),
    [
        (1, 1, "0_512/10000"), (512, 512, "0_512/10000"), (513, 512, "512_1024/10000"),
        (1366, 768, "1024_1536/17778"), (683, 384, "512_1024/17778"), (1920, 1080, "1024_1536/17778"),
        (1080, 1920, "1024_1536/5625"), (1800, 1200, "1024_1536/15000"), (1200, 1800, "1024_1536/6667"),
        (4000, 3000, "2048_inf/13333"), (3000, 4000, "2048_inf/7500"), (2048, 2048, "1536_2048/10000"),
        (2049, 2048, "2048_inf/10000"), (1, 20000, "0_512/3333"), (65535, 1, "0_512/40000"),
        (49, 500, "0_512/3333"), (750, 30, "0_512/40000"), (899, 1000, "512_1024/8000"), (901, 1000, "512_1024/10000"),
    ],
)  # fmt: skip
def test_golden_buckets(width_px: int, height_px: int, key: str) -> None:
    """BKT-04: extreme shapes have a bucket too."""
    assert bucket_of(width_px, height_px).key == key


@pytest.mark.parametrize(
    ("width_px", "height_px", "ar_id"), [(9, 20, 4348), (25, 8, 30000), (35, 16, 23000), (3, 2, 15000)]
)
def test_neighbours_are_told_apart(width_px: int, height_px: int, ar_id: int) -> None:
    assert bucket_of(width_px, height_px).ar_id == ar_id


def test_a_tie_goes_to_the_lower_ratio() -> None:
    """BKT-03: the order of ties is stated; 51/16 lies exactly between 3 and 3.375, in binary floats too."""
    assert abs(51 / 16 - 3.0) == abs(51 / 16 - 3.375)
    assert bucket_of(51, 16).ar_id == 30000
    assert abs(59 / 16 - 3.375) == abs(59 / 16 - 4.0)
    assert bucket_of(59, 16).ar_id == 33750
    assert [BUCKETS[i].ar_id for i in bucket_ids([51, 59], [16, 16])] == [30000, 33750]


def test_differences_are_linear_not_logarithmic() -> None:
    """BKT-03: 3.185 is nearer to 3.375 on a logarithmic scale (from 3.182 on), to 3 on the linear one (to 3.1875)."""
    assert bucket_of(31850, 10000).ar_id == 30000


def test_the_rule_is_not_mirrored_for_portrait() -> None:
    """BKT-03: the table is not symmetric, and absolute difference is the rule also where a mirror would differ."""
    assert bucket_of(1193, 1000).ar_id == 11930
    assert bucket_of(1000, 1193).ar_id == 8000


@given(st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 4000)), min_size=2, max_size=30), st.randoms())
def test_the_bucket_does_not_depend_on_neighbours(sizes: list[tuple[int, int]], shuffler: random.Random) -> None:
    order = list(range(len(sizes)))
    shuffler.shuffle(order)
    straight = bucket_ids([w for w, _ in sizes], [h for _, h in sizes])
    shuffled = bucket_ids([sizes[i][0] for i in order], [sizes[i][1] for i in order])
    assert [straight[i] for i in order] == list(shuffled)


@pytest.mark.parametrize("size", [(0, 1), (1, 0), (-1, 1), (MAX_SIDE_PX + 1, 1)])
def test_sizes_that_no_image_has_are_refused(size: tuple[int, int]) -> None:
    """BKT-04: no division by zero, no bucket for nothing."""
    with pytest.raises(ValueError, match=r"size|sides"):
        bucket_of(*size)
    with pytest.raises(ValueError, match="sides"):
        bucket_ids([size[0]], [size[1]])


def test_no_sizes_give_no_buckets() -> None:
    assert bucket_ids(np.array([], dtype=np.int32), np.array([], dtype=np.int32)).tolist() == []


def test_the_135_buckets() -> None:
    assert len(BUCKETS) == len({b.key for b in BUCKETS}) == 135
    assert AR_IDS == (
        3333, 4000, 4348, 5000, 5625, 6316, 6667, 7059, 7500, 7778, 8000, 10000, 11930, 12500, 12857, 13333, 14167,
        15000, 17500, 17778, 19091, 20000, 23000, 26667, 30000, 33750, 40000,
    )  # fmt: skip
    assert BUCKETS[0].key == "0_512/3333"
    assert BUCKETS[27].key == "512_1024/3333"
    assert BUCKETS[-1].key == "2048_inf/40000"
    assert sorted(BUCKETS, key=lambda b: b.key) != list(BUCKETS)
    assert sorted(set(BUCKETS)) == list(BUCKETS)
    for index, bucket in enumerate(BUCKETS):
        assert bucket.index == index
        assert Bucket.parse(bucket.key) is bucket
        assert Bucket(bucket.scale, bucket.ar_id) == bucket


@pytest.mark.parametrize("key", ["", "0_512", "0_512/969", "0_512/03333", "0512/3333", "512_1024/10000/", "16:9"])
def test_a_key_that_is_no_bucket_is_refused(key: str) -> None:
    """DAG-01: never a bucket `969`."""
    with pytest.raises(ValueError, match="is not a bucket"):
        Bucket.parse(key)
