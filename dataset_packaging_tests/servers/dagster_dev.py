"""A real Dagster on this machine: web server, daemon and code location over a folder of datasets."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dataset_packaging.orchestration.instance import prepare_instance
from dataset_packaging.orchestration.web_ui import build_ui_command
from dataset_packaging_tests.servers.process import ServerProcess, clean_environ, free_ports, wait_until

LOCATION = "dataset_packaging.orchestration.definitions"
REPOSITORY = "__repository__"
FINISHED = {"SUCCESS", "FAILURE", "CANCELED"}


class DagsterDev:
    """Started as `dataset-packaging ui` starts it; asked by GraphQL, as its pages do.

    Args:
        folder: For the instance and the log.
        datasets_dir: Folder of the dataset files.
        environ: Further variables.
    """

    def __init__(self, folder: Path, datasets_dir: Path, environ: Mapping[str, str] | None = None) -> None:
        (port,) = free_ports(1)
        self.home = prepare_instance(folder / "dagster_home")
        self.url = f"http://127.0.0.1:{port}"
        self._command = build_ui_command(datasets_dir, self.home, port, "127.0.0.1")
        self._environ = {**clean_environ(), "DATASET_PACKAGING_RAY_CPUS": "2", **(environ or {})}
        self._log_path = folder / "dagster.log"
        self.process: ServerProcess

    def start(self) -> None:
        """Start it and wait until its pages answer."""
        self.process = ServerProcess(self._command, self._log_path, self._environ)
        wait_until(self._answers, self.process, 180, "dagster dev")

    def stop(self) -> None:
        """Stop it, and with it all that it started."""
        self.process.stop(gently_s=30)

    def _answers(self) -> bool:
        try:
            locations = self.ask("{ workspaceOrError { ... on Workspace { locationEntries { loadStatus } } } }")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        entries = locations["workspaceOrError"].get("locationEntries", [])
        return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)

    def ask(self, query: str, variables: Mapping[str, object] | None = None) -> Any:
        """Send a query; returns its data."""
        body = json.dumps({"query": query, "variables": variables or {}}).encode()
        request = urllib.request.Request(
            f"{self.url}/graphql", body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.load(response)
        if "errors" in answer:
            raise RuntimeError(str(answer["errors"]))
        return answer["data"]

    def launch(self, job: str, tags: Mapping[str, str], run_config: Mapping[str, object] | None = None) -> str:
        """Launch a run of a job as its page does; returns the run's id."""
        parameters = {
            "selector": {"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY, "jobName": job},
            "runConfigData": dict(run_config or {}),
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        }
        result = self.ask(
            """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename
                 ... on LaunchRunSuccess { run { runId } }
                 ... on PythonError { message }
                 ... on RunConfigValidationInvalid { errors { message } } } }""",
            {"p": parameters},
        )["launchRun"]
        if "run" not in result:
            raise RuntimeError(str(result))
        return str(result["run"]["runId"])

    def terminate(self, run_id: str) -> None:
        """Terminate a run as its page does."""
        self.ask("mutation($id: String!) { terminateRun(runId: $id) { __typename } }", {"id": run_id})

    def status(self, run_id: str) -> str:
        """Status of a run."""
        data = self.ask("query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", {"id": run_id})
        return str(data["runOrError"]["status"])

    def runs(self, dataset: str) -> list[dict[str, Any]]:
        """Runs of a dataset, the latest first: runId, status, startTime, endTime."""
        data = self.ask(
            """query($f: RunsFilter) { runsOrError(filter: $f) { ... on Runs {
                 results { runId status startTime endTime } } } }""",
            {"f": {"tags": [{"key": "dataset_packaging/dataset", "value": dataset}]}},
        )
        return list(data["runsOrError"]["results"])

    def ticks(self, schedule: str) -> list[dict[str, Any]]:
        """Ticks of a schedule, the latest first: tickId, status, skipReason, runIds, timestamp."""
        data = self.ask(
            """query($s: InstigationSelector!) { instigationStateOrError(instigationSelector: $s) {
                 ... on InstigationState { ticks(limit: 50) { tickId status skipReason runIds timestamp } } } }""",
            {"s": {"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY, "name": schedule}},
        )
        return list(data["instigationStateOrError"].get("ticks", []))

    def wait_for(self, happened: Callable[[], Any], timeout_s: float, what: str) -> Any:
        """Ask until the answer is true; returns it."""
        end = time.monotonic() + timeout_s
        while not (answer := happened()):
            if time.monotonic() > end or not self.process.running:
                raise AssertionError(f"{what}: not within {timeout_s:.0f} s\n{self.process.log_tail()}")
            time.sleep(0.3)  # the web server is polled by its own pages, too
        return answer

    def wait_for_end(self, run_id: str, timeout_s: float = 200) -> str:
        """Wait for the end of a run; returns its status."""
        self.wait_for(lambda: self.status(run_id) in FINISHED, timeout_s, f"the end of run {run_id}")
        return self.status(run_id)
