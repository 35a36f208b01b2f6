"""One dataset YAML as Dagster definitions: assets, checks, the job that packs it, and what starts that job."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, ConfigDict

from dataset_packaging.config import DatasetConfig, dataset_json_schema, parse_dataset
from dataset_packaging.orchestration.assets import build_assets
from dataset_packaging.orchestration.keys import DATASET_TAG, DatasetKeys
from dataset_packaging.orchestration.listeners import RunListener
from dataset_packaging.orchestration.schedules import build_change_sensor, build_schedule


class DatasetAttributes(dg.Model):
    """The attributes of a `defs.yaml` as they stand there: any fields, with the schema of the dataset YAML.

    They become a dataset only where the folder is known that relative paths are relative to.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the JSON Schema of the dataset YAML, which editors and `dg check yaml` use."""
        return dataset_json_schema()


class PackagedDataset(dg.Component, dg.Model, dg.Resolvable):
    """One image dataset, packed into verified, bucketed Parquet shards.

    Its attributes are the fields of the dataset YAML. Makes the assets `<name>/manifest`, `<name>/shards`,
    `<name>/resized_512` and so on, `<name>/sidecars` (a partition for each of the 135 buckets) and `<name>/handoff`,
    their checks, the job `package_<name>`, and its
    schedule or sensor where the YAML has one. The code location must offer the resources `ray_cluster`, `s3` and
    `run_options`.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    dataset: DatasetConfig

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return what Dagster reads the attributes with."""
        return DatasetAttributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> "PackagedDataset":
        """Build the component from the attributes of a `defs.yaml`; relative paths are relative to its folder.

        Raises:
            ConfigError: the attributes are not a dataset.
        """
        stated = attributes.model_dump(by_alias=True) if attributes else {}
        resolved = context.resolution_context.resolve_value(stated, as_type=dict[str, Any])
        folder = Path(context.path)
        return cls(dataset=parse_dataset(json.dumps(resolved), str(folder / "defs.yaml"), folder))

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Build the definitions; pure: nothing is read before a step runs."""
        return build_dataset_definitions(self.dataset)


def build_dataset_definitions(dataset: DatasetConfig, listeners: tuple[RunListener, ...] = ()) -> dg.Definitions:
    """Build the definitions of one dataset; pure.

    Args:
        dataset: Which one.
        listeners: Hear of runs in this process, beside the run's log.
    """
    keys = DatasetKeys(dataset.name)
    job = dg.define_asset_job(
        keys.job,
        selection=dg.AssetSelection.assets(*keys.packed(dataset.resized), keys.handoff),
        description=f"Packs {dataset.name} and hands it off. Repeating it writes only what is missing.",
        tags={DATASET_TAG: dataset.name},
    )
    schedules: Sequence[dg.ScheduleDefinition] = (
        [build_schedule(dataset, dataset.schedule, job)] if dataset.schedule else []
    )
    sensors: Sequence[dg.SensorDefinition] = (
        [build_change_sensor(dataset, job)] if dataset.trigger == "on_change" else []
    )
    return dg.Definitions(assets=build_assets(dataset, listeners), jobs=[job], schedules=schedules, sensors=sensors)
