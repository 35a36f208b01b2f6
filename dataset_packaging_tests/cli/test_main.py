"""Arguments, exit codes and errors, by the real command."""

import subprocess
import sys
from pathlib import Path

import pytest

from dataset_packaging_tests.cli.command import COMMAND, ROOT, environment, run_command

COMMANDS = ("init", "plan", "pack", "verify", "rejects", "inspect", "schema", "handoff", "export", "ui")
HEAVY = {"dagster", "ray", "pyarrow", "pydantic", "PIL", "rich", "yaml", "numpy", "boto3", "polars"}


def test_help_names_every_command(tmp_path: Path):
    shown = run_command("--help", cwd=tmp_path)
    assert shown.exit_code == 0
    assert shown.stderr == ""
    assert [name for name in COMMANDS if f"\n    {name} " not in shown.stdout] == []
    assert max(map(len, shown.stdout.splitlines())) <= 100


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_says_what_its_options_do(command: str, tmp_path: Path):
    shown = run_command(command, "--help", cwd=tmp_path)
    assert shown.exit_code == 0
    assert "--json" in shown.stdout
    assert "--debug" in shown.stdout


def test_help_loads_nothing_that_takes_time():
    program = "import sys; from dataset_packaging.cli.main import main; from dataset_packaging.cli.parser import build_parser; build_parser(); print(*{name.split('.')[0] for name in sys.modules})"  # noqa: E501
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert HEAVY & set(loaded.stdout.split()) == set()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "COMMAND"),
        (("pakc", "x.yaml"), "pakc"),
        (("pack",), "DATASET.yaml"),
        (("pack", "x.yaml", "--limit", "0"), "--limit"),
        (("pack", "x.yaml", "--limit", "1e6"), "--limit"),
        (("init", "x.jsonl", "--sample-rows", "-3"), "--sample-rows"),
        (("ui", "--port", "99999"), "--port"),
        (("verify", "x.yaml", "--depp"), "--depp"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_wrong(arguments: tuple[str, ...], told: str, tmp_path: Path):
    ended = run_command(*arguments, cwd=tmp_path)
    assert ended.exit_code == 2
    assert told in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("command", ["plan", "pack", "verify", "rejects"])
def test_a_missing_dataset_file_is_one_line_and_2(command: str, tmp_path: Path):
    ended = run_command(command, "absent.yaml", cwd=tmp_path)
    assert ended.exit_code == 2
    assert "absent.yaml" in ended.error_line
    assert ended.stdout == ""


@pytest.mark.parametrize("command", ["plan", "pack", "verify", "rejects"])
def test_a_wrong_dataset_file_is_one_line_and_2_before_anything_is_written(command: str, tmp_path: Path):
    """DAG-01."""
    (tmp_path / "entry.jsonl").write_text('{"s3_path": "/x.jpg"}\n')
    (tmp_path / "odd.yaml").write_text(
        "name: odd\nmanifest: entry.jsonl\noutput_prefix: out\npacking: {shard_size: 16:9}\n"
    )
    ended = run_command(command, "odd.yaml", cwd=tmp_path)
    assert ended.exit_code == 2
    assert "odd.yaml:4" in ended.error_line
    assert "packing.shard_size" in ended.error_line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entry.jsonl", "odd.yaml"]


def test_a_missing_folder_of_datasets_is_one_line_and_2(tmp_path: Path):
    ended = run_command("ui", "--datasets-dir", "absent", cwd=tmp_path, env={"DAGSTER_HOME": str(tmp_path / "home")})
    assert ended.exit_code == 2
    assert "absent" in ended.error_line


def test_an_error_is_also_told_to_machines(tmp_path: Path):
    ended = run_command("plan", "absent.yaml", "--json", cwd=tmp_path)
    assert ended.exit_code == 2
    assert ended.json["exit_code"] == 2
    assert ended.json["command"] == "plan"
    assert ended.json["error"]["type"] == "ConfigError"
    assert ended.json["error"]["message"] in ended.error_line


@pytest.mark.parametrize("arguments", [("--debug", "plan", "absent.yaml"), ("plan", "absent.yaml", "--debug")])
def test_debug_adds_the_traceback(arguments: tuple[str, ...], tmp_path: Path):
    ended = run_command(*arguments, cwd=tmp_path)
    assert ended.exit_code == 2
    assert "Traceback (most recent call last)" in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("dataset-packaging plan: error: ")


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path):
    manifest = tmp_path / "many.jsonl"
    fields = ", ".join(f'"field_{number}": "{"x" * 100}"' for number in range(2000))
    manifest.write_text(f'{{"s3_path": "/x.jpg", {fields}}}\n')
    with subprocess.Popen(
        [*COMMAND, "init", "many.jsonl", "--no-fetch", "--json", "-o", "-"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        told = process.stderr.read().decode()
        assert process.wait(60) == 141
    assert "Traceback" not in told
    assert "BrokenPipe" not in told
