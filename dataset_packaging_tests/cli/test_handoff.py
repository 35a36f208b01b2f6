"""`handoff`: written where every check holds, recorded as a run of its asset; resized sets on the way."""

from pathlib import Path

import pytest

from dataset_packaging.orchestration.instance import open_instance
from dataset_packaging.orchestration.keys import DatasetKeys
from dataset_packaging_tests.cli.command import Finished, run_command
from dataset_packaging_tests.small_dataset import YAML, write_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path, 9)
    (tmp_path / "small.yaml").write_text(YAML + "resized: [512]\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> Finished:
    return run_command(*arguments, cwd=folder, env={"DAGSTER_HOME": str(folder / "dagster")})


def test_pack_resizes_and_handoff_tells_it(folder: Path):
    packed = run(folder, "pack", "small.yaml", "--json")
    assert packed.exit_code == 0, packed.stderr
    assert packed.json["resized"]["512"]["shards_written"] == 3
    ended = run(folder, "handoff", "small.yaml", "--json")
    assert ended.exit_code == 0, ended.stderr
    told = ended.json
    assert (told["handed_off"], told["rows"], told["shards"], told["findings"]) == (True, 9, 3, [])
    assert f"{told['prefix']}HANDOFF.json" in told["files"]
    with open_instance(folder / "dagster") as instance:
        (record,) = instance.fetch_materializations(DatasetKeys("small").handoff, limit=9).records
        assert record.run_id == told["run_id"]
        assert record.asset_materialization is not None
        assert "card" in record.asset_materialization.metadata

    assert "nothing to do" in run(folder, "pack", "small.yaml").stdout
    (folder / "out/main_resized/512/0_512/10000/shard-000000.parquet").unlink()
    refused = run(folder, "handoff", "small.yaml", "--no-progress")
    assert refused.exit_code == 1
    assert "resized_state" in refused.stdout
    assert refused.error_line.startswith(
        "dataset-packaging handoff: small is not handed off: resized_state: 0_512/10000"
    )
    assert not (folder / "out" / "work" / "handoff" / "HANDOFF.json").exists()
    again = run(folder, "pack", "small.yaml", "--json")
    assert (again.exit_code, again.json["resized"]["512"]["shards_written"], again.json["shards_written"]) == (0, 1, 0)


def test_what_was_never_packed_cannot_be_handed_off(folder: Path):
    ended = run(folder, "handoff", "small.yaml")
    assert ended.exit_code == 2
    assert "small has no plan yet" in ended.error_line
