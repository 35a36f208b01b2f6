"""The generators of odd pictures and of manifests make what they say, the same each time."""

import hashlib
import json
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from dataset_packaging_tests.checker.contract import RATIOS, bucket_of, read_dataset
from dataset_packaging_tests.checker.manifest import read_rows
from dataset_packaging_tests.checker.pictures import judge_bytes
from dataset_packaging_tests.manifests import ManifestSpec, rows_of, write_manifest
from dataset_packaging_tests.odd_images import WHOLE, make_odd_images, odd_images, write_odd_images, write_odd_manifest


@pytest.fixture
def yaml(tmp_path: Path) -> Path:
    path = tmp_path / "odd.yaml"
    path.write_text("manifest: rows.jsonl\noutput_prefix: out\nmapping: {base_uri: files/, direct: {image_key: id}}\n")
    return path


def test_odd_images_are_many_and_the_same_each_time():
    first, second = (
        [(name, hashlib.sha256(data).hexdigest()) for name, data in files]
        for files in (odd_images(), make_odd_images())
    )
    assert first == second
    assert len(first) > 1500
    assert len({name for name, _ in first}) == len(first)


def test_odd_images_hold_both_what_decodes_and_what_does_not(yaml: Path):
    dataset = read_dataset(yaml)
    judged = {name: judge_bytes(data, dataset) for name, data in odd_images() if data}
    whole = {name for name, judgement in judged.items() if judgement.accepted}
    by_group = {group: {name for name in judged if name.startswith(f"{group}/")} for group in WHOLE}
    assert all(names <= whole for names in by_group.values()), "whole files decode"
    assert not {name for name in whole if name.startswith("lie/bomb")}
    assert 400 < len(judged) - len(whole) < 600
    assert {"unsupported_format", "too_many_pixels"} <= {
        reason for judgement in judged.values() if not judgement.accepted for reason in judgement.reasons
    }


def test_odd_sizes_meet_every_ratio_and_scale():
    buckets = set()
    for name, data in odd_images():
        if name.startswith("size/"):
            with Image.open(BytesIO(data)) as picture:
                buckets.add(bucket_of(*picture.size))
    assert {int(bucket.split("/")[1]) for bucket in buckets} == {round(ratio * 10000) for ratio in RATIOS}
    assert {bucket.split("/")[0] for bucket in buckets} == {"0_512", "512_1024", "1024_1536", "1536_2048", "2048_inf"}


def test_the_odd_manifest_lists_every_file_and_one_that_is_missing(tmp_path: Path):
    names = write_odd_images(tmp_path / "files")
    write_odd_manifest(tmp_path / "rows.jsonl", tmp_path / "files", names)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    aliases = ("s3_image_path", "s3_path", "image_s3_uri", "image_uri", "url")
    listed = [row[alias] for row in rows for alias in aliases if alias in row]
    assert listed == [*names, "missing/not_there.jpg"]
    assert all((tmp_path / "files" / name).is_file() for name in names)


@pytest.mark.parametrize("compression", ["plain", "gzip", "zstd"])
def test_a_manifest_holds_what_its_spec_says(tmp_path: Path, yaml: Path, compression: str):
    spec = ManifestSpec(
        rows=300,
        row_bytes=900,
        sizes=((640, 480), (100, 100)),
        duplicate_every=10,
        duplicate_distance=7,
        broken_every=25,
        blank_every=11,
        compression=compression,
        member_rows=64,
    )
    counts = write_manifest(tmp_path / "rows.jsonl", spec)
    again = write_manifest(tmp_path / "again.jsonl", spec)
    assert (tmp_path / "rows.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()
    assert counts == again
    rows = list(read_rows(read_dataset(yaml)))
    assert len(rows) == counts.rows == 300
    assert sum(row.reasons == {"bad_row"} for row in rows) == counts.broken == 12
    assert sum(row.reasons == {"duplicate_key"} for row in rows) == counts.duplicates > 10
    assert [row["id"] for row in rows_of(spec)] == [row.key for row in rows if row.reasons != {"bad_row"}]
    assert sum(len(row.raw) for row in rows) == pytest.approx(300 * 900, rel=0.2)
