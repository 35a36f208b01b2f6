"""`export hf` on a packed dataset."""

from pathlib import Path

import pytest

from dataset_packaging_tests.cli.command import run_command
from dataset_packaging_tests.small_dataset import YAML, pack, rewrite, sidecar_paths, small_dataset, write_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path, 9)
    (tmp_path / "small.yaml").write_text(YAML)
    pack(small_dataset(tmp_path))
    return tmp_path


def test_a_dataset_becomes_a_repository(folder: Path):
    ended = run_command("export", "hf", "small.yaml", "hub", "--json", cwd=folder)
    assert ended.exit_code == 0, ended.stderr
    assert (ended.json["rows"], ended.json["files"], ended.json["files_copied"]) == (9, 6, 6)
    assert (folder / "hub/README.md").read_text().startswith("---\npretty_name: small\n")
    assert len(list((folder / "hub/data").rglob("*.parquet"))) == 3


def test_findings_end_with_1_and_leave_nothing(folder: Path):
    rewrite(sidecar_paths(folder)[0], lambda table: table.slice(1))
    ended = run_command("export", "hf", "small.yaml", "hub", cwd=folder)
    assert ended.exit_code == 1
    assert "small is not handed off" in ended.stderr
    assert not (folder / "hub").exists()
