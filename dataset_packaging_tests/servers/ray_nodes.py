"""A Ray cluster of several nodes on this machine: a head and workers, each in processes of their own."""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

from dataset_packaging_tests.servers.process import free_ports

START_TIMEOUT_S = 90.0

_NODE_ENVIRON = {
    "RAY_AUTH_MODE": "token",
    "RAY_DEDUP_LOGS": "0",
    # A node that was killed is noticed in about 3 s instead of 15.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    # On a busy machine the server of a client takes its time.
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120",
}


class RayNode:
    """One node: `ray start --block` with all the processes that it starts."""

    def __init__(self, arguments: list[str], log_path: Path, environ: Mapping[str, str]) -> None:
        self._log_path = log_path
        command = [
            *(str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"),
            *("--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0", *arguments),
        ]
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(environ)
            )

    def wait_until_started(self) -> None:
        """Raises RuntimeError with the end of the log where the node does not start."""
        end = time.monotonic() + START_TIMEOUT_S
        while "Ray runtime started" not in self._log_path.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"a Ray node did not start:\n{self._log_path.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)  # the node tells that it is up only in its log

    def runs_a_task(self, name: str) -> bool:
        """Tells whether one of the node's workers is at work on a task of this name."""
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[:1] == [f"ray::{name}"]:
                    return True
        return False

    def kill(self) -> None:
        """Kills every process of the node at once, as a lost machine would be."""
        processes = self._tree()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)
        self._process.wait()

    def _tree(self) -> list[psutil.Process]:
        try:
            node = psutil.Process(self._process.pid)
            return [node, *node.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


class RayNodes:
    """The cluster; leaving the block kills what is left of it.

    Args:
        head_cpus: of the head; the usual production setting is none.
        environ: further variables for every node.
    """

    def __init__(self, head_cpus: int = 0, environ: Mapping[str, str] | None = None) -> None:
        self._port, self._client_port = free_ports(2)
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # paths of sockets must be short
        self._token = secrets.token_hex(16)
        # Tasks that come through the client's port find the tests, which are not installed, only so.
        own = {"RAY_AUTH_TOKEN": self._token, "PYTHONPATH": str(Path(__file__).parents[2])}
        self._environ = {**os.environ, **_NODE_ENVIRON, **own, **(environ or {})}
        self._head_cpus = head_cpus
        self._nodes: list[RayNode] = []

    def __enter__(self) -> "RayNodes":
        try:
            self._start(
                "--head",
                f"--port={self._port}",
                f"--ray-client-server-port={self._client_port}",
                f"--num-cpus={self._head_cpus}",
                "--include-dashboard=false",
                f"--temp-dir={self._folder}/ray",
            )
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def address(self) -> str:
        """For drivers on this machine: RAY_ADDRESS."""
        return f"127.0.0.1:{self._port}"

    @property
    def client_address(self) -> str:
        """For drivers that are no node of the cluster."""
        return f"ray://127.0.0.1:{self._client_port}"

    @property
    def head(self) -> RayNode:
        """The first node."""
        return self._nodes[0]

    @property
    def workers(self) -> list[RayNode]:
        """All others, the dead ones included."""
        return self._nodes[1:]

    def driver_environ(self, address: str | None = None) -> dict[str, str]:
        """Returns what a driver's process needs in its environment beside the usual."""
        return {"RAY_ADDRESS": address or self.address, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token}

    def add_worker(self, cpus: int = 1, environ: Mapping[str, str] | None = None) -> RayNode:
        """Starts a node that joins and returns when it has; one at a time: two at once may choose the same socket."""
        return self._start(f"--address={self.address}", f"--num-cpus={cpus}", environ=environ)

    def _start(self, *arguments: str, environ: Mapping[str, str] | None = None) -> RayNode:
        log_path = self._folder / f"node-{len(self._nodes)}.log"
        node = RayNode([*arguments], log_path, {**self._environ, **(environ or {})})
        self._nodes.append(node)
        node.wait_until_started()
        return node

    def _stop(self) -> None:
        for node in reversed(self._nodes):
            node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
