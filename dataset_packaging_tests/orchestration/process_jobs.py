"""Jobs that another process builds anew, for runs with a process for each step."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from dataset_packaging.config import load_dataset
from dataset_packaging.orchestration.component import build_dataset_definitions
from dataset_packaging.orchestration.definitions import build_shared_definitions
from dataset_packaging.orchestration.keys import DatasetKeys
from dataset_packaging.packing.executor import Executor, SerialExecutor
from dataset_packaging_tests.orchestration.small_dataset import SerialWorkers

DATASET_YAML = "TEST_DATASET_YAML"
KILLED_ONCE = "TEST_KILLED_ONCE"


class MortalWorkers(SerialWorkers):
    """Kills its process when it is first asked for workers, if `KILLED_ONCE` names a file that is not there yet."""

    @contextlib.contextmanager
    def open_executor(self) -> Iterator[Executor]:
        marker = os.environ.get(KILLED_ONCE)
        if marker and not Path(marker).exists():
            Path(marker).touch()
            os._exit(1)
        yield SerialExecutor()


def build_job() -> dg.JobDefinition:
    """The packing job of the dataset that the environment names, with a process and one retry for each step."""
    dataset = load_dataset(os.environ[DATASET_YAML])
    keys = DatasetKeys(dataset.name)
    job = dg.define_asset_job(
        "package_in_processes",
        selection=dg.AssetSelection.assets(keys.manifest, keys.shards, keys.sidecars),
        executor_def=dg.multiprocess_executor,
        op_retry_policy=dg.RetryPolicy(max_retries=1),
    )
    definitions = dg.Definitions.merge(
        build_dataset_definitions(dataset), build_shared_definitions(MortalWorkers()), dg.Definitions(jobs=[job])
    )
    return definitions.resolve_job_def("package_in_processes")
