"""The handoff: only when every check holds, apart from shards and sidecars, telling what was verified."""

import json
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from dataset_packaging.packing.reports import HandoffReport
from dataset_packaging_tests.small_dataset import (
    open_pipeline,
    pack,
    rewrite,
    sidecar_paths,
    small_dataset,
    write_rows,
)

RIGHTS = """
description: Coloured squares
licence: CC-BY-4.0
owners: ["team:images", "a@example.com"]
confidentiality: internal
tags: {kind: test}
"""

HANDOFF = Path("out", "work", "handoff")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path, 30)
    pack(small_dataset(tmp_path))
    return tmp_path


def hand_off(folder: Path, more_yaml: str = "") -> HandoffReport:
    with open_pipeline(small_dataset(folder, more_yaml)) as pipeline:
        return pipeline.write_handoff()


def files(folder: Path) -> set[str]:
    root = folder / HANDOFF
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_a_dataset_that_holds_is_handed_off(folder: Path) -> None:
    report = hand_off(folder, RIGHTS)
    assert report.findings == ()
    assert files(folder) == {
        "HANDOFF.json", "README.md", "stats.json", "stats.png", "blocks.parquet",
        "contact_sheets/0_512.jpg", "contact_sheets/512_1024.jpg",
    }  # fmt: skip
    assert {uri.removeprefix(report.prefix) for uri in report.files} == files(folder)
    told = json.loads((folder / HANDOFF / "HANDOFF.json").read_text())
    assert told["prefixes"]["output_prefix"] == (folder / "out/main").as_uri()
    assert (told["rows"], told["licence"], told["owners"]) == (30, "CC-BY-4.0", ["team:images", "a@example.com"])
    assert len(told["fingerprints"]) == 3
    for name in ("stats.png", "contact_sheets/0_512.jpg"):
        with Image.open(folder / HANDOFF / name) as picture:
            picture.load()


def test_the_card_tells_rights_buckets_columns_and_checks(folder: Path) -> None:
    hand_off(folder, RIGHTS)
    _, head, body = (folder / HANDOFF / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(head) == {
        "pretty_name": "small",
        "license": "cc-by-4.0",
        "size_categories": ["n<1K"],
        "tags": ["image", "kind:test"],
    }
    for words in (
        "Coloured squares", "Licence: CC-BY-4.0", "Owners: team:images, a@example.com", "Confidentiality: internal",
        "| 0_512/10000 | 10 | 3 |", "| `image` | `binary` | shard |",
        "| `full_description` | `list<string>` | both | 0.0% |",
        "row_alignment", "30 rows of the manifest = 30 packed",
    ):  # fmt: skip
        assert words in body


def test_a_licence_that_the_hub_does_not_know_keeps_its_name(folder: Path) -> None:
    hand_off(folder, "licence: Pexels licence\n")
    head = yaml.safe_load((folder / HANDOFF / "README.md").read_text().split("---\n", 2)[1])
    assert (head["license"], head["license_name"]) == ("other", "Pexels licence")


def test_statistics_are_those_of_the_shards(folder: Path) -> None:
    hand_off(folder)
    stats = json.loads((folder / HANDOFF / "stats.json").read_text())
    main = pl.scan_parquet(folder / "out/main/**/*.parquet")
    side = pl.scan_parquet(folder / "out/side/**/*.parquet")
    rows, size = main.select(pl.len(), pl.col("image").bin.size().sum().alias("bytes")).collect().row(0)
    assert (stats["rows"], stats["image_bytes"]) == (rows, size)
    assert stats["shard_bytes"] == sum(path.stat().st_size for path in (folder / "out/main").rglob("*.parquet"))
    nulls = side.select(pl.all().is_null().mean()).collect().row(0, named=True)
    assert stats["null_rates"] == pytest.approx(nulls)
    assert list(stats["null_rates"]) == pq.read_schema(sidecar_paths(folder)[0]).names
    assert {key: entry["rows"] for key, entry in stats["buckets"].items()} == {
        "0_512/10000": 10, "0_512/15000": 10, "512_1024/10000": 10,
    }  # fmt: skip
    assert stats["formats"] == {"PNG": 30}
    for histogram in stats["histograms"].values():
        assert sum(histogram["counts"]) == 30
        assert len(histogram["edges"]) == len(histogram["counts"]) + 1


def test_nothing_is_put_below_the_prefixes_that_readers_open(folder: Path) -> None:
    before = {path for name in ("main", "side") for path in (folder / "out" / name).rglob("*")}
    hand_off(folder)
    assert {path for name in ("main", "side") for path in (folder / "out" / name).rglob("*")} == before


def test_a_repeated_handoff_writes_nothing(folder: Path) -> None:
    hand_off(folder)
    stamps = {name: (folder / HANDOFF / name).stat().st_mtime_ns for name in files(folder)}
    again = hand_off(folder)
    assert again.unchanged
    assert {uri.removeprefix(again.prefix) for uri in again.files} == files(folder)
    assert {name: (folder / HANDOFF / name).stat().st_mtime_ns for name in files(folder)} == stamps


def test_a_finding_takes_the_handoff_away(folder: Path) -> None:
    hand_off(folder)
    rewrite(sidecar_paths(folder)[0], lambda table: table.slice(1))
    report = hand_off(folder)
    assert {finding.check for finding in report.findings} >= {"sidecar_state", "row_alignment"}
    assert report.files == ()
    assert files(folder) == set()


def test_names_that_miss_the_reference_hold_it_back(folder: Path) -> None:
    (folder / "reference.json").write_text('{"columns": [{"name": "image_key", "type": "string"}]}')
    report = hand_off(folder, "sidecar: {reference: reference.json}\n")
    assert {finding.check for finding in report.findings} == {"column_names"}
    assert files(folder) == set()


def test_rows_that_are_pending_hold_it_back(folder: Path) -> None:
    (folder / "out/main/0_512/10000/shard-000000.parquet").unlink()
    report = hand_off(folder)
    assert any("4 rows are pending" in finding.detail for finding in report.findings)


def test_a_handoff_of_earlier_rows_is_none(folder: Path) -> None:
    hand_off(folder)
    with open_pipeline(small_dataset(folder)) as pipeline:
        assert pipeline.read_handoff() is not None
    write_rows(folder, 33)
    pack(small_dataset(folder))
    with open_pipeline(small_dataset(folder)) as pipeline:
        assert pipeline.read_handoff() is None
    assert not hand_off(folder).unchanged
    with open_pipeline(small_dataset(folder)) as pipeline:
        assert pipeline.read_handoff()["rows"] == 33


def test_verification_minds_neither_handoff_nor_sorted_merges(folder: Path) -> None:
    hand_off(folder)
    with open_pipeline(small_dataset(folder)) as pipeline:
        assert pipeline.verify().findings == ()
        assert pipeline.is_up_to_date()
