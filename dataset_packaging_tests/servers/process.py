"""Processes that tests start, wait for and stop by their own id."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil


def free_ports(count: int) -> list[int]:
    """Find free loopback ports, all different."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class ServerProcess:
    """One server process with its log; `stop` kills it at once, its data is thrown away anyway."""

    def __init__(
        self, command: Sequence[str], log_path: Path, environ: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(environ), cwd=cwd
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-3000:]

    def pause(self) -> None:
        """Stop the process where it is: connections stay open, and nobody answers."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self, gently_s: float = 0.0) -> None:
        """Kill the process and what it started; with `gently_s` it may end by itself first."""
        started = psutil.Process(self._process.pid).children(recursive=True) if self.running else []
        if gently_s and self.running:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(gently_s)
        if self.running:
            self._process.kill()
        self._process.wait()
        for each in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def wait_until(ready: Callable[[], bool], process: ServerProcess, timeout_s: float, what: str) -> None:
    """Ask `ready` until it says yes.

    Raises:
        RuntimeError: the process ended, or the time is up; with the end of its log.
    """
    end = time.monotonic() + timeout_s
    while not ready():
        if not process.running or time.monotonic() > end:
            raise RuntimeError(f"{what} did not start:\n{process.log_tail()}")
        time.sleep(0.05)  # there is no event to wait for: a server tells that it is up only by answering


def clean_environ() -> dict[str, str]:
    """Copy the environment without what would configure an S3 client or server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "S3_", "WEED_", "CEPH_"))}
