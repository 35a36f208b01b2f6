"""How long packing takes: the figures of docs/performance.md, with the range that unknown formats leave."""

import pytest

from dataset_packaging.packing.work_estimate import WorkEstimate, estimate_work


def test_the_corpus_of_the_benchmark_takes_what_was_measured() -> None:
    """1,412 files, 1.11 GB, 3,728 megapixels took 22.3 CPU seconds."""
    found = estimate_work(1412, 1_110_000_000, 3_728_000_000, 40)
    assert found.likely_s == pytest.approx(22.3, rel=0.15)
    assert found.low_s < 22.3 / 2 < 2 * 22.3 < found.high_s


def test_without_sizes_pixels_follow_from_bytes() -> None:
    assert estimate_work(10, 3_500_000, 0, 1) == estimate_work(10, 3_500_000, 10_000_000, 1)


def test_estimates_add_up() -> None:
    one, two = estimate_work(10, 10_000_000, 30_000_000, 1), estimate_work(20, 20_000_000, 60_000_000, 2)
    total = one.plus(one)
    assert (total.low_s, total.likely_s, total.high_s) == pytest.approx((two.low_s, two.likely_s, two.high_s))
    assert WorkEstimate().plus(one) == one
