"""The Dagster web UI over a folder of datasets, on this machine."""

import os
import signal
import sys
from pathlib import Path

from dataset_packaging.errors import ConfigError
from dataset_packaging.orchestration.instance import prepare_instance

DEFAULT_PORT = 3000
CODE_LOCATION = "dataset_packaging.orchestration.definitions"


def build_ui_command(datasets_dir: Path, dagster_home: Path, port: int, host: str) -> list[str]:
    """Return the command that runs web server and daemon over the datasets; pure."""
    return [
        "env", f"DAGSTER_HOME={dagster_home}", f"DATASETS_DIR={datasets_dir}",
        sys.executable, "-m", "dagster", "dev", "--module-name", CODE_LOCATION, "--host", host, "--port", str(port),
    ]  # fmt: skip


def start_ui(datasets_dir: Path, dagster_home: Path, port: int = DEFAULT_PORT, host: str = "127.0.0.1") -> None:
    """Become the web UI: this process is replaced by it, and ends when it does.

    Args:
        datasets_dir: Folder of the dataset YAML files.
        dagster_home: Folder of the Dagster instance; made where there is none.
        port: Of the web server.
        host: Address that the web server listens on.

    Raises:
        ConfigError: there is no folder of datasets, or the instance's folder cannot be used.
    """
    if not datasets_dir.is_dir():
        raise ConfigError(f"{datasets_dir}: no such folder; name the one with your dataset YAML files")
    command = build_ui_command(datasets_dir.absolute(), prepare_instance(dagster_home), port, host)
    # A shell that starts this in the background leaves SIGINT ignored, and the servers would never hear it.
    for name in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
    os.execvp(command[0], command)
