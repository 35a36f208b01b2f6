"""The code location: every dataset of the datasets folder, and what their runs need."""

import dagster as dg

from dataset_packaging.config import RuntimeConfig, read_runtime
from dataset_packaging.orchestration.dataset_folder import load_dataset_folder
from dataset_packaging.orchestration.resources import RayCluster, S3Access
from dataset_packaging.orchestration.run_options import RunOptionsResource


def build_definitions(runtime: RuntimeConfig) -> dg.Definitions:
    """Build the definitions of the datasets folder; reads its YAML files and nothing else.

    Steps run inside the run's own process: their work is done by Ray's workers, and a process for each step would only
    load everything again.
    """
    shared = build_shared_definitions(RayCluster.of(runtime))
    return dg.Definitions.merge(load_dataset_folder(runtime.datasets_dir), shared)


def build_shared_definitions(workers: RayCluster) -> dg.Definitions:
    """Build what all datasets share: the resources, with these workers, and the executor; pure."""
    return dg.Definitions(
        resources={
            "ray_cluster": workers,
            "s3": S3Access(),
            "run_options": RunOptionsResource(),
        },
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The entry point of `dagster dev`, `dg dev` and the workspace file."""
    return build_definitions(read_runtime())
