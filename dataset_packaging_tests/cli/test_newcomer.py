"""From an unfamiliar manifest to the handoff by the commands of the README, with the starter YAML as it was written."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataset_packaging_tests.checker import check
from dataset_packaging_tests.cli.command import run_command
from dataset_packaging_tests.cli.real_photos import (
    PHOTOS,
    rewrite_paths,
    write_coco_images,
    write_laion_table,
    write_scraped_mix,
    write_windows_list,
)

COCO_CAPTIONS = [f"Caption {number} of image 3." for number in range(5)]


@pytest.mark.parametrize(
    ("write_manifest", "rejected", "key", "captions"),
    [
        (write_laion_table, {}, str(-(10**18) + 3), ["Photograph 3 – buy now at Example™"]),
        (write_coco_images, {}, "142", COCO_CAPTIONS),
        (write_scraped_mix, {"bad_row": 1, "missing_path": 2, "bad_path": 1}, f"{3:032x}", ["Title 3"]),
        (write_windows_list, {}, "4", ["Title 3"]),
    ],
    ids=["laion", "coco", "scraped", "windows"],
)
def test_init_plan_pack_handoff(
    write_manifest: Callable[[Path], Path], rejected: dict[str, int], key: str, captions: list[str], tmp_path: Path
):
    env = {"DAGSTER_HOME": str(tmp_path / "dagster")}
    manifest = write_manifest(tmp_path)
    started = run_command("init", manifest, "-o", "starter.yaml", cwd=tmp_path, env=env)
    assert started.exit_code == 0
    if write_manifest is write_windows_list:
        rewrite_paths(manifest, "FilePath")
        started = run_command("init", manifest, "-o", "starter.yaml", "--force", cwd=tmp_path, env=env)
    planned = run_command("plan", "starter.yaml", "--json", cwd=tmp_path, env=env)
    unpacked = sum(rejected.values())
    assert (planned.exit_code, planned.json["rows"]) == (0, PHOTOS + ("bad_row" in rejected))
    ended = run_command("pack", "starter.yaml", "--json", cwd=tmp_path, env=env)
    assert (ended.exit_code, ended.json["rejected"]) == (0, rejected)
    assert ended.json["packed"] == planned.json["rows"] - unpacked
    assert ended.json["shards"] == planned.json["shards"]
    assert ended.json["prediction"]["rows_in_place"] == ended.json["packed"]
    handed = run_command("handoff", "starter.yaml", "--json", cwd=tmp_path, env=env)
    assert (handed.exit_code, handed.json["findings"]) == (0, []), handed.stderr
    (work,) = tmp_path.glob("*_work")
    stats = json.loads((work / "handoff/stats.json").read_text())
    assert (stats["rows"], stats["ledger"]["rejected"]) == (ended.json["packed"], rejected)
    (sidecars,) = tmp_path.glob("*_sidecar")
    table = pq.read_table(sidecars, columns=["image_key", "full_description", "short_description"]).to_pylist()
    found = {row["image_key"]: row["full_description"] or row["short_description"] for row in table}
    assert found[key] == captions
    assert check(tmp_path / "starter.yaml") == []
