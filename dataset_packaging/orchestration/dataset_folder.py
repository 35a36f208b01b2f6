"""A folder of dataset YAML files as one set of definitions, in which a broken file is named and harms no other."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster._check import CheckError

from dataset_packaging.config import load_dataset
from dataset_packaging.errors import ConfigError
from dataset_packaging.orchestration.component import PackagedDataset
from dataset_packaging.orchestration.keys import safe_key_part

YAML_SUFFIXES = (".yaml", ".yml")
BROKEN_GROUP = "broken_datasets"


@dataclass(frozen=True, slots=True)
class BrokenDataset:
    """A file that is no dataset, and why, in one line."""

    path: Path
    reason: str


def load_dataset_folder(folder: Path) -> dg.Definitions:
    """Build the definitions of every YAML file that stands in the folder itself, in order of their names.

    A file that cannot be used becomes an asset `broken_datasets/<file>` which says why, and fails with the same words
    when it is materialised. A folder that does not exist has no datasets.
    """
    loaded, broken = read_dataset_folder(folder)
    placeholders = dg.Definitions(assets=[_build_placeholder(file) for file in broken])
    return dg.Definitions.merge(*loaded.values(), placeholders)


def read_dataset_folder(folder: Path) -> tuple[dict[str, dg.Definitions], list[BrokenDataset]]:
    """Read the folder: definitions by dataset name, and the files that cannot be used."""
    loaded: dict[str, dg.Definitions] = {}
    files: dict[str, Path] = {}
    broken: list[BrokenDataset] = []
    for path in _yaml_files(folder):
        try:
            component = PackagedDataset(dataset=load_dataset(path))
            definitions = component.build_defs()
        except (ConfigError, dg.DagsterError, CheckError) as error:
            broken.append(BrokenDataset(path, " ".join(str(error).split())))
            continue
        name = component.dataset.name
        if name in loaded:
            reason = f"{path}: name: {name!r} is already the name of the dataset in {files[name].name}"
            broken.append(BrokenDataset(path, reason))
            continue
        loaded[name], files[name] = definitions, path
    return loaded, broken


def _yaml_files(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    yield from sorted(path for path in folder.iterdir() if path.suffix in YAML_SUFFIXES and path.is_file())


def _build_placeholder(file: BrokenDataset) -> dg.AssetsDefinition:
    @dg.asset(
        key=dg.AssetKey([BROKEN_GROUP, safe_key_part(file.path.name)]),
        group_name=BROKEN_GROUP,
        kinds={"yaml"},
        description=f"**This file is not loaded.** {file.reason}\n\nMend it, then reload the definitions.",
        metadata={"dataset YAML": dg.MetadataValue.path(file.path), "error": dg.MetadataValue.text(file.reason)},
    )
    def report() -> None:
        raise dg.Failure(file.reason, allow_retries=False)

    return report
