"""A real daemon: scheduled runs that repair what is missing, one run of a dataset at a time, terminated runs.

The tests follow one another on the same Dagster. Its scheduled datasets tick at the same minutes, so that two ticks
show what a schedule does: schedule → run → all partitions; unchanged → skip; appended → only new shards; a bucket that
failed → the next tick repairs it alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import psutil
import pytest

from dataset_packaging.orchestration.keys import range_tags
from dataset_packaging_tests.orchestration.small_dataset import SQUARE, TALL, WIDE, SmallDataset
from dataset_packaging_tests.servers.dagster_dev import DagsterDev

pytestmark = pytest.mark.timeout(600)  # several waits follow each other in one test

EVERY_MINUTE = 'schedule: {cron: "* * * * *"}\n'
ONE_CPU = {"DATASET_PACKAGING_RAY_CPUS": "1"}
SLOW_SHARDS = 150
SHARDS_IN_FLIGHT = 2  # on one CPU: what is written without its receipt is written again, with the same bytes
TICK_S = 280  # a tick a minute, and time for all the runs that it starts on a busy machine


@dataclass(frozen=True)
class Datasets:
    """What the daemon finds when it starts, and how the files of the one that was packed before stood then."""

    fresh: SmallDataset
    grown: SmallDataset
    watched: SmallDataset
    slow: SmallDataset
    grown_before: dict[Path, int]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    folder = tmp_path_factory.mktemp("datasets")
    fresh, grown = (SmallDataset(folder, name, yaml=EVERY_MINUTE) for name in ("fresh", "grown"))
    watched = SmallDataset(folder, "watched", yaml="trigger: on_change\n")
    slow = SmallDataset(folder, "slow", yaml="packing: {shard_size: 1}\n")
    slow.add(SQUARE, SLOW_SHARDS)
    for dataset in (fresh, grown, watched):
        for bucket in (SQUARE, WIDE):
            dataset.add(bucket)
    with dg.DagsterInstance.ephemeral() as instance:
        assert grown.run(instance).success
    before = _mtimes(grown)
    grown.add(WIDE)
    grown.add(TALL)
    grown.shard(TALL).mkdir(parents=True)  # nothing can be written there
    return Datasets(fresh, grown, watched, slow, before)


@pytest.fixture(scope="module")
def dagster(datasets: Datasets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterDev]:
    server = DagsterDev(tmp_path_factory.mktemp("dagster"), datasets.fresh.folder, ONE_CPU)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _materialized(dagster: DagsterDev, dataset: SmallDataset, asset: str) -> int:
    data = dagster.ask(
        """query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode {
             partitionStats { numMaterialized numFailed } } } }""",
        {"k": {"path": [dataset.name, asset]}},
    )
    return int(data["assetNodeOrError"]["partitionStats"]["numMaterialized"])


def _wait_for_run(dagster: DagsterDev, dataset: SmallDataset, status: str) -> None:
    """Wait until a run of the dataset has ended so."""
    dagster.wait_for(
        lambda: status in {run["status"] for run in dagster.runs(dataset.name)},
        TICK_S,
        f"a run of {dataset.name} that ends with {status}",
    )


def _mtimes(dataset: SmallDataset) -> dict[Path, int]:
    folder = dataset.folder / f"{dataset.name}_parquet"
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet") if path.is_file()}


def test_a_second_run_waits_and_a_terminated_one_leaves_nothing_behind(dagster: DagsterDev, datasets: Datasets):
    """DAG-02, DAG-06: the second one resumes what the first one left; meanwhile the first tick comes."""
    slow = datasets.slow
    first = dagster.launch("package_slow", range_tags(SQUARE, SQUARE))
    dagster.wait_for(slow.shard(SQUARE).exists, TICK_S, "the first shard")
    second = dagster.launch("package_slow", {**range_tags(SQUARE, SQUARE), "test/second": "yes"})
    lease = slow.folder / "slow_parquet_work" / "LEASE.json"
    assert dagster.status(first) == "STARTED"
    assert dagster.status(second) in {"QUEUED", "NOT_STARTED"}

    dagster.terminate(first)
    assert dagster.wait_for_end(first, TICK_S) == "CANCELED"
    assert not lease.exists() or first not in lease.read_text()
    mtimes = _mtimes(slow)
    assert 0 < len(mtimes) < SLOW_SHARDS

    assert dagster.wait_for_end(second, TICK_S) == "SUCCESS"
    after = _mtimes(slow)
    assert len(after) == SLOW_SHARDS
    written_again = [path for path in mtimes if after[path] != mtimes[path]]
    assert len(written_again) <= SHARDS_IN_FLIGHT


def test_a_tick_packs_the_whole_dataset_in_one_run(dagster: DagsterDev, datasets: Datasets):
    _wait_for_run(dagster, datasets.fresh, "SUCCESS")
    assert [_materialized(dagster, datasets.fresh, asset) for asset in ("shards", "sidecars")] == [135, 135]
    assert datasets.fresh.sidecar(SQUARE).exists()


def test_appended_rows_make_new_shards_a_bucket_that_fails_is_repaired_by_the_next_tick_and_no_other_is_touched(
    dagster: DagsterDev, datasets: Datasets
):
    grown, before = datasets.grown, datasets.grown_before
    _wait_for_run(dagster, grown, "FAILURE")
    failed = _mtimes(grown)
    assert {path: failed[path] for path in before} == before
    assert set(failed) - set(before) == {grown.shard(WIDE, 1)}

    grown.shard(TALL).rmdir()
    _wait_for_run(dagster, grown, "SUCCESS")
    repaired = _mtimes(grown)
    assert {path: repaired[path] for path in failed} == failed
    assert set(repaired) - set(failed) == {grown.shard(TALL)}
    assert grown.sidecar(TALL).exists()


def test_an_unchanged_dataset_is_skipped(dagster: DagsterDev, datasets: Datasets):
    def skipped() -> str | None:
        reasons = [tick["skipReason"] for tick in dagster.ticks("package_fresh_schedule")]
        return next((reason for reason in reasons if reason and "up to date" in reason), None)

    reason = dagster.wait_for(skipped, TICK_S, "a skipped tick")
    assert reason == "fresh is up to date: 4 rows in 2 shards, nothing to do"
    assert len(dagster.runs("fresh")) == 1


def test_each_tick_has_one_run_at_most(dagster: DagsterDev):
    ticks = dagster.ticks("package_grown_schedule")
    assert max(len(tick["runIds"]) for tick in ticks) == 1
    assert len({tick["timestamp"] for tick in ticks}) == len(ticks)


def test_a_manifest_that_changes_is_packed_without_a_schedule(dagster: DagsterDev, datasets: Datasets):
    _wait_for_run(dagster, datasets.watched, "SUCCESS")
    assert datasets.watched.sidecar(WIDE).exists()


def test_no_ray_outlives_its_run(dagster: DagsterDev):
    """DAG-02: of the runs above, the terminated one among them."""

    def none_left() -> bool:
        return not any(
            process.name().startswith(("ray", "raylet", "gcs")) and str(dagster.home) in " ".join(_environ(process))
            for process in psutil.process_iter()
        )

    dagster.wait_for(none_left, 60, "the end of all of Ray's processes")


def _environ(process: psutil.Process) -> list[str]:
    try:
        return [f"{key}={value}" for key, value in process.environ().items()]
    except psutil.Error:
        return []
