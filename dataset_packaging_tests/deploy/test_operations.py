"""docs/operations.md, done as it says."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataset_packaging_tests.checker import check
from dataset_packaging_tests.servers.process import free_ports

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 540  # a minute is the wait for a tick; the rest is time that a busy machine takes
PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")


def script_of_the_page(port: int) -> str:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    return "set -euxo pipefail\n" + "".join(blocks).replace("3000", str(port))


def make_command(folder: Path) -> None:
    """Puts `dataset-packaging` of this source tree into a folder, whether it is installed here or not."""
    command = folder / "dataset-packaging"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m dataset_packaging.cli.main "$@"\n')
    command.chmod(0o755)


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_every_command_of_the_page_works_and_the_schedule_repairs_the_dataset(tmp_path: Path) -> None:
    home, programs = tmp_path / "home", tmp_path / "bin"
    home.mkdir()
    programs.mkdir()
    make_command(programs)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "DAGSTER_HOME")}
    (port,) = free_ports(1)
    shell = subprocess.Popen(
        ["bash", "-c", script_of_the_page(port)],
        cwd=ROOT,
        env={**environ, "HOME": str(home), "PATH": path, "DATASET_PACKAGING_RAY_CPUS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = shell.communicate(timeout=TIMEOUT_S)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.communicate()
    assert shell.returncode == 0, said[-4000:]
    assert "photos is up to date" in said
    assert check(home / "packaging/datasets/photos.yaml") == []


def test_the_page_installs_what_the_tests_run_in() -> None:
    """`make install` and `make test` make the same environment: this one, in `.ci/run`."""
    makefile = (ROOT / "Makefile").read_text()
    made = {target: re.findall(rf"^{target}: (\S+)", makefile, re.MULTILINE) for target in ("install", "test")}
    assert "make install" in PAGE
    assert made["install"] == made["test"] == [".venv/test.stamp"]
