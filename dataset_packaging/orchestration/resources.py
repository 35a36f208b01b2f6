"""What runs need from outside: workers on Ray, access to S3."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource
from pydantic import Field, PrivateAttr

from dataset_packaging.config import DatasetConfig, RuntimeConfig, read_runtime
from dataset_packaging.errors import ConfigError
from dataset_packaging.packing.executor import Executor, ray_executor


class RayCluster(dg.ConfigurableResource[Any]):
    """Where the tasks of a run go: a Ray of its own on this machine, or a cluster that is joined.

    Ray is started or joined when the first task is there, shared by the steps of the process, and left when the run
    ends, however it ends.
    """

    address: str = Field(
        default="local",
        description="'local' starts Ray for the run and stops it afterwards; else 'auto' or host:port of a cluster.",
    )
    cpus: int | None = Field(
        default=None, ge=1, description="CPUs of the local Ray; empty: as many as the container may use."
    )
    memory_bytes: int | None = Field(
        default=None, ge=1, description="Memory of the local Ray; empty: as much as the container may use."
    )
    object_store_bytes: int | None = Field(default=None, ge=1, description="Shared memory of the local Ray.")

    _held: ExitStack | None = PrivateAttr(default=None)
    _executor: Executor | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, runtime: RuntimeConfig) -> "RayCluster":
        """Build the resource from the settings of this process; pure."""
        return cls(
            address=runtime.ray_address,
            cpus=runtime.ray_cpus,
            memory_bytes=runtime.ray_memory_bytes,
            object_store_bytes=runtime.ray_object_store_bytes,
        )

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator["RayCluster"]:
        """Hold whatever is opened during the run until it ends."""
        with ExitStack() as stack:
            self._held = stack
            try:
                yield self
            finally:
                self._held = self._executor = None

    @contextmanager
    def open_executor(self) -> Iterator[Executor]:
        """Yield the executor of this process; inside a run it outlives the block, and the run's next step finds it.

        Raises:
            WorkerFailed: Ray cannot be started or reached.
        """
        if self._held is None:
            with ray_executor(self._runtime()) as executor:
                yield executor
            return
        if self._executor is None:
            self._executor = self._held.enter_context(ray_executor(self._runtime()))
        yield self._executor

    def _runtime(self) -> RuntimeConfig:
        chosen = {
            "ray_address": self.address,
            "ray_cpus": self.cpus,
            "ray_memory_bytes": self.memory_bytes,
            "ray_object_store_bytes": self.object_store_bytes,
        }
        return read_runtime().model_copy(update=chosen)


class S3Access(S3Resource):
    """dagster-aws's S3Resource, except that it makes a client only when asked for one: packing never does."""

    def get_object_to_set_on_execution_context(self) -> "S3Access":
        """Return the resource itself in place of a client."""
        return self


def apply_s3_resource(dataset: DatasetConfig, s3: S3Resource) -> DatasetConfig:
    """Return the dataset with the resource's settings where its own YAML says nothing; pure.

    Raises:
        ConfigError: the resource carries keys, which workers on other machines would never see.
    """
    if s3.aws_access_key_id or s3.aws_secret_access_key or s3.aws_session_token:
        raise ConfigError(
            "resource s3: access keys in the resource do not reach the workers; set a profile or a role, or "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of every node"
        )
    offered = {
        "region": s3.region_name,
        "endpoint": s3.endpoint_url,
        "profile": s3.profile_name,
        "anonymous": s3.use_unsigned_session or None,
    }
    stated = dataset.s3.model_fields_set
    taken = {name: value for name, value in offered.items() if value is not None and name not in stated}
    if not taken:
        return dataset
    return dataset.model_copy(update={"s3": dataset.s3.model_copy(update=taken)})
