"""What workers log reaches whoever reads the log of the run: the driver, Dagster's event log, the command's stderr."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataset_packaging.config import read_runtime
from dataset_packaging.io.concurrency import ConcurrencyLimiter
from dataset_packaging.orchestration.instance import open_instance
from dataset_packaging.packing.executor import SerialExecutor, ray_executor
from dataset_packaging.packing.log_relay import INTERVAL_S, LINES_OF_A_TASK_MAX, collected_logs, relayed_logs
from dataset_packaging_tests.cli.command import run_command
from dataset_packaging_tests.packing import ray_tasks
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset
from dataset_packaging_tests.packing.s3_dataset import Bucket, uploaded
from dataset_packaging_tests.packing.test_s3_outages import behind
from dataset_packaging_tests.servers.fault_proxy import Fault, FaultProxy, random_faults
from dataset_packaging_tests.servers.s3_server import S3Endpoint


@pytest.fixture
def said() -> Iterator[list[tuple[int, str]]]:
    lines: list[tuple[int, str]] = []
    with relayed_logs(lambda level, text: lines.append((level, text))):
        yield lines


def test_what_a_worker_logs_is_logged_by_the_driver(said: list[tuple[int, str]]) -> None:
    """S3-09: by a limiter in the process of a worker, on Ray; the same without Ray."""
    with ray_executor(read_runtime({**os.environ, "RAY_ADDRESS": "local", "DATASET_PACKAGING_RAY_CPUS": "1"})) as ray:
        assert [result.require_value() for result in ray.map(ray_tasks.throttle, ["S3 (sources)"])] == [32]
    assert said == [(logging.WARNING, "S3 (sources) is throttling: 32 requests at once instead of 64")]
    for result in SerialExecutor().map(ray_tasks.throttle, ["local"]):
        result.require_value()
    assert len(said) == 1, "within a few seconds one line of a kind is enough"


def test_lines_of_one_kind_are_told_once_in_a_while_and_counted() -> None:
    now = [0.0]
    lines: list[str] = []
    limiters = [ConcurrencyLimiter(64, name=f"worker {number}") for number in range(4)]
    with relayed_logs(lambda _, text: lines.append(text), clock=lambda: now[0]):
        for number, limiter in enumerate(limiters):
            now[0] = 0.0 if number < 3 else INTERVAL_S
            limiter.acquire()
            limiter.release(throttled=True)
    assert lines == [
        "worker 0 is throttling: 32 requests at once instead of 64",
        "worker 3 is throttling: 32 requests at once instead of 64 (2 more like it before)",
    ]


def test_a_task_that_logs_without_end_brings_a_few_lines_back() -> None:
    with collected_logs() as lines:
        for number in range(1000):
            logging.getLogger("dataset_packaging.io").warning("line %d", number)
        logging.getLogger("dataset_packaging.io").debug("not for users")
        logging.getLogger("another").warning("nobody's business")
    assert [line.text for line in lines] == [f"line {number}" for number in range(LINES_OF_A_TASK_MAX)]
    assert logging.getLogger("dataset_packaging").handlers == []


def test_lowered_concurrency_is_told_in_the_log_of_the_run_and_by_the_command(
    tmp_path: Path, s3_server: S3Endpoint, s3_bucket: str, s3_environ: dict[str, str]
) -> None:
    """S3-09: a whole run on Ray, 30 % of the images throttled: the lines come from the workers."""
    local = PhotoDataset(tmp_path / "local", settings={"shard_size": 50})
    local.root.mkdir()
    local.add_photos(100, size=(48, 48))
    home = tmp_path / "dagster"
    env = {"DAGSTER_HOME": str(home), "RAY_ADDRESS": "local", "DATASET_PACKAGING_RAY_CPUS": "2"}
    with FaultProxy(s3_server.port) as proxy:
        proxy.choose = random_faults(5, {Fault.THROTTLED: 0.3}, lambda request: "/images/" in request.target)
        dataset = behind(uploaded(local, Bucket(s3_bucket, s3_server.client()), "set"), proxy, "out")
        dataset.write_yaml()
        packed = run_command("pack", "dataset.yaml", "--json", cwd=dataset.root, env=env)
    assert packed.exit_code == 0, packed
    assert packed.json["packed"] == 100
    assert packed.json["requests"]["throttled"] == proxy.faults[Fault.THROTTLED]
    assert "S3 (sources) is throttling: 32 requests at once instead of 64" in packed.stderr
    with open_instance(home) as instance:
        logged = [entry.user_message for run in packed.json["run_ids"] for entry in instance.all_logs(run)]
    assert any("S3 (sources) is throttling: 32 requests at once instead of 64" in line for line in logged)
