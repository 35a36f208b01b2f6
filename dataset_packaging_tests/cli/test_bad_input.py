"""What ends a command before it has written anything: one line that says what to do, and 2 or 3."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dataset_packaging_tests.cli.command import COMMAND, Finished, environment, run_command

YAML = "name: odd\nmanifest: rows.jsonl\noutput_prefix: out\n"
PREFIXES = ("output_prefix", "sidecar_prefix", "work_prefix")
WITHOUT_PRIVILEGES = """
import ctypes, os, sys
DROP_FROM_BOUNDING_SET, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2
if os.geteuid() == 0:
    for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
        assert ctypes.CDLL(None).prctl(DROP_FROM_BOUNDING_SET, capability, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command for which permissions hold: root may read and write everything otherwise."""


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "odd.yaml").write_text(YAML)
    (tmp_path / "rows.jsonl").write_text('{"s3_path": "/x.jpg"}\n')
    return tmp_path


def refused(folder: Path, *arguments: str) -> Finished:
    """Runs a command that must write nothing."""
    before = files_below(folder)
    ended = run_command(*arguments, cwd=folder, env={"DAGSTER_HOME": str(folder / "home")})
    assert files_below(folder) == before
    return ended


def refused_without_privileges(folder: Path, *arguments: str, home: str = "home") -> Finished:
    """Runs a command that must write nothing, under the permissions of the files."""
    before = files_below(folder)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PRIVILEGES, *COMMAND, *arguments],
        cwd=folder,
        env=environment(DAGSTER_HOME=str(folder / home)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert files_below(folder) == before
    return Finished(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "odd.yaml"),
        ("rejects", "odd.yaml"),
        ("handoff", "odd.yaml"),
        ("export", "hf", "odd.yaml", "there"),
        ("export", "simpletuner", "odd.yaml", "there"),
        ("inspect", "out"),
        ("schema", "diff", "reference.json", "odd.yaml"),
        ("init", "absent.jsonl"),
        ("ui", "--datasets-dir", "absent"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_command_that_has_nothing_to_look_at_yet_says_what_is_missing(folder: Path, arguments: tuple[str, ...]):
    ended = refused(folder, *arguments)
    assert ended.exit_code == 2
    assert any(place in ended.error_line for place in (str(folder), "absent"))


@pytest.mark.parametrize("command", ["plan", "pack"])
@pytest.mark.parametrize(
    ("manifest", "text", "told"),
    [
        ("absent.jsonl", None, "nothing is found at"),
        ("entry-*.jsonl", None, "nothing is found at"),
        ("folder", None, "nothing is found at"),
        ("empty.jsonl", "", "the manifest is empty"),
        ("blank.jsonl", "\n \n\n", "the manifest is empty"),
        ("rows.parquet", "PAR1\x15\x04", "does not hold JSON lines: this is Parquet"),
        ("rows.zip", "PK\x03\x04", "does not hold JSON lines: this is a zip archive"),
    ],
)
def test_a_manifest_that_is_not_there_or_empty(folder: Path, command: str, manifest: str, text: str | None, told: str):
    (folder / "folder").mkdir()
    if text is not None:
        (folder / manifest).write_text(text)
    (folder / "odd.yaml").write_text(YAML.replace("rows.jsonl", manifest))
    ended = refused(folder, command, "odd.yaml")
    assert ended.exit_code == 2
    assert told in ended.error_line
    assert manifest in ended.error_line


@pytest.mark.parametrize("command", ["plan", "pack"])
def test_a_reference_that_is_not_there(folder: Path, command: str):
    (folder / "odd.yaml").write_text(f"{YAML}sidecar: {{reference: absent/}}\n")
    ended = refused(folder, command, "odd.yaml")
    assert ended.exit_code == 2
    assert "/absent/" in ended.error_line


def write_yaml(folder: Path, field: str, place: str) -> None:
    """Writes a YAML whose outputs stand below `open`, but for one."""
    places = {f"{name}_prefix": f"open/{name}" for name in ("output", "sidecar", "work")} | {field: place}
    (folder / "odd.yaml").write_text(json.dumps({"name": "odd", "manifest": "rows.jsonl", **places}))


@pytest.mark.parametrize("field", PREFIXES)
def test_a_file_in_the_place_of_a_prefix(folder: Path, field: str):
    (folder / "a_file").write_text("")
    write_yaml(folder, field, "a_file/below")
    ended = refused(folder, "pack", "odd.yaml")
    assert ended.exit_code == 2
    assert f"{field}: file://{folder}/a_file/below: {folder}/a_file is no folder" in ended.error_line


@pytest.mark.parametrize("command", ["plan", "pack"])
@pytest.mark.parametrize("name", ["rows.jsonl", "odd.yaml"])
def test_a_file_that_may_not_be_read(folder: Path, command: str, name: str):
    (folder / name).chmod(0)
    ended = refused_without_privileges(folder, command, "odd.yaml")
    assert ended.exit_code == 3
    assert name in ended.error_line
    assert "Permission denied" in ended.error_line


@pytest.mark.parametrize("field", PREFIXES)
def test_a_prefix_that_may_not_be_written_to(folder: Path, field: str):
    """Not after an hour of packing: before the first file is written anywhere."""
    (folder / "closed").mkdir(mode=0o555)
    write_yaml(folder, field, "closed/below")
    ended = refused_without_privileges(folder, "pack", "odd.yaml")
    assert ended.exit_code == 3
    assert f"{folder}/closed/below: Permission denied; check the permissions of {folder}/closed" in ended.error_line


def test_a_dagster_home_that_may_not_be_written_to(folder: Path):
    (folder / "closed").mkdir(mode=0o555)
    ended = refused_without_privileges(folder, "pack", "odd.yaml", home="closed/home")
    assert ended.exit_code == 3
    assert f"DAGSTER_HOME: {folder}/closed/home cannot be used: Permission denied" in ended.error_line
