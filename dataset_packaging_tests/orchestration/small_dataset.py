"""Datasets of a few tiny pictures, packed in this process or on Ray, for tests of the orchestration."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from PIL import Image

from dataset_packaging.config import load_dataset
from dataset_packaging.orchestration.component import build_dataset_definitions
from dataset_packaging.orchestration.definitions import build_shared_definitions
from dataset_packaging.orchestration.keys import DatasetKeys, range_tags
from dataset_packaging.orchestration.resources import RayCluster
from dataset_packaging.packing.executor import Executor, SerialExecutor

SQUARE, WIDE, TALL = "0_512/10000", "0_512/15000", "0_512/6667"
SIZES_PX: Mapping[str, tuple[int, int]] = {SQUARE: (48, 48), WIDE: (60, 40), TALL: (40, 60)}
FIRST, LAST = TALL, WIDE  # a range that covers the three


class SerialWorkers(RayCluster):
    """The resource of the workers, with the executor that needs none."""

    @contextlib.contextmanager
    def open_executor(self) -> Iterator[Executor]:
        yield SerialExecutor()


class SmallDataset:
    """A dataset in a folder: pictures, a manifest that grows, a YAML file.

    Args:
        folder: New, or empty.
        name: Of the dataset.
        yaml: Further fields of its YAML.
    """

    def __init__(self, folder: Path, name: str = "small", yaml: str = "") -> None:
        self.folder = folder
        self.name = name
        self.keys = DatasetKeys(name)
        self.manifest = folder / f"{name}.jsonl"
        self.yaml = folder / f"{name}.yaml"
        (folder / "images").mkdir(parents=True, exist_ok=True)
        self.manifest.touch()
        self.yaml.write_text(
            f"name: {name}\nmanifest: {name}.jsonl\noutput_prefix: {name}_parquet\n"
            f"mapping: {{base_uri: images/}}\n{yaml}"
        )

    def add(self, bucket: str, count: int = 2, **fields: object) -> list[str]:
        """Append pictures of a bucket to the manifest; returns their file names."""
        start = len(self.manifest.read_text().splitlines())
        names = [f"{self.name}_{start + number}.png" for number in range(count)]
        for number, name in enumerate(names, start):
            Image.new("RGB", SIZES_PX[bucket], (number % 256, 99, 7)).save(self.folder / "images" / name)
        self._append({"s3_image_path": name, **fields} for name in names)
        return names

    def add_line(self, line: Mapping[str, object] | str) -> None:
        """Append one line as it is."""
        self._append([line])

    def _append(self, lines: Any) -> None:
        with self.manifest.open("a") as file:
            for line in lines:
                file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")

    def definitions(self, workers: RayCluster | None = None) -> dg.Definitions:
        """Build the definitions, by default without Ray."""
        shared = build_shared_definitions(workers or SerialWorkers())
        return dg.Definitions.merge(build_dataset_definitions(load_dataset(self.yaml)), shared)

    def run(
        self,
        instance: dg.DagsterInstance,
        first: str = FIRST,
        last: str = LAST,
        *,
        options: Mapping[str, object] | None = None,
        assets: list[dg.AssetKey] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Run the dataset's job over a range of buckets; a failure is in the result."""
        job = self.definitions().resolve_job_def(self.keys.job)
        return job.execute_in_process(
            instance=instance,
            tags=range_tags(first, last),
            asset_selection=assets,
            run_config={"resources": {"run_options": {"config": dict(options or {})}}},
            raise_on_error=False,
        )

    def shard(self, bucket: str, number: int = 0) -> Path:
        """Path of a main shard."""
        return self.folder / f"{self.name}_parquet" / bucket / f"shard-{number:06d}.parquet"

    def sidecar(self, bucket: str, number: int = 0) -> Path:
        """Path of a sidecar."""
        return self.folder / f"{self.name}_parquet_sidecar" / bucket / f"shard-{number:06d}.parquet"


def materialized(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> list[str | None]:
    """Partitions of an asset that the run materialised, in the order of the events."""
    return [
        event.partition
        for event in result.all_events
        if event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION and event.asset_key == key
    ]


def evaluations(result: dg.ExecuteInProcessResult) -> list[dg.AssetCheckEvaluation]:
    """All evaluations of checks in the run."""
    return [
        event.asset_check_evaluation_data
        for event in result.all_events
        if event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION
    ]


def failed_evaluations(result: dg.ExecuteInProcessResult) -> list[tuple[str, str, str | None]]:
    """Asset, check and partition of each failed evaluation."""
    return [(e.asset_key.path[-1], e.check_name, e.partition) for e in evaluations(result) if not e.passed]


def failure_text(result: dg.ExecuteInProcessResult) -> str:
    """What the first failed step says."""
    failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    stated = failures[0].user_failure_data
    return (stated.description or "") if stated else str(failures[0].error)
