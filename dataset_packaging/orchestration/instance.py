"""The Dagster instance of one machine: its folder, and the settings that a new one gets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef

from dataset_packaging.errors import ConfigError, NoPermission
from dataset_packaging.orchestration.event_log import OpenSqliteEventLogStorage

INSTANCE_SETTINGS = """\
# Settings of this Dagster instance; written once, yours to change. For production see deploy/.
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  pools:
    granularity: run      # a run waits while another one works on the same dataset
    default_limit: 1
  runs:
    max_concurrent_runs: 2
"""


def prepare_instance(home: Path) -> Path:
    """Make sure that the folder exists and has a `dagster.yaml`; an existing one is left as it is.

    Returns:
        The absolute folder, for DAGSTER_HOME.

    Raises:
        ConfigError: the folder cannot be made or written; NoPermission where this user may not.
    """
    home = home.absolute()
    settings = home / "dagster.yaml"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with settings.open("x") as file:
            file.write(INSTANCE_SETTINGS)
    except FileExistsError:
        if not home.is_dir():
            raise ConfigError(f"DAGSTER_HOME: {home} is not a folder") from None
    except PermissionError as error:
        raise NoPermission(f"DAGSTER_HOME: {home} cannot be used: {error.strerror}") from error
    except OSError as error:
        raise ConfigError(f"DAGSTER_HOME: {home} cannot be used: {error.strerror}") from error
    return home


@contextmanager
def open_instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """Open the instance in the folder, making it first where there is none; it is the one that the web UI shows.

    Where its settings name no storage, events go to the SQLite files that Dagster would use, over open connections.
    """
    home = prepare_instance(home)
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home), overrides=_storage_overrides(home))) as instance:
        yield instance


def _storage_overrides(home: Path) -> dict[str, object]:
    settings = yaml.safe_load((home / "dagster.yaml").read_text()) or {}
    if {"storage", "event_log_storage", "run_storage", "schedule_storage"} & set(settings):
        return {}
    return {
        "event_log_storage": {
            "module": OpenSqliteEventLogStorage.__module__,
            "class": OpenSqliteEventLogStorage.__name__,
            "config": {"base_dir": str(home / "history" / "runs")},
        }
    }
