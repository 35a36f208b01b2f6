"""Batches of an epoch, as properties: every row once, one bucket at a time, the same on every rank and worker."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_packaging.errors import ConfigError
from dataset_packaging.reading.epoch_plan import MIX, BucketBlocks, EpochPlan, ReadSettings
from dataset_packaging.reading.order import random_words, seed_of, shuffled

KEYS = ("0_512/10000", "512_1024/15000", "2048_inf/3333")

WEIGHTS = (0, 0.3, 0.5, 1, 1.7, 3)
Row = tuple[str, int, int]


@st.composite
def datasets(draw: st.DrawFn) -> list[BucketBlocks]:
    buckets = []
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)):
        rows = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
        sizes = [count * draw(st.integers(1, 50)) for count in rows]
        buckets.append(BucketBlocks(key, np.array(rows), np.array(sizes)))
    return buckets


def all_settings(weights: bool = False) -> st.SearchStrategy[ReadSettings]:
    return st.builds(
        ReadSettings,
        batch_size=st.integers(1, 7),
        world_size=st.integers(1, 4),
        seed=st.integers(0, 2**40),
        remainder=st.sampled_from(["drop", "pad", "carry"]),
        weights=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(WEIGHTS)) if weights else st.none(),
        shuffle=st.booleans(),
        lanes=st.integers(1, 5),
        run_bytes=st.integers(1, 400),
    )  # fmt: skip


def batches(plan: EpochPlan, rank: int) -> list[list[tuple[str, list[Row], list[bool]]]]:
    """Returns, lane by lane, the batches of a rank: bucket, rows, padding."""
    lanes = []
    for lane in plan.lanes:
        taken: Counter[int] = Counter()
        found = []
        for run in lane:
            rows = plan.rows_of(plan.runs[run], rank)
            at = slice(taken[run] * rows.size, (taken[run] + 1) * rows.size)
            taken[run] += 1
            key = plan.buckets[plan.runs[run].bucket].bucket
            places = zip(rows.block[at].tolist(), rows.row[at].tolist(), strict=True)
            found.append((key, [(key, *place) for place in places], rows.padding[at].tolist()))
        lanes.append(found)
    return lanes


def delivered(plan: EpochPlan) -> Counter[Row]:
    """Returns how often each row comes, padding apart, over all ranks and lanes."""
    return Counter(
        row
        for rank in range(plan.settings.world_size)
        for lane in batches(plan, rank)
        for _, rows, padding in lane
        for row, extra in zip(rows, padding, strict=True)
        if not extra
    )


def every_row(buckets: list[BucketBlocks]) -> set[Row]:
    return {(b.bucket, block, row) for b in buckets for block, rows in enumerate(b.rows) for row in range(rows)}


@given(datasets(), all_settings(), st.integers(0, 5))
@settings(max_examples=300)
def test_every_row_comes_once_in_an_epoch(buckets: list[BucketBlocks], chosen: ReadSettings, epoch: int) -> None:
    """Over any number of ranks and workers; under `drop` what is missing is what the report says."""
    plan = EpochPlan(buckets, chosen, epoch)
    counts = delivered(plan)
    assert set(counts.values()) <= {1}
    missing = Counter(key for key, _, _ in every_row(buckets) - set(counts))
    report = plan.report()
    assert missing == Counter({key: entry.dropped for key, entry in report.items() if entry.dropped})
    if chosen.remainder != "drop":
        assert not missing
    assert all(entry.dropped < chosen.batch_size * chosen.world_size for entry in report.values())


@given(datasets(), all_settings(weights=True))
@settings(max_examples=200)
def test_all_ranks_are_at_the_same_bucket(buckets: list[BucketBlocks], chosen: ReadSettings) -> None:
    plan = EpochPlan(buckets, chosen, 0)
    by_rank = [batches(plan, rank) for rank in range(chosen.world_size)]
    for lanes in zip(*by_rank, strict=True):
        for steps in zip(*lanes, strict=True):
            assert len({key for key, _, _ in steps}) == 1
            sizes = [len(rows) for _, rows, _ in steps]
            assert min(sizes) >= 1
            if chosen.remainder != "carry":
                assert set(sizes) == {chosen.batch_size}
            assert max(sizes) <= chosen.batch_size


@given(datasets(), all_settings(weights=True))
@settings(max_examples=200)
def test_the_report_is_what_happens(buckets: list[BucketBlocks], chosen: ReadSettings) -> None:
    plan = EpochPlan(buckets, chosen, 0)
    report = plan.report()
    for key, entry in report.items():
        ranks = [
            [step for lane in batches(plan, rank) for step in lane if step[0] == key]
            for rank in range(chosen.world_size)
        ]
        assert {len(steps) for steps in ranks} == {entry.steps}
        paddings = [extra for steps in ranks for _, _, padding in steps for extra in padding]
        assert sum(paddings) == entry.padded
        assert len(paddings) - sum(paddings) == entry.delivered
        rests = [run for run in plan.runs if run.rest and plan.buckets[run.bucket].bucket == key]
        carried = [plan.rows_of(run, rank).padding for run in rests for rank in range(chosen.world_size)]
        if chosen.remainder == "carry":
            assert entry.short == sum(int((~padding).sum()) for padding in carried)
    assert plan.steps == sum(entry.steps for entry in report.values())


@given(datasets(), all_settings(weights=True))
@settings(max_examples=200)
def test_weights_say_how_often_rows_come(buckets: list[BucketBlocks], chosen: ReadSettings) -> None:
    plan = EpochPlan(buckets, chosen, 1)
    counts = delivered(plan)
    for blocks in buckets:
        weight = chosen.weight_of(blocks.bucket)
        own = {row: counts[row] for row in every_row([blocks])}
        total = sum(own.values()) + plan.report()[blocks.bucket].dropped
        assert total == int(weight) * len(own) + round((weight - int(weight)) * len(own))
        assert max(own.values()) <= math.ceil(weight)
        if chosen.remainder != "drop":
            assert min(own.values()) >= int(weight)


@given(datasets(), all_settings(weights=True))
@settings(max_examples=100)
def test_equal_seeds_give_equal_epochs(buckets: list[BucketBlocks], chosen: ReadSettings) -> None:
    first, second = (EpochPlan(buckets, chosen, 3) for _ in range(2))
    assert first.lanes == second.lanes
    for rank in range(chosen.world_size):
        assert batches(first, rank) == batches(second, rank)


def test_other_epochs_and_seeds_give_other_orders() -> None:
    buckets = [BucketBlocks(KEYS[0], np.array([10] * 10), np.array([100] * 10))]
    orders = [
        batches(EpochPlan(buckets, ReadSettings(5, seed=seed, run_bytes=200), epoch), 0)
        for seed, epoch in [(0, 0), (0, 1), (1, 0)]
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    plain = batches(EpochPlan(buckets, ReadSettings(5, shuffle=False), 4), 0)
    assert [row for _, rows, _ in plain[0] for row in rows] == [(KEYS[0], b, r) for b in range(10) for r in range(10)]


@given(datasets(), all_settings())
@settings(max_examples=100)
def test_a_lane_draws_from_few_runs_at_a_time(buckets: list[BucketBlocks], chosen: ReadSettings) -> None:
    """What is open has to be in memory."""
    plan = EpochPlan(buckets, chosen, 0)
    for lane in plan.lanes:
        last = {run: at for at, run in enumerate(lane)}
        first = {run: len(lane) - 1 - at for at, run in enumerate(reversed(lane))}
        for at in range(len(lane)):
            assert sum(first[run] <= at <= last[run] for run in first) <= MIX
        for run in first:
            assert lane.count(run) == plan.runs[run].steps


def test_a_rank_reads_row_groups_of_its_own() -> None:
    """Reading everything on every rank would cost as many times the traffic as there are ranks."""
    buckets = [BucketBlocks(KEYS[0], np.array([100] * 64), np.array([10_000] * 64))]
    plan = EpochPlan(buckets, ReadSettings(10, world_size=8, run_bytes=20_000), 0)
    read = [{row[1] for lane in batches(plan, rank) for _, rows, _ in lane for row in rows} for rank in range(8)]
    assert sum(map(len, read)) <= 64 + 8
    opened = [np.unique(plan.rows_of(run, 0).block) for run in plan.runs]
    assert sum(map(len, opened)) <= 64 // 8 + len(plan.runs)


@pytest.mark.parametrize(("run_groups", "most"), [(1, 2.05), (4, 1.3)])
@pytest.mark.parametrize("world_size", [1, 8])
def test_row_groups_are_read_as_often_as_documented(run_groups: int, most: float, world_size: int) -> None:
    buckets = [BucketBlocks(KEYS[0], np.array([400] * 200), np.array([400_000] * 200))]
    plan = EpochPlan(buckets, ReadSettings(64, world_size=world_size, run_bytes=run_groups * 400_000), 0)
    opened = [np.unique(plan.rows_of(run, rank).block).size for run in plan.runs for rank in range(world_size)]
    assert sum(opened) <= most * 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch_size": 0}, "batch_size: expected at least 1"),
        ({"lanes": 0}, "lanes: expected at least 1"),
        ({"remainder": "keep"}, "expected one of drop, pad, carry"),
        ({"weights": {"512/1": 1}}, "weights: "),
        ({"weights": {KEYS[0]: -1}}, "expected a number from 0 on"),
        ({"weights": {KEYS[0]: float("nan")}}, "expected a number from 0 on"),
    ],
)
def test_impossible_settings_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ReadSettings(**{"batch_size": 4} | change)


def test_orders_are_the_same_everywhere() -> None:
    """SplitMix64's published first outputs for the seed 1234567."""
    assert random_words(1234567, 5).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert sorted(shuffled(seed_of(1, "a"), 1000).tolist()) == list(range(1000))
    assert shuffled(5, 6).tolist() == shuffled(5, 6).tolist()
    assert seed_of(1, "2") != seed_of(1, 2) != seed_of("1", 2)
