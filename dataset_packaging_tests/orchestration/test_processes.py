"""Runs whose processes are killed or interrupted: nothing is left behind, and the next run goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import psutil
import pytest

from dataset_packaging.orchestration.keys import range_tags
from dataset_packaging_tests.orchestration.process_jobs import DATASET_YAML, KILLED_ONCE, build_job
from dataset_packaging_tests.orchestration.small_dataset import FIRST, LAST, SQUARE, TALL, WIDE, SmallDataset

PACK = """
import sys
from pathlib import Path
from dataset_packaging.orchestration.instance import open_instance
from dataset_packaging.orchestration.local_runs import run_packaging

with open_instance(Path(sys.argv[2])) as instance:
    sys.exit(run_packaging(Path(sys.argv[1]), instance, partitions=["0_512/10000"]).exit_code)
"""


@pytest.mark.parametrize("killed", [False, True], ids=["undisturbed", "killed once"])
def test_a_process_for_each_step_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance, killed: bool
):
    """DAG-13: what a child process does, and its death, are not seen by runs in one process."""
    here, there = SmallDataset(tmp_path / "here"), SmallDataset(tmp_path / "there")
    for dataset in (here, there):
        for bucket in (SQUARE, WIDE, TALL):
            dataset.add(bucket)
    here.run(instance)
    marker = tmp_path / "killed"
    monkeypatch.setenv(DATASET_YAML, str(there.yaml))
    monkeypatch.setenv(KILLED_ONCE, str(marker) if killed else "")
    with dg.instance_for_test() as on_disk:
        result = dg.execute_job(
            dg.reconstructable(build_job), instance=on_disk, tags=range_tags(FIRST, LAST), raise_on_error=False
        )
        restarted = [event.step_key for event in result.all_events if event.event_type_value == "STEP_RESTARTED"]
        assert result.success
        assert set(on_disk.get_materialized_partitions(there.keys.sidecars)) >= {SQUARE, WIDE, TALL}
    assert restarted == (["small__manifest"] if killed else [])
    assert marker.exists() == killed
    for bucket in (SQUARE, WIDE, TALL):
        assert _rows(there, bucket) == _rows(here, bucket)


def _rows(dataset: SmallDataset, bucket: str) -> list[tuple[object, ...]]:
    import pyarrow.parquet as pq

    table = pq.read_table(dataset.shard(bucket), columns=["image", "width", "height"])
    return [tuple(row.values()) for row in table.to_pylist()]


def test_an_interrupted_run_leaves_no_worker_and_no_lease_and_is_resumed(tmp_path: Path):
    """DAG-02: after the interruption nothing works on, and what was durable stays."""
    dataset = SmallDataset(tmp_path / "data", yaml="packing: {shard_size: 1}\n")
    dataset.add(SQUARE, 150)
    command = [sys.executable, "-c", PACK, str(dataset.yaml), str(tmp_path / "home")]
    environ = {**os.environ, "DATASET_PACKAGING_RAY_CPUS": "1", "RAY_ADDRESS": "local"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
    receipts = dataset.folder / "small_parquet_work" / "receipts"
    _wait_for(lambda: any(receipts.rglob("*")) and dataset.shard(SQUARE).exists(), process)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    process.wait(30)
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    assert process.returncode != 0
    assert list((dataset.folder / "small_parquet_work").rglob("LEASE.json")) == []
    before = _mtimes(dataset)
    assert 0 < len(before) < 150

    resumed = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    after = _mtimes(dataset)
    assert len(after) == 150
    in_flight = 2  # an object without its receipt is written again, with the same bytes
    assert len([path for path in before if after[path] != before[path]]) <= in_flight


def _mtimes(dataset: SmallDataset) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in dataset.shard(SQUARE).parent.glob("*.parquet")}


def _wait_for(happened: object, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 180
    while not happened():  # type: ignore[operator]
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)  # files of another process are seen only by looking
