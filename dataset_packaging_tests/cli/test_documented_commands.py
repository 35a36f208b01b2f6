"""Every command and every piece of YAML of docs/handoff.md, on the example dataset."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dataset_packaging_tests.cli.command import ROOT, Finished, run_command

TEXT = (ROOT / "docs/handoff.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, re.DOTALL)
PIECES = [body for kind, body in BLOCKS if kind == "yaml"]
COMMANDS = [line for kind, body in BLOCKS if not kind for line in body.splitlines() if line.startswith("dataset-")]


def merged(into: dict[str, Any], piece: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: merged(into[name], value) if isinstance(into.get(name), dict) else value for name, value in piece.items()
    }
    return into | both


def run(folder: Path, *arguments: str) -> Finished:
    return run_command(*arguments, cwd=folder, env={"DAGSTER_HOME": str(folder / "dagster")})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with all pieces of YAML added, packed."""
    place = tmp_path_factory.mktemp("documented") / "examples"
    shutil.copytree(ROOT / "examples", place)
    dataset = yaml.safe_load((place / "photos.yaml").read_text())
    for piece in PIECES:
        dataset = merged(dataset, yaml.safe_load(piece))
    (place / "photos.yaml").write_text(yaml.safe_dump(dataset))
    pq.write_table(pa.table({"image_key": ["coffee", "nowhere"], "score": ["6.5", "1"]}), place / "scores.parquet")
    packed = run(place, "pack", "photos.yaml", "--json")
    assert packed.exit_code == 0, packed.stderr
    assert packed.json["resized"]["1024"]["shards_written"] == packed.json["shards"]
    return place


def test_the_page_shows_what_is_run() -> None:
    assert [command.split()[1] for command in COMMANDS] == ["handoff", "export", "export", "schema", "schema"]
    assert len(PIECES) == 3


def test_the_pieces_do_what_they_say(place: Path) -> None:
    columns = ["image_key", "aesthetic_score"]
    sidecars = pq.read_table(place.parent / "demo/photos_sidecar", columns=columns).to_pylist()
    scores = {row["image_key"]: row["aesthetic_score"] for row in sidecars}
    assert scores["coffee"] == 6.5
    for size in ("512", "1024"):
        resized = pq.read_table(place.parent / f"demo/photos_resized/{size}", columns=["image_key", "resize_error"])
        assert sorted(resized["image_key"].to_pylist()) == sorted(scores)
        assert resized["resize_error"].null_count == len(scores)


def test_every_command_works_in_the_order_of_the_page(place: Path) -> None:
    for command in COMMANDS:
        ended = run(place, *shlex.split(command, comments=True)[1:])
        assert ended.exit_code == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    assert (place.parent / "demo/photos_work/handoff/HANDOFF.json").exists()
    assert (place / "hub/README.md").exists()
    assert (place / "tuner/multidatabackend.json").exists()
