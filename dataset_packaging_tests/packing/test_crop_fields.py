"""Crop-aware fields in sidecars: computed, or after the geometry of existing resized sets."""

import json
import os
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.core.crops import plan_crop
from dataset_packaging.packing.pipeline import BUCKET_KEYS
from dataset_packaging.packing.reports import SidecarsReport
from dataset_packaging_tests.small_dataset import (
    open_pipeline,
    pack,
    read_sidecars,
    sidecar_paths,
    small_dataset,
    write_rows,
)

ROWS = 12
FIELDS = ("structured_description_crop_512", "structured_description_crop_1024", "bbox_resize_meta")


def caption(number: int) -> object:
    return {"elements": [{"label": "all", "bbox": [0, 0, 1000, 1000]}, {"label": str(number), "bbox": [0, 0, 10, 500]}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {0: "no json", 1: None}
    write_rows(tmp_path, ROWS, lambda number: {"structured_description": texts.get(number, caption(number))})
    pack(small_dataset(tmp_path))
    return tmp_path


def write_sidecars(folder: Path, block: str) -> SidecarsReport:
    with open_pipeline(small_dataset(folder, f"sidecar: {block}\n")) as pipeline:
        return pipeline.write_sidecars(BUCKET_KEYS)


def blocked(report: SidecarsReport) -> list[str]:
    return [bucket.blocked for bucket in report.buckets.values() if bucket.blocked]


def test_without_crops_the_fields_are_null(folder: Path) -> None:
    assert {row[field] for row in read_sidecars(folder, FIELDS) for field in FIELDS} == {None}


def test_fields_follow_from_captions_and_sizes(folder: Path) -> None:
    before = read_sidecars(folder, ["structured_description"])
    report = write_sidecars(folder, "{crops: {}}")
    assert blocked(report) == []
    rows = read_sidecars(folder, ["structured_description", *FIELDS])
    assert [row["structured_description"] for row in rows] == [row["structured_description"] for row in before]
    assert rows[0]["structured_description_crop_512"] is None
    assert "no JSON" in json.loads(rows[0]["bbox_resize_meta"])["crops"]["512"]["problem"]
    assert {rows[1][field] for field in FIELDS} == {None}
    square, wide = rows[3], rows[4]
    assert json.loads(square["structured_description_crop_512"]) == caption(3)
    meta = orjson.loads(wide["bbox_resize_meta"])
    assert meta["source"] == {"width": 96, "height": 64}
    assert meta["crops"]["512"]["target"] == {"width": 608, "height": 416}
    boxes = [element["bbox"] for element in json.loads(wide["structured_description_crop_512"])["elements"]]
    assert boxes == [[0, 0, 1000, 1000], [0, 0, 8, 501]]
    total = dict.fromkeys((512, 1024), 0)
    for bucket in report.buckets.values():
        for counts in bucket.crops:
            total[counts.size] += counts.captions
            assert counts.elements == 2 * counts.cropped
    assert total == {512: ROWS - 1, 1024: ROWS - 1}


def test_one_size_leaves_the_other_alone(folder: Path) -> None:
    write_sidecars(folder, "{crops: {sizes: [1024]}}")
    row = read_sidecars(folder, FIELDS)[3]
    assert row["structured_description_crop_512"] is None
    assert row["structured_description_crop_1024"] is not None
    assert list(json.loads(row["bbox_resize_meta"])["crops"]) == ["1024"]


def test_captions_that_are_merged_are_cropped(folder: Path) -> None:
    texts = [json.dumps([{"bbox": [0, 0, 1000, 1000], "label": f"new {number}"}]) for number in range(ROWS)]
    keys = [f"key-{number:04d}" for number in range(ROWS)]
    pq.write_table(pa.table({"image_key": keys, "structured_description": texts}), folder / "late.parquet")
    merge = "merge: [{source: late.parquet, columns: [structured_description], mode: prefer_source}]"
    report = write_sidecars(folder, f"{{crops: {{sizes: [512]}}, {merge}}}")
    assert blocked(report) == []
    rows = read_sidecars(folder, FIELDS)
    labels = [json.loads(row["structured_description_crop_512"])[0]["label"] for row in rows]
    assert labels == [f"new {number}" for number in range(ROWS)]


def write_resized_set(folder: Path, change=lambda row: row) -> None:
    """The audit columns of a set that was resized to twice the size, and cut to its left upper quarter."""
    for path in sidecar_paths(folder):
        table = pq.ParquetFile(path).read(columns=["image_key", "width", "height"])
        rows = [
            change(
                {
                    "image_key": row["image_key"],
                    "width": row["width"],
                    "height": row["height"],
                    "resized_width": 2 * row["width"],
                    "resized_height": 2 * row["height"],
                    "crop_left": 0,
                    "crop_top": 0,
                }
            )
            for row in table.to_pylist()
        ]
        target = folder / "resized" / path.relative_to(folder / "out/side")
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), target)


RESIZED = "{crops: {sizes: [512], resized: [{size: 512, prefix: resized}]}}"


def test_the_geometry_of_a_resized_set_is_followed(folder: Path) -> None:
    write_resized_set(folder)
    assert blocked(write_sidecars(folder, RESIZED)) == []
    row = read_sidecars(folder, FIELDS)[3]
    boxes = [element["bbox"] for element in json.loads(row["structured_description_crop_512"])["elements"]]
    assert boxes == [[0, 0, 1000, 1000], [0, 0, 20, 1000]]
    crop = json.loads(row["bbox_resize_meta"])["crops"]["512"]
    assert (crop["scale"], crop["clipped"]) == (2.0, 1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda row: row | {"resized_width": None}, "does not tell its geometry"),
        (lambda row: row | {"crop_left": 10_000}, "impossible geometry"),
        (lambda row: row | {"width": 0}, "impossible geometry"),
    ],
)
def test_a_row_without_geometry_has_its_reason(folder: Path, change, problem: str) -> None:
    write_resized_set(folder, lambda row: change(row) if row["image_key"] == "key-0003" else row)
    assert blocked(write_sidecars(folder, RESIZED)) == []
    rows = read_sidecars(folder, FIELDS)
    assert rows[3]["structured_description_crop_512"] is None
    assert problem in json.loads(rows[3]["bbox_resize_meta"])["crops"]["512"]["problem"]
    assert rows[6]["structured_description_crop_512"] is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row | {"image_key": "other"}, "the resized set is not row-aligned"),
        (lambda row: {key: value for key, value in row.items() if key != "crop_top"}, "has no column crop_top"),
    ],
)
def test_a_resized_set_that_does_not_fit_stops_the_sidecars(folder: Path, change, words: str) -> None:
    write_resized_set(folder, change)
    reasons = blocked(write_sidecars(folder, RESIZED))
    assert len(reasons) == 3
    assert all(words in reason for reason in reasons)


def test_a_new_geometry_rewrites_the_sidecars_it_concerns(folder: Path) -> None:
    write_resized_set(folder)
    first = write_sidecars(folder, RESIZED)
    assert sum(bucket.shards_written for bucket in first.buckets.values()) == len(sidecar_paths(folder))
    assert sum(bucket.shards_written for bucket in write_sidecars(folder, RESIZED).buckets.values()) == 0
    os.utime(folder / "resized/0_512/10000/shard-000000.parquet", ns=(1, 1))
    again = write_sidecars(folder, RESIZED)
    assert sum(bucket.shards_written for bucket in again.buckets.values()) == 1


def test_computed_geometry_is_that_of_plan_crop(folder: Path) -> None:
    write_sidecars(folder, "{crops: {}}")
    for row in read_sidecars(folder, ("width", "height", *FIELDS)):
        if row["bbox_resize_meta"] is not None and "no JSON" not in row["bbox_resize_meta"]:
            for size, crop in json.loads(row["bbox_resize_meta"])["crops"].items():
                plan = plan_crop(row["width"], row["height"], int(size))
                assert crop["offset"] == {"x": plan.left_px, "y": plan.top_px}
                assert crop["scale"] == plan.scale
