"""A real daemon: scheduled runs that repair what is missing, one run of a dataset at a time, terminated runs.

The tests of a class follow one another on the same Dagster.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dataset_packaging.orchestration.keys import range_tags
from dataset_packaging_tests.orchestration.small_dataset import SQUARE, TALL, WIDE, SmallDataset
from dataset_packaging_tests.servers.dagster_dev import DagsterDev

pytestmark = pytest.mark.heavy

SLOW_SHARDS = 250
SHARDS_IN_FLIGHT = 3  # on two CPUs: what is written without its receipt is written again, with the same bytes
TICK_S = 150  # a tick a minute, and time for the run that it starts on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(scope="module")
def ticking(folder: Path) -> SmallDataset:
    """A dataset that is packed every minute."""
    dataset = SmallDataset(folder, "ticking", yaml='schedule: {cron: "* * * * *"}\n')
    for bucket in (SQUARE, WIDE):
        dataset.add(bucket)
    return dataset


@pytest.fixture(scope="module")
def slow(folder: Path) -> SmallDataset:
    """A dataset of many shards, so that its run takes a while."""
    dataset = SmallDataset(folder, "slow", yaml="packing: {shard_size: 1}\n")
    dataset.add(SQUARE, SLOW_SHARDS)
    return dataset


@pytest.fixture(scope="module")
def dagster(
    ticking: SmallDataset, slow: SmallDataset, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DagsterDev]:
    server = DagsterDev(tmp_path_factory.mktemp("dagster"), folder)
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


def _next_run(dagster: DagsterDev, dataset: SmallDataset, known: set[str]) -> tuple[str, str]:
    """Wait for a run that is not known yet; returns its id and how it ended."""
    run_id = dagster.wait_for(
        lambda: next((run["runId"] for run in dagster.runs(dataset.name) if run["runId"] not in known), None),
        TICK_S,
        "a scheduled run",
    )
    return run_id, dagster.wait_for_end(run_id, TICK_S)


def _mtimes(dataset: SmallDataset) -> dict[Path, int]:
    folder = dataset.folder / f"{dataset.name}_parquet"
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}


class TestSchedule:
    """schedule → run → all partitions; unchanged → skip; appended → new shards; failed bucket → repaired alone."""

    known: set[str] = set()  # noqa: RUF012  (run ids, handed from test to test)

    def test_a_tick_packs_the_whole_dataset_in_one_run(self, dagster: DagsterDev, ticking: SmallDataset):
        run_id, status = _next_run(dagster, ticking, self.known)
        self.known.add(run_id)
        assert status == "SUCCESS"
        assert [_materialized(dagster, ticking, asset) for asset in ("shards", "sidecars")] == [135, 135]
        assert ticking.sidecar(SQUARE).exists()

    def test_an_unchanged_dataset_is_skipped(self, dagster: DagsterDev, ticking: SmallDataset):
        def skipped() -> str | None:
            reasons = [tick["skipReason"] for tick in dagster.ticks("package_ticking_schedule")]
            return next((reason for reason in reasons if reason and "up to date" in reason), None)

        reason = dagster.wait_for(skipped, TICK_S, "a skipped tick")
        assert reason == "ticking is up to date: 4 rows in 2 shards, nothing to do"
        assert {run["runId"] for run in dagster.runs("ticking")} == self.known

    def test_appended_rows_make_new_shards_and_touch_no_other(self, dagster: DagsterDev, ticking: SmallDataset):
        before = _mtimes(ticking)
        ticking.add(WIDE)
        run_id, status = _next_run(dagster, ticking, self.known)
        self.known.add(run_id)
        assert status == "SUCCESS"
        after = _mtimes(ticking)
        assert {path: after[path] for path in before} == before
        assert set(after) - set(before) == {ticking.shard(WIDE, 1)}

    def test_a_bucket_that_failed_is_repaired_by_the_next_tick_alone(self, dagster: DagsterDev, ticking: SmallDataset):
        blocker = ticking.shard(TALL)
        blocker.mkdir(parents=True)
        ticking.add(TALL)
        run_id, status = _next_run(dagster, ticking, self.known)
        self.known.add(run_id)
        assert status == "FAILURE"
        before = _mtimes(ticking)
        blocker.rmdir()
        before.pop(blocker)
        while status != "SUCCESS":
            run_id, status = _next_run(dagster, ticking, self.known)
            self.known.add(run_id)
        after = _mtimes(ticking)
        assert {path: after[path] for path in before} == before
        assert set(after) - set(before) == {ticking.shard(TALL)}
        assert ticking.sidecar(TALL).exists()

    def test_each_tick_has_one_run_at_most(self, dagster: DagsterDev):
        ticks = dagster.ticks("package_ticking_schedule")
        assert max(len(tick["runIds"]) for tick in ticks) == 1
        assert len({tick["timestamp"] for tick in ticks}) == len(ticks)


class TestOneRunAtATime:
    """DAG-02, DAG-06: a second run waits, a terminated one leaves nothing behind and is resumed."""

    def test_a_second_run_waits_and_a_terminated_one_ends_in_seconds(self, dagster: DagsterDev, slow: SmallDataset):
        first = dagster.launch("package_slow", range_tags(SQUARE, SQUARE))
        dagster.wait_for(slow.shard(SQUARE).exists, 200, "the first shard")
        second = dagster.launch("package_slow", {**range_tags(SQUARE, SQUARE), "test/second": "yes"})
        lease = slow.folder / "slow_parquet_work" / "LEASE.json"
        assert dagster.status(first) == "STARTED"
        assert dagster.status(second) in {"QUEUED", "NOT_STARTED"}

        dagster.terminate(first)
        ended_s = time.monotonic()
        assert dagster.wait_for_end(first, 30) == "CANCELED"
        assert time.monotonic() - ended_s < 15
        assert not lease.exists() or first not in lease.read_text()
        written = set(_mtimes(slow))
        assert 0 < len(written) < SLOW_SHARDS
        mtimes = _mtimes(slow)

        assert dagster.wait_for_end(second, 250) == "SUCCESS"
        after = _mtimes(slow)
        assert len(after) == SLOW_SHARDS
        written_again = [path for path in mtimes if after[path] != mtimes[path]]
        assert len(written_again) <= SHARDS_IN_FLIGHT

    def test_no_worker_is_left(self, dagster: DagsterDev):
        left = [process.name() for process in psutil.process_iter() if str(dagster.home) in " ".join(_environ(process))]
        assert [name for name in left if name.startswith(("ray", "raylet", "gcs"))] == []


def _environ(process: psutil.Process) -> list[str]:
    try:
        return [f"{key}={value}" for key, value in process.environ().items()]
    except psutil.Error:
        return []
