"""What a folder of dataset files becomes in Dagster: keys, checks, jobs, schedules; and what a broken file becomes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest

from dataset_packaging.config import load_dataset, read_runtime
from dataset_packaging.errors import ConfigError
from dataset_packaging.orchestration.definitions import build_definitions
from dataset_packaging.orchestration.keys import BUCKET_KEYS
from dataset_packaging.orchestration.resources import S3Access, apply_s3_resource

ROOT = Path(__file__).parents[2]

PHOTOS = """\
name: photos
manifest: [entries.jsonl, more.jsonl.zst]
output_prefix: s3://bucket/photos_parquet
description: Photographs of birches
owners: [team:vision, jane@example.org]
tags: {use: training}
licence: CC0-1.0
confidentiality: public
schedule: {cron: "0 2 * * *", timezone: Europe/Vienna}
trigger: on_change
sidecar:
  reference: s3://bucket/reference_sidecar/
  schema_extensions: [{name: filter_clarity, type: "struct<score: double, pass: bool>"}]
  merge: [{source: s3://bucket/scores.parquet, columns: [aesthetic_score]}]
  crops: {resized: [{size: 512, prefix: s3://bucket/photos_512}]}
"""


def _load(folder: Path) -> dg.RepositoryDefinition:
    return build_definitions(read_runtime({"DATASETS_DIR": str(folder), "HOME": str(folder)})).get_repository_def()


@pytest.fixture
def repository(tmp_path: Path) -> dg.RepositoryDefinition:
    (tmp_path / "photos.yaml").write_text(PHOTOS)
    return _load(tmp_path)


def test_lineage_goes_from_the_source_to_the_sidecars(repository: dg.RepositoryDefinition):
    lineage = {
        key.to_user_string(): sorted(parent.to_user_string() for parent in repository.asset_graph.get(key).parent_keys)
        for key in repository.asset_graph.get_all_asset_keys()
    }
    assert lineage == {
        "photos/source": [],
        "photos/sidecar_reference": [],
        "photos/merge_source_0": [],
        "photos/resized_512": [],
        "photos/manifest": ["photos/source"],
        "photos/shards": ["photos/manifest"],
        "photos/sidecars": [
            "photos/merge_source_0",
            "photos/resized_512",
            "photos/shards",
            "photos/sidecar_reference",
        ],
        "photos/handoff": ["photos/shards", "photos/sidecars"],
    }
    executable = {key.to_user_string() for key in repository.asset_graph.materializable_asset_keys}
    assert executable == {"photos/manifest", "photos/shards", "photos/sidecars", "photos/handoff"}


def test_partitions_are_buckets_and_a_run_takes_a_range(repository: dg.RepositoryDefinition):
    graph = repository.asset_graph
    for name in ("shards", "sidecars"):
        node = graph.get(dg.AssetKey(["photos", name]))
        assert node.partitions_def is not None
        assert tuple(node.partitions_def.get_partition_keys()) == BUCKET_KEYS
        assert node.backfill_policy == dg.BackfillPolicy.single_run()
    assert graph.get(dg.AssetKey(["photos", "manifest"])).partitions_def is None


def test_checks(repository: dg.RepositoryDefinition):
    graph = repository.asset_graph
    found = {
        f"{key.asset_key.path[-1]} {key.name}": (graph.get(key).blocking, graph.get(key).partitions_def is not None)
        for key in graph.asset_check_keys
    }
    assert found == {
        "manifest rows_conserved": (True, False),
        "manifest unique_keys": (True, False),
        "shards schema": (True, True),
        "shards bucket_membership": (True, True),
        "shards rows_conserved": (True, True),
        "shards contiguous_shards": (True, True),
        "shards reject_fraction": (False, False),
        "shards ledger_balance": (True, False),
        "sidecars column_names": (True, True),
        "sidecars row_alignment": (True, True),
        "sidecars meta_info_json": (True, True),
    }


def test_job_schedule_and_sensor(repository: dg.RepositoryDefinition):
    job = repository.get_job("package_photos")
    assert job.tags == {"dataset_packaging/dataset": "photos"}
    selected = {key.path[-1] for key in job.asset_layer.selected_asset_keys}
    assert selected == {"manifest", "shards", "sidecars", "handoff"}
    (schedule,) = repository.schedule_defs
    assert (schedule.name, schedule.cron_schedule, schedule.execution_timezone, schedule.job_name) == (
        "package_photos_schedule",
        "0 2 * * *",
        "Europe/Vienna",
        "package_photos",
    )
    (sensor,) = repository.sensor_defs
    assert (sensor.name, sensor.job_name) == ("package_photos_on_change", "package_photos")


def test_the_yaml_describes_its_assets(repository: dg.RepositoryDefinition):
    node = repository.asset_graph.get(dg.AssetKey(["photos", "sidecars"]))
    assert list(node.owners) == ["team:vision", "jane@example.org"]
    assert node.tags["use"] == "training"
    assert node.kinds == {"parquet", "s3"}
    assert node.group_name == "photos"
    assert (node.description or "").startswith("Photographs of birches\n")
    assert node.metadata["licence"].value == "CC0-1.0"
    assert node.metadata["confidentiality"].value == "public"
    columns = {column.name: column for column in node.metadata["dagster/column_schema"].value.columns}
    assert columns["filter_clarity"].type == "struct<score: double, pass: bool>"
    assert columns["meta_info"].description
    assert "image" not in columns
    assert not columns["image_key"].constraints.nullable


def test_all_assets_of_a_dataset_share_a_pool(repository: dg.RepositoryDefinition):
    """DAG-06: one dataset never has two runs at once, however they are launched."""
    pools = {node.name: node.definition.pool for node in repository.get_job("package_photos").nodes}
    assert set(pools.values()) == {"dataset_photos"}


def test_code_versions_follow_what_reaches_the_bytes(tmp_path: Path):
    versions = []
    for text in (PHOTOS, PHOTOS.replace("Photographs", "Pictures"), PHOTOS + "images: {orientation: stored}\n"):
        (tmp_path / "photos.yaml").write_text(text)
        versions.append(_load(tmp_path).asset_graph.get(dg.AssetKey(["photos", "shards"])).code_version)
    described_anew, turned = versions[1], versions[2]
    assert described_anew == versions[0]
    assert turned != versions[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: broken\nmanifest: x.jsonl\noutput_prefix: out\ncolour: red\n", "colour"),
        ("name: broken\nmanifest: 16:9\noutput_prefix: [a]\n", "output_prefix"),
        ("name: [", "this is no YAML"),
        ("name: photos\nmanifest: x.jsonl\noutput_prefix: out\n", "already the name of the dataset in photos.yaml"),
        ("", "expected fields"),
    ],
)
def test_a_broken_file_is_named_and_takes_no_other_down(tmp_path: Path, text: str, reason: str):
    (tmp_path / "photos.yaml").write_text(PHOTOS)
    (tmp_path / "zebra crossing.yml").write_text(text)
    repository = _load(tmp_path)
    assert repository.has_job("package_photos")
    (key,) = [key for key in repository.asset_graph.get_all_asset_keys() if key.path[0] == "broken_datasets"]
    node = repository.asset_graph.get(key)
    assert key.path[1].startswith("zebra_crossing.yml-")
    assert reason in (node.description or "")
    assert node.metadata["dataset YAML"].value == str(tmp_path / "zebra crossing.yml")


def test_materialising_a_broken_file_fails_with_the_reason(tmp_path: Path):
    (tmp_path / "broken.yaml").write_text("name: broken\n")
    definitions = build_definitions(read_runtime({"DATASETS_DIR": str(tmp_path), "HOME": str(tmp_path)}))
    job = definitions.resolve_implicit_global_asset_job_def()
    with pytest.raises(dg.Failure, match=r"broken\.yaml.*manifest"):
        job.execute_in_process()


def test_files_below_the_folder_and_of_other_kinds_are_not_datasets(tmp_path: Path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "inner.yaml").write_text("name: broken\n")
    (tmp_path / "notes.txt").write_text("name: broken\n")
    assert set(_load(tmp_path).asset_graph.get_all_asset_keys()) == set()


def test_a_folder_that_does_not_exist_has_no_datasets(tmp_path: Path):
    assert set(_load(tmp_path / "nowhere").asset_graph.get_all_asset_keys()) == set()


def test_200_files_load_in_less_than_5_seconds(tmp_path: Path):
    for number in range(200):
        (tmp_path / f"photos_{number}.yaml").write_text(
            PHOTOS.replace("name: photos", f"name: photos_{number}").replace("photos_parquet", f"out_{number}")
        )
    started_s = time.process_time()
    repository = _load(tmp_path)
    assert time.process_time() - started_s < 5
    assert len(repository.asset_graph.materializable_asset_keys) == 800


def test_the_s3_resource_fills_in_what_the_yaml_leaves_open(tmp_path: Path):
    (tmp_path / "photos.yaml").write_text(PHOTOS + "s3: {region: eu-west-1}\n")
    dataset = load_dataset(tmp_path / "photos.yaml")
    reached = apply_s3_resource(dataset, S3Access(region_name="us-east-1", endpoint_url="https://store.example"))
    assert (reached.s3.region, reached.s3.endpoint) == ("eu-west-1", "https://store.example")
    assert apply_s3_resource(dataset, S3Access()) == dataset
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID"):
        apply_s3_resource(dataset, S3Access(aws_access_key_id="AKIA"))


def _dg(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "DATASETS_DIR": str(folder), "DAGSTER_HOME": ""}
    return subprocess.run(
        [str(Path(sys.executable).with_name("dg")), *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_dg_checks_and_lists_the_definitions(tmp_path: Path):
    (tmp_path / "photos.yaml").write_text(PHOTOS)
    checked = _dg(tmp_path, "check", "defs")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "All definitions loaded successfully" in checked.stdout + checked.stderr
    listed = _dg(tmp_path, "list", "defs", "--json")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert {asset["asset_key"] for asset in json.loads(listed.stdout)["assets"]} >= {"photos/manifest", "photos/shards"}
