"""From an unfamiliar manifest to a verified dataset, with the starter YAML as it was written."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataset_packaging_tests.cli.command import run_command
from dataset_packaging_tests.cli.unfamiliar import write_coco_captions, write_laion, write_scraped


def _write_laion(folder: Path) -> Path:
    return write_laion(folder, with_paths=True)


@pytest.mark.parametrize(
    ("write_manifest", "rows", "packed", "rejected"),
    [
        (_write_laion, 60, 60, {}),
        (write_coco_captions, 60, 60, {}),
        (write_scraped, 51, 49, {"bad_row": 1, "missing_path": 1}),
    ],
    ids=["laion", "coco", "scraped"],
)
def test_init_plan_pack_verify(
    write_manifest: Callable[[Path], Path], rows: int, packed: int, rejected: dict[str, int], tmp_path: Path
):
    env = {"DAGSTER_HOME": str(tmp_path / "dagster")}
    started = run_command("init", write_manifest(tmp_path), "-o", "starter.yaml", cwd=tmp_path, env=env)
    assert started.exit_code == 0
    planned = run_command("plan", "starter.yaml", "--json", cwd=tmp_path, env=env)
    assert (planned.exit_code, planned.json["rows"]) == (0, rows)
    ended = run_command("pack", "starter.yaml", "--json", cwd=tmp_path, env=env)
    assert (ended.exit_code, ended.json["packed"], ended.json["rejected"]) == (0, packed, rejected)
    assert ended.json["shards"] == planned.json["shards"]
    verified = run_command("verify", "starter.yaml", "--deep", "--json", cwd=tmp_path, env=env)
    assert (verified.exit_code, verified.json["findings"]) == (0, [])
    (sidecars,) = tmp_path.glob("*_sidecar")
    captions = pq.read_table(sidecars, columns=["full_description"])["full_description"]
    assert (len(captions), captions.null_count) == (packed, 0)
