"""`pack` and the commands that look at what it did, by the real command, Ray and Dagster."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_packaging_tests.cli.command import COMMAND, Finished, environment, run_command

ROWS = 12
CUT, NO_PATH, REPEATED = 3, 5, 7


@dataclass(frozen=True)
class Packed:
    """A dataset that was packed once.

    Attributes:
        folder: Holds `photos.yaml`, its manifest and all that was written.
        first: How the first `pack --json` ended.
    """

    folder: Path
    first: Finished

    def run(self, *arguments: str) -> Finished:
        """Run a command in the folder."""
        return run_command(*arguments, cwd=self.folder, env={"DAGSTER_HOME": str(self.folder / "dagster")})


def _write_dataset(folder: Path, *, limit: float = 0.5, shard_size: int = 4) -> None:
    images = folder / "images"
    images.mkdir(parents=True)
    lines = []
    for number in range(ROWS):
        path = images / f"{number}.jpg"
        Image.effect_noise((64 + 8 * number, 64), 90).convert("RGB").save(path, quality=90)
        row: dict[str, object] = {"id": f"key-{number}", "s3_path": path.name, "caption": f"number {number}"}
        if number == CUT:
            path.write_bytes(path.read_bytes()[:-400])
        if number == NO_PATH:
            row["s3_path"] = None
        if number == REPEATED:
            row["id"] = f"key-{number - 1}"
        lines.append(json.dumps(row))
    (folder / "photos.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "photos.yaml").write_text(
        "name: photos\nmanifest: photos.jsonl\noutput_prefix: packed/shards\nsidecar_prefix: packed/sidecars\n"
        "work_prefix: packed/work\n"
        "mapping: {base_uri: images/, direct: {image_key: id, full_description: caption}}\n"
        f"images: {{max_rejected_fraction: {limit}}}\npacking: {{shard_size: {shard_size}}}\n"
    )


def _pack(folder: Path) -> Packed:
    _write_dataset(folder)
    first = run_command("pack", "photos.yaml", "--json", cwd=folder, env={"DAGSTER_HOME": str(folder / "dagster")})
    assert first.exit_code == 0, first.stderr
    return Packed(folder, first)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """A dataset that no test changes, or that it puts in order again."""
    return _pack(tmp_path_factory.mktemp("packed"))


def _shards(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted((folder / "packed" / "shards").rglob("*.parquet"))
    }


def test_the_summary_accounts_for_every_row(packed: Packed):
    summary = packed.first.json
    assert (summary["command"], summary["exit_code"], summary["up_to_date"]) == ("pack", 0, False)
    assert summary["rows"] == ROWS
    assert summary["packed"] == ROWS - 3
    assert summary["rejected"] == {"missing_path": 1, "truncated_image": 1}
    assert (summary["duplicates"], summary["pending"]) == (1, 0)
    assert summary["failed_checks"] == []
    assert sum(bucket["rows"] for bucket in summary["buckets"].values()) == ROWS
    assert summary["shards"] == len(_shards(packed.folder)) == summary["shards_written"]
    assert summary["sidecars_written"] == summary["shards"]
    rows = [pq.read_metadata(path).num_rows for path in (packed.folder / "packed" / "shards").rglob("*.parquet")]
    assert sum(rows) == ROWS - 3


def test_the_plan_is_held_against_what_came_out(packed: Packed, tmp_path: Path):
    _write_dataset(tmp_path)
    plan = run_command("plan", "photos.yaml", "--json", cwd=tmp_path).json
    told = packed.first.json["prediction"]
    predicted, actual = told["predicted"], told["actual"]
    assert predicted["shards"] == plan["shards"] == actual["shards"]
    assert predicted["bytes"] == pytest.approx(plan["estimated_bytes"], rel=0.05)  # the pictures are noise
    assert predicted["buckets"] == {key: b["rows"] for key, b in plan["buckets"].items() if b["rows"]}
    assert (predicted["rows"], actual["rows"]) == (ROWS - 2, ROWS - 3)
    assert actual["bytes"] == packed.first.json["bytes"]
    assert told["rows_in_place"] == ROWS - 3
    assert predicted["worker_seconds_low"] <= predicted["worker_seconds"] <= predicted["worker_seconds_high"]
    assert actual["worker_seconds"] > 0
    assert 0 < actual["dollars"] < 0.01
    assert 0 < predicted["dollars"] < 0.01
    assert plan["cpu_seconds"]["low"] <= plan["cpu_seconds"]["likely"] <= plan["cpu_seconds"]["high"]


def test_progress_without_a_terminal_is_lines(packed: Packed):
    stages = [line.split(":")[0] for line in packed.first.stderr.splitlines()]
    assert {"manifest", "shards", "sidecars"} <= set(stages) <= {"starting", "manifest", "shards", "sidecars", "verify"}


def test_packing_again_does_nothing_and_says_so(packed: Packed):
    before = _shards(packed.folder)
    started_s = time.monotonic()
    again = packed.run("pack", "photos.yaml")
    assert (again.exit_code, again.stderr) == (0, "")
    assert "photos is up to date" in again.stdout
    assert "nothing to do" in again.stdout
    assert _shards(packed.folder) == before
    assert packed.run("pack", "photos.yaml", "--json").json["run_ids"] == []
    assert time.monotonic() - started_s < 60


def test_what_is_up_to_date_needs_neither_ray_nor_dagster(packed: Packed):
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "pack", "photos.yaml"],
        cwd=packed.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    roots = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in loaded.stderr.splitlines()}
    assert "pyarrow" in roots
    assert {"ray", "dagster", "boto3"} & roots == set()


def test_the_plan_says_what_is_kept(packed: Packed):
    plan = packed.run("plan", "photos.yaml", "--json")
    assert plan.exit_code == 0
    assert plan.json["unchanged"] is True
    buckets = plan.json["buckets"].values()
    assert sum(bucket["kept"] for bucket in buckets) == plan.json["shards"]
    assert sum(bucket["added"] + bucket["rewritten"] for bucket in buckets) == 0


def test_the_plan_reckons_with_the_prices_of_a_file(tmp_path: Path) -> None:
    _write_dataset(tmp_path)
    prices = tmp_path / "prices.json"
    prices.write_text('{"get_per_1000": 1000, "put_per_1000": 0, "list_per_1000": 0}')
    for more in ((), ("--sample", "5")):
        plan = run_command("plan", "photos.yaml", "--prices", "prices.json", "--json", *more, cwd=tmp_path).json
        assert plan["dollars"] == pytest.approx(plan["requests"]["get"] + plan["requests"]["head"])
    for text, said in (
        ('{"gets": 1}', "unknown field `gets`"),
        ('{"get_per_1000": "dear"}', "Expected `float`, got `str`"),
        ('{"get_per_1000": -1}', ">= 0"),
    ):
        prices.write_text(text)
        refused = run_command("plan", "photos.yaml", "--prices", "prices.json", cwd=tmp_path)
        assert refused.exit_code == 2
        assert "prices.json: " in refused.error_line
        assert said in refused.error_line
        assert "expected dollars for any of get_per_1000" in refused.error_line
    refused = run_command("plan", "photos.yaml", "--prices", "absent.json", cwd=tmp_path)
    assert (refused.exit_code, "absent.json: the price list cannot be read" in refused.error_line) == (2, True)


def test_a_plan_writes_nothing(tmp_path: Path):
    _write_dataset(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    plan = run_command("plan", "photos.yaml", cwd=tmp_path, env={"DAGSTER_HOME": str(tmp_path / "dagster")})
    assert plan.exit_code == 0
    assert "nothing has been written" in plan.stdout
    assert "of one CPU" in plan.stdout
    sampled = run_command("plan", "photos.yaml", "--sample", "8", cwd=tmp_path)
    assert sampled.exit_code == 0, sampled.stderr
    assert "told from 8 rows" in sampled.stdout
    assert sorted(tmp_path.rglob("*")) == before
    assert plan.table_width <= 100


def test_verify_finds_nothing_wrong(packed: Packed):
    for options in ((), ("--deep",)):
        verified = packed.run("verify", "photos.yaml", "--json", *options)
        assert verified.exit_code == 0
        assert verified.json["findings"] == []
        assert verified.json["rows"] == ROWS - 3
    assert verified.json["image_bytes"] > 0


def test_rejects_are_counted_and_shown(packed: Packed):
    shown = packed.run("rejects", "photos.yaml", "--json")
    assert shown.exit_code == 0
    assert shown.json["reasons"] == {"missing_path": 1, "truncated_image": 1, "duplicate_key": 1}
    (cut,) = shown.json["examples"]["truncated_image"]
    assert (cut["image_key"], cut["line"]) == (f"key-{CUT}", CUT + 1)
    only = packed.run("rejects", "photos.yaml", "--reason", "missing_path", "--examples", "0", "--json")
    assert only.json["reasons"] == {"missing_path": 1}
    assert only.json["examples"] == {"missing_path": []}


@pytest.mark.parametrize("command", [("rejects", "--retry"), ("rejects", "--reason"), ("pack", "--retry-rejected")])
def test_an_unknown_reason_is_refused_by_name(command: tuple[str, str], packed: Packed):
    name, option = command
    ended = packed.run(name, "photos.yaml", option, "not_fuond")
    assert ended.exit_code == 2
    assert "'not_fuond'" in ended.error_line
    assert "not_found" in ended.error_line


def test_a_flipped_byte_is_named_by_verify_and_only_its_shard_is_built_again(packed: Packed):
    before = _shards(packed.folder)
    victim = sorted((packed.folder / "packed" / "shards").rglob("*.parquet"))[0]
    damaged = bytearray(victim.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    victim.write_bytes(damaged)

    verified = packed.run("verify", "photos.yaml", "--json")
    assert verified.exit_code == 1
    bucket = "/".join(victim.parts[-3:-1])
    # The ledger on disk still counts the shard's rows as packed: it is named too, as a file that is derived anew.
    findings = [finding for finding in verified.json["findings"] if finding["check"] != "work_files"]
    assert {(finding["bucket"], finding["shard"]) for finding in findings} == {(bucket, 0)}
    shown = packed.run("verify", "photos.yaml")
    assert bucket in shown.stdout
    assert shown.table_width <= 100

    repaired = packed.run("pack", "photos.yaml", "--json")
    assert repaired.exit_code == 0
    assert repaired.json["shards_written"] == 1
    after = _shards(packed.folder)
    assert {name: data for name, (data, _) in after.items()} == {name: data for name, (data, _) in before.items()}
    assert [name for name in after if after[name][1] != before[name][1]] == [str(victim.relative_to(packed.folder))]
    assert packed.run("verify", "photos.yaml").exit_code == 0


def test_a_repaired_source_is_packed_by_retrying_its_reason(tmp_path: Path):
    repaired = _pack(tmp_path)
    (repaired.folder / "images" / f"{CUT}.jpg").write_bytes((repaired.folder / "images" / "0.jpg").read_bytes())
    assert repaired.run("pack", "photos.yaml", "--json").json["up_to_date"] is True
    retried = repaired.run("rejects", "photos.yaml", "--retry", "truncated_image", "--json")
    assert retried.exit_code == 0
    assert retried.json["rejected"] == {"missing_path": 1}
    assert retried.json["packed"] == ROWS - 2
    assert repaired.run("verify", "photos.yaml").exit_code == 0


def test_more_rejects_than_allowed_is_a_finding_of_the_data(tmp_path: Path):
    _write_dataset(tmp_path, limit=0.01)
    env = {"DAGSTER_HOME": str(tmp_path / "dagster")}
    ended = run_command("pack", "photos.yaml", cwd=tmp_path, env=env)
    assert ended.exit_code == 1
    assert "reject_fraction" in ended.stdout
    assert "truncated_image" in ended.stdout
    assert ended.table_width <= 100
    again = run_command("pack", "photos.yaml", "--json", cwd=tmp_path, env=env)
    assert again.exit_code == 1
    assert again.json["up_to_date"] is True
    assert [check["check"] for check in again.json["failed_checks"]] == ["reject_fraction"]


def test_verify_and_rejects_before_the_first_pack_say_what_to_do(tmp_path: Path):
    _write_dataset(tmp_path)
    for command in ("verify", "rejects"):
        ended = run_command(command, "photos.yaml", cwd=tmp_path)
        assert ended.exit_code == 2
        assert "pack" in ended.error_line


@pytest.mark.parametrize(
    ("manifest", "told"), [("absent.jsonl", "absent.jsonl"), ("empty.jsonl", "empty"), ("blank.jsonl", "empty")]
)
def test_a_manifest_without_rows_is_2_and_nothing_is_written(manifest: str, told: str, tmp_path: Path):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "blank.jsonl").write_text("\n\n \n")
    (tmp_path / "photos.yaml").write_text(f"name: photos\nmanifest: {manifest}\noutput_prefix: packed\n")
    ended = run_command(
        "pack", "photos.yaml", "--no-progress", cwd=tmp_path, env={"DAGSTER_HOME": str(tmp_path / "home")}
    )
    assert ended.exit_code == 2
    assert told in ended.error_line
    assert ended.stdout == ""
    assert not list(tmp_path.glob("packed*/**/*"))
    assert not (tmp_path / "home").exists()


def test_a_folder_that_cannot_be_made_is_not_taken_for_another_run(tmp_path: Path):
    (tmp_path / "photos.jsonl").write_text('{"s3_path": "file:///absent.jpg", "width": 8, "height": 8}\n')
    (tmp_path / "photos.yaml").write_text("name: photos\nmanifest: photos.jsonl\noutput_prefix: /proc/nope/packed\n")
    ended = run_command(
        "pack", "photos.yaml", "--no-progress", cwd=tmp_path, env={"DAGSTER_HOME": str(tmp_path / "home")}
    )
    assert ended.exit_code == 3
    assert "/proc/nope" in ended.stderr
    assert "another run" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_pack_says_how_to_go_on_and_goes_on(number: signal.Signals, tmp_path: Path):
    _write_dataset(tmp_path, shard_size=20)
    lines = [json.dumps({"id": f"row-{row}", "s3_path": "11.jpg", "width": 152, "height": 64}) for row in range(6000)]
    (tmp_path / "photos.jsonl").write_text("\n".join(lines) + "\n")
    env = {"DAGSTER_HOME": str(tmp_path / "dagster")}
    with subprocess.Popen(
        [*COMMAND, "pack", "photos.yaml"],
        cwd=tmp_path,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        for line in process.stderr:
            if line.startswith("shards: "):
                break
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode in (130, 143)
    assert stderr.splitlines()[-1] == (
        "dataset-packaging pack: interrupted: finished shards are kept; run the same command again to go on"
    )
    assert stdout == ""
    kept = len(list((tmp_path / "packed" / "work" / "receipts").rglob("*.json")))
    assert 0 < kept < 300
    ended = run_command("pack", "photos.yaml", "--json", cwd=tmp_path, env=env)
    assert ended.exit_code == 0
    assert ended.json["packed"] == 6000
    assert ended.json["shards_written"] == ended.json["shards"] - kept


def test_output_stays_readable_where_the_locale_is_ascii(packed: Packed):
    env = {"DAGSTER_HOME": str(packed.folder / "dagster"), "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    shown = run_command("rejects", "photos.yaml", cwd=packed.folder, env=env)
    assert shown.exit_code == 0
    assert shown.stdout.isascii()


def test_the_run_is_in_the_instance_that_the_ui_shows(packed: Packed):
    assert (packed.folder / "dagster" / "dagster.yaml").exists()
    (run_id,) = packed.first.json["run_ids"]
    found = [path for path in (packed.folder / "dagster").rglob("*") if run_id in path.name]
    assert found
