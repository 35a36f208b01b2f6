"""The component by itself: in a `defs.yaml` of any Dagster project it is the same as a dataset file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from dataset_packaging.config import dataset_json_schema, load_dataset
from dataset_packaging.errors import ConfigError
from dataset_packaging.orchestration.component import PackagedDataset
from dataset_packaging.orchestration.definitions import build_shared_definitions
from dataset_packaging.orchestration.resources import RayCluster

# Dagster's own use of pydantic, and of what it calls beta itself.
pytestmark = pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated", "ignore::dagster.BetaWarning")

FIELDS = """\
name: photos
manifest: entries.jsonl
output_prefix: out/photos
mapping: {direct: {full_description: {from: [caption, meta.caption], cast: list_string}, keywords: tags}}
access_grants: {account_id: "012345678901"}
"""


@contextmanager
def _in_a_project(fields: str) -> Iterator[tuple[Path, dg.Component, dg.Definitions]]:
    """Put the fields into the defs.yaml of a project and load it."""
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(
            PackagedDataset,
            defs_yaml_contents={
                "type": "dataset_packaging.orchestration.component.PackagedDataset",
                "attributes": yaml.safe_load(fields),
            },
        )
        with sandbox.load_component_and_build_defs(folder) as (component, definitions):
            yield folder, component, definitions


def test_its_attributes_are_the_fields_of_the_dataset_yaml():
    model = PackagedDataset.get_model_cls()
    assert model is not None
    assert model.model_json_schema() == dataset_json_schema()


def test_a_defs_yaml_makes_the_same_dataset_as_a_file_beside_it():
    with _in_a_project(FIELDS) as (folder, component, definitions):
        (folder / "photos.yaml").write_text(FIELDS)
        assert isinstance(component, PackagedDataset)
        assert component.dataset.model_dump() == load_dataset(folder / "photos.yaml").model_dump()
        served = dg.Definitions.merge(definitions, build_shared_definitions(RayCluster()))
        keys = {key.to_user_string() for key in served.resolve_all_asset_keys()}
    assert keys == {f"photos/{name}" for name in ("source", "manifest", "shards", "sidecars", "handoff")}


@pytest.mark.parametrize(
    ("line", "field"),
    [("name: Bad", "name"), ("colour: red", "colour"), ("packing: {shard_size: '1e6'}", "shard_size")],
)
def test_a_wrong_attribute_is_named(line: str, field: str):
    """DAG-01: a wrong type or name is refused, never taken for something else."""
    with pytest.raises(Exception, match="Error while loading component") as caught, _in_a_project(FIELDS + line + "\n"):
        pass
    assert isinstance(caught.value.__cause__, ConfigError)
    assert field in str(caught.value.__cause__)


def test_dagster_shows_what_the_component_is():
    assert "135 buckets" in (PackagedDataset.get_description() or "")
