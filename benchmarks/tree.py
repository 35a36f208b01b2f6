"""Runs a command and measures its whole tree of processes: wall time, CPU time, peak memory, and what others took."""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

_SAMPLE_S = 0.1
_PSS_EVERY = 3
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a command.

    Attributes:
        wall_s: from start to end of the command.
        cpu_s: user and system time of the tree, as far as samples saw it.
        peak_pss_mb: highest sampled sum of proportional set sizes, in MiB.
        others_cores: cores that other processes of the machine kept busy meanwhile: above 0.2 the times are in doubt.
        exit_code: of the command.
        figures: the last line of its output that is a JSON object; empty without one.
    """

    wall_s: float
    cpu_s: float
    peak_pss_mb: float
    others_cores: float
    exit_code: int
    figures: dict[str, float]


def measure(command: list[str], environ: Mapping[str, str], log: Path, timeout_s: float) -> Measured:
    """Runs the command to its end; its output and errors go to `log`. A command that takes too long is killed."""
    busy_before, began = _busy_s(), time.perf_counter()
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **environ}, start_new_session=True
        )
        sampler = _TreeSampler(psutil.Process(process.pid))
        while process.poll() is None and time.perf_counter() - began < timeout_s:
            sampler.sample()
            time.sleep(_SAMPLE_S)
        if process.poll() is None:
            sampler.kill()
        exit_code = process.wait()
    wall_s = time.perf_counter() - began
    others = max(0.0, _busy_s() - busy_before - sampler.cpu_s) / wall_s
    return Measured(wall_s, sampler.cpu_s, sampler.peak_pss_mb, others, exit_code, _figures(log))


class _TreeSampler:
    """Sums up the processes of a tree, those that have ended or moved away from their parent included."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._seen: dict[int, psutil.Process] = {root.pid: root}
        self._cpu_s: dict[int, float] = {}
        self._samples = 0
        self.peak_pss_mb = 0.0

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu_s.values())

    def sample(self) -> None:
        try:
            self._seen.update((child.pid, child) for child in self._root.children(recursive=True))
        except psutil.Error:
            return
        pss_mb = 0.0
        weigh = self._samples % _PSS_EVERY == 0
        for pid, process in list(self._seen.items()):
            try:
                times = process.cpu_times()
                self._cpu_s[pid] = times.user + times.system
                if weigh:
                    pss_mb += pss_bytes(pid) / _MIB
            except (psutil.Error, OSError):
                del self._seen[pid]
        self.peak_pss_mb = max(self.peak_pss_mb, pss_mb)
        self._samples += 1

    def kill(self) -> None:
        for process in self._seen.values():
            try:
                process.kill()
            except psutil.Error:
                continue


def pss_bytes(pid: int) -> int:
    """Returns the memory of a process, what it shares with others in parts; raises OSError if there is none."""
    with Path(f"/proc/{pid}/smaps_rollup").open() as lines:
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _busy_s() -> float:
    """Returns the CPU seconds that the machine has spent so far, idle and waiting for disks apart."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _figures(log: Path) -> dict[str, float]:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1])) if lines else {}
