"""The real command in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "dataset_packaging.cli.main")


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The summary of `--json`, read strictly."""
        return json.loads(self.stdout, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))

    @property
    def table_width(self) -> int:
        """The longest line of the tables, which all start with a space; other lines may hold a URI of any length."""
        return max(cell_len(line) for line in self.stdout.splitlines() if line.startswith(" "))

    @property
    def error_line(self) -> str:
        """The one line on stderr."""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, self.stderr
        return lines[0]


def environment(**extra: str) -> dict[str, str]:
    """The environment of a command: this process's, with the package on the path."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **extra}


def run_command(*arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> Finished:
    """Run `dataset-packaging` and wait for its end."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)
