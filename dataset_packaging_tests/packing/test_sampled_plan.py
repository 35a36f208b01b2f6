"""The plan from a sample against the plan from all rows."""

import gzip
import json
import random
from pathlib import Path

import pytest

from dataset_packaging.cli.sampling import read_sample
from dataset_packaging.config import DatasetConfig, parse_dataset
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging_tests.small_dataset import YAML, open_pipeline, small_dataset, write_rows

ROWS = 20_000


def write_manifest(folder: Path, rows: int = ROWS) -> None:
    """Writes sizes in three buckets (60, 30, 10 %), byte counts, and 5 % of lines without a path."""
    rng = random.Random(5)
    with (folder / "rows.jsonl").open("w") as file:
        for number in range(rows):
            width, height = rng.choices([(500, 500), (900, 600), (2000, 1500)], [6, 3, 1])[0]
            row = {"id": f"k{number:07d}", "url": f"{number}.jpg", "width": width, "height": height,
                   "bytes": width * height // 4, "caption": "x" * rng.randint(20, 200)}  # fmt: skip
            if number % 20 == 7:
                del row["url"]
            file.write(json.dumps(row) + "\n")


MAPPED = "  direct: {image_key: id, bytes: bytes, full_description: {from: [caption], cast: list_string}}"


def dataset_of(folder: Path) -> DatasetConfig:
    lines = [MAPPED if line.startswith("  direct:") else line for line in YAML.splitlines()]
    return parse_dataset("\n".join(lines).replace("shard_size: 4", "shard_size: 1000"), "small.yaml", folder, {})


def test_a_sample_tells_what_all_rows_tell(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    dataset = dataset_of(tmp_path)
    stores = Stores(StorageConfig.of(dataset))
    sample = read_sample(stores, dataset.manifest[0], 2000)
    assert not sample.is_whole
    assert sample.estimated_rows == pytest.approx(ROWS, rel=0.02)
    with open_pipeline(dataset) as pipeline:
        told = pipeline.preview_sample(sample.lines, sample.estimated_rows)
        whole = pipeline.preview()
    assert told.sampled_rows == len(sample.lines) == 2000
    assert whole.sampled_rows is None
    assert list(told.buckets) == list(whole.buckets)
    for key, bucket in whole.buckets.items():
        assert told.buckets[key].rows == pytest.approx(bucket.rows, rel=0.2), key
        assert told.buckets[key].estimated_bytes == pytest.approx(bucket.estimated_bytes, rel=0.2), key
        assert abs(told.buckets[key].shards - bucket.shards) <= 2, key
    assert told.rejected["missing_path"] == pytest.approx(whole.rejected["missing_path"], rel=0.3)
    assert told.estimated_bytes == pytest.approx(whole.estimated_bytes, rel=0.1)
    assert told.work.likely_s == pytest.approx(whole.work.likely_s, rel=0.1)
    assert told.requests.gets == pytest.approx(whole.requests.gets, rel=0.05)
    assert told.dollars == pytest.approx(whole.dollars, rel=0.2)


def test_rows_of_a_compressed_file_follow_from_how_well_it_compresses(tmp_path: Path) -> None:
    write_manifest(tmp_path)
    dataset = dataset_of(tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(gzip.compress(path.read_bytes()))
    sample = read_sample(Stores(StorageConfig.of(dataset)), dataset.manifest[0], 2000)
    assert sample.estimated_rows == pytest.approx(ROWS, rel=0.2)


def test_sizes_that_are_not_told_are_probed(tmp_path: Path) -> None:
    write_rows(tmp_path, 60, lambda number: {"width": None, "height": None})
    dataset = small_dataset(tmp_path)
    lines = (tmp_path / "rows.jsonl").read_bytes().splitlines()
    (tmp_path / "images/0.png").unlink()
    with open_pipeline(dataset) as pipeline:
        told = pipeline.preview_sample(lines, 600)
        assert {key: bucket.rows for key, bucket in told.buckets.items()} == {
            "0_512/10000": 190, "0_512/15000": 200, "512_1024/10000": 200,
        }  # fmt: skip
        assert told.rejected == {"not_found": 10}
        assert told.requests.gets >= 2 * 590
    assert not (tmp_path / "out").exists()
