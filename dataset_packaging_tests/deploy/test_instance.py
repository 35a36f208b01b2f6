"""The production settings on the real thing: PostgreSQL, an S3 server, code location and daemon."""

import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator
from dagster._core.storage.dagster_run import RunRecord
from dagster_aws.s3 import S3ComputeLogManager

from dataset_packaging.orchestration.keys import BUCKET_KEYS
from dataset_packaging_tests.checker import check
from dataset_packaging_tests.deploy.packs import write_dataset
from dataset_packaging_tests.servers.postgres import PostgresServer, find_programs
from dataset_packaging_tests.servers.process import ServerProcess, free_ports, wait_until
from dataset_packaging_tests.servers.s3_server import S3Endpoint

DEPLOY = Path(__file__).parents[2] / "deploy"
PROGRAMS = Path(sys.executable).parent
DATASET = "slow"


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: make debian-packages")
    server = PostgresServer(programs)
    try:
        server.start()
        yield server
    finally:
        server.stop()


class Deployment:
    """The processes of `deploy/docker-compose.yaml`, without containers: code location and daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "dagster_home"
        self.home.mkdir()
        (self._port,) = free_ports(1)
        shutil.copy(DEPLOY / "dagster.yaml", self.home)
        workspace = (DEPLOY / "workspace.yaml").read_text()
        (self.home / "workspace.yaml").write_text(
            workspace.replace("host: code", "host: 127.0.0.1").replace("port: 4000", f"port: {self._port}")
        )
        self._processes: list[ServerProcess] = []

    def start(self) -> None:
        """Starts the commands of the image and of the Compose file."""
        (command,) = re.findall(r"^CMD \[(.*?)\]$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE | re.DOTALL)
        words = [word.strip(' "\\\n') for word in command.split(",")]
        code = self._start([*words[:-1], *words[-1:]], {"0.0.0.0": "127.0.0.1", "4000": str(self._port)})
        health = ["dagster", "api", "grpc-health-check", "--port", str(self._port)]
        wait_until(lambda: self.run_command(health).returncode == 0, code, 60, "the code location")
        self._start(["dagster-daemon", "run", "--workspace", "workspace.yaml"], {})

    def stop(self) -> None:
        """Ends them, the daemon first."""
        for process in reversed(self._processes):
            process.stop(gently_s=10)

    def run_command(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, where the parts of the deployment run."""
        program = [str(PROGRAMS / command[0]), *command[1:]]
        return subprocess.run(program, capture_output=True, text=True, check=False, cwd=self.home)

    def launch(self) -> str:
        """Puts a run of the whole dataset into the queue; returns its id."""
        tags = f'{{"dagster/asset_partition_range_start": "{BUCKET_KEYS[0]}", '
        tags += f'"dagster/asset_partition_range_end": "{BUCKET_KEYS[-1]}"}}'
        run_id = str(uuid.uuid4())
        command = ["dagster", "job", "launch", "--workspace", "workspace.yaml", "--location", "dataset_packaging"]
        done = self.run_command([*command, "--job", f"package_{DATASET}", "--tags", tags, "--run-id", run_id])
        assert done.returncode == 0, done.stderr
        return run_id

    def log(self) -> str:
        """Returns the ends of the logs of all processes."""
        return "\n".join(process.log_tail() for process in self._processes)

    def _start(self, command: list[str], replaced: dict[str, str]) -> ServerProcess:
        words = [replaced.get(word, word) for word in command]
        log_path = self.folder / f"{words[0]}.log"
        environ = {**os.environ, "PYTHONPATH": str(DEPLOY.parent)}
        process = ServerProcess([str(PROGRAMS / words[0]), *words[1:]], log_path, environ, cwd=self.home)
        self._processes.append(process)
        return process


@pytest.fixture
def deployment(
    tmp_path: Path,
    postgres: PostgresServer,
    s3_server: S3Endpoint,
    s3_bucket: str,
    s3_environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Deployment]:
    write_dataset(tmp_path / "datasets", shards=3, name=DATASET)
    running = Deployment(tmp_path)
    environ = {
        **postgres.environ(),
        "DAGSTER_LOGS_BUCKET": s3_bucket,
        "DAGSTER_HOME": str(running.home),
        "DATASETS_DIR": str(tmp_path / "datasets"),
        "RAY_ADDRESS": "local",
        "DATASET_PACKAGING_RAY_CPUS": "1",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def wait_for(instance: dg.DagsterInstance, run_id: str, deployment: Deployment) -> RunRecord:
    end = time.monotonic() + 300
    while True:
        record = instance.get_run_record_by_id(run_id)
        assert record is not None
        if record.dagster_run.is_finished:
            return record
        assert time.monotonic() < end, f"{record.dagster_run.status}\n{deployment.log()}"
        time.sleep(0.2)  # the daemon and the run tell what they do only in the database


@pytest.mark.timeout(700)
def test_a_run_goes_through_queue_daemon_code_location_postgres_and_s3(
    deployment: Deployment,
    postgres: PostgresServer,
    s3_server: S3Endpoint,
    s3_bucket: str,
) -> None:
    """DAG-06, DAG-08."""
    first, second = deployment.launch(), deployment.launch()
    with dg.DagsterInstance.from_config(str(deployment.home)) as instance:
        assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
        assert instance.run_monitoring_enabled
        assert (instance.run_retries_enabled, instance.run_retries_max_retries) == (True, 2)
        records = [wait_for(instance, run_id, deployment) for run_id in (first, second)]
        assert [record.dagster_run.status for record in records] == [dg.DagsterRunStatus.SUCCESS] * 2
        starts, ends = ([getattr(record, name) for record in records] for name in ("start_time", "end_time"))
        assert starts[1] >= ends[0], "both were at work at once"
        assert isinstance(instance.compute_log_manager, S3ComputeLogManager)
    assert check(deployment.folder / f"datasets/{DATASET}.yaml") == []

    objects = s3_server.client().list_objects_v2(Bucket=s3_bucket, Prefix="compute_logs/")["Contents"]
    assert any(first in each["Key"] and each["Size"] > 0 for each in objects)
    with postgres.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM runs WHERE status = 'SUCCESS'")
        assert cursor.fetchone() == (2,)
    assert deployment.run_command(["dagster-daemon", "liveness-check"]).returncode == 0
