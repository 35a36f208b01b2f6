"""Sets of resized images: aligned with the shards, whole or absent, repaired one by one, seen by verify."""

import io
import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_packaging.core.schema import RESIZED_SCHEMA
from dataset_packaging.errors import ConfigError
from dataset_packaging.imaging.resize import resize_image
from dataset_packaging.packing import resize_shard
from dataset_packaging.packing.pipeline import BUCKET_KEYS
from dataset_packaging.packing.reports import ResizedReport, RunOptions
from dataset_packaging.reading import BatchReader, PackedDataset, ReadSettings
from dataset_packaging_tests.packing.memory_probe import probe
from dataset_packaging_tests.packing.photo_dataset import states
from dataset_packaging_tests.small_dataset import (
    YAML,
    open_pipeline,
    pack,
    read_sidecars,
    rewrite,
    small_dataset,
    write_rows,
)

SETS = "resized: [512, 1024]\nresized_prefix: out/resized\n"
ROWS = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path, ROWS)
    pack(small_dataset(tmp_path))
    return tmp_path


def resize(folder: Path, size: int = 512, more_yaml: str = "", options: RunOptions = RunOptions()) -> ResizedReport:  # noqa: B008
    with open_pipeline(small_dataset(folder, SETS + more_yaml)) as pipeline:
        return pipeline.write_resized(size, BUCKET_KEYS, options)


def written(report: ResizedReport) -> dict[str, int]:
    return {key: bucket.shards_written for key, bucket in report.buckets.items() if bucket.shards_written}


def findings(folder: Path, *, deep: bool = False) -> list[str]:
    with open_pipeline(small_dataset(folder, SETS)) as pipeline:
        return [str(finding) for finding in pipeline.verify(deep=deep).findings]


def paths(folder: Path, name: str) -> list[Path]:
    root = folder / "out" / name
    return sorted(path.relative_to(root) for path in root.rglob("*.parquet"))


def test_sets_have_the_same_paths_rows_and_keys(folder: Path) -> None:
    for size in (512, 1024):
        report = resize(folder, size)
        assert sum(bucket.rows for bucket in report.buckets.values()) == ROWS
        assert not any(bucket.blocked or bucket.failed for bucket in report.buckets.values())
        assert paths(folder, f"resized/{size}") == paths(folder, "main")
        for path in paths(folder, "main"):
            made = pq.read_table(folder / f"out/resized/{size}" / path)
            assert made.schema.equals(RESIZED_SCHEMA)
            assert made["image_key"].equals(pq.read_table(folder / "out/main" / path)["image_key"])
            for row in made.to_pylist():
                image = Image.open(io.BytesIO(row["image"]))
                assert (image.format, image.size) == ("WEBP", (row["width"], row["height"]))
                assert image.width % 32 == image.height % 32 == 0
                assert abs(row["resized_width"] * row["resized_height"] / size**2 - 1) < 0.01
                assert row["resize_error"] is None
    assert findings(folder, deep=True) == []
    opened = pl.scan_parquet(folder / "out/resized/512/**/*.parquet").select(pl.len()).collect().item()
    assert opened == ROWS


def test_pictures_are_those_of_their_rows(folder: Path) -> None:
    resize(folder)
    for path in paths(folder, "main"):
        main, made = (pq.read_table(folder / "out" / name / path).to_pylist() for name in ("main", "resized/512"))
        for before, after in zip(main, made, strict=True):
            colours = [
                np.asarray(Image.open(io.BytesIO(row["image"])).convert("RGB"), int).mean(axis=(0, 1))
                for row in (before, after)
            ]
            assert np.abs(colours[0] - colours[1]).max() < 4


def test_geometry_is_that_of_the_crop_fields(folder: Path) -> None:
    """The sidecars' boxes and the resized images fit each other, and another dataset can follow the set."""
    write_rows(folder, ROWS, lambda number: {"structured_description": {"bbox": [0, 0, 1000, 1000]}})
    with open_pipeline(small_dataset(folder, SETS + "sidecar: {crops: {}}\n")) as pipeline:
        pipeline.build_manifest()
        pipeline.pack_buckets(BUCKET_KEYS)
        pipeline.write_resized(512, BUCKET_KEYS)
        pipeline.write_sidecars(BUCKET_KEYS)
    rows = {row["image_key"]: row for path in paths(folder, "resized/512")
            for row in pq.read_table(folder / "out/resized/512" / path).to_pylist()}  # fmt: skip
    told = read_sidecars(folder, ["bbox_resize_meta"])
    assert len(told) == ROWS
    for row in told:
        crop, made = json.loads(row["bbox_resize_meta"])["crops"]["512"], rows[row["image_key"]]
        assert crop["resized"] == {"width": made["resized_width"], "height": made["resized_height"]}
        assert crop["target"] == {"width": made["width"], "height": made["height"]}
        assert crop["offset"] == {"x": made["crop_left"], "y": made["crop_top"]}
    followed = "sidecar: {crops: {sizes: [512], resized: [{size: 512, prefix: out/resized/512}]}}\n"
    with open_pipeline(small_dataset(folder, followed)) as pipeline:
        report = pipeline.write_sidecars(BUCKET_KEYS)
    assert not any(bucket.blocked for bucket in report.buckets.values())
    again = read_sidecars(folder, ["bbox_resize_meta"])
    assert [json.loads(row["bbox_resize_meta"])["crops"]["512"] for row in again] == [
        json.loads(row["bbox_resize_meta"])["crops"]["512"] for row in told
    ]


def test_a_repeated_run_writes_nothing_and_a_rebuild_the_same_bytes(folder: Path) -> None:
    assert sum(written(resize(folder)).values()) == len(paths(folder, "main"))
    before = states(folder / "out/resized")
    assert written(resize(folder)) == {}
    assert states(folder / "out/resized") == before
    assert sum(written(resize(folder, options=RunOptions(rebuild=True))).values()) == len(paths(folder, "main"))
    assert {name: state.sha256 for name, state in states(folder / "out/resized").items()} == {
        name: state.sha256 for name, state in before.items()
    }


def test_damage_is_found_and_rebuilds_that_shard_only(folder: Path) -> None:
    resize(folder)
    resize(folder, 1024)
    before = states(folder / "out/resized")
    whole = folder / "out/resized/512/0_512/10000/shard-000001.parquet"
    kept = whole.read_bytes()
    for damage in ("cut", "missing", "shuffled", "bit"):
        if damage == "cut":
            whole.write_bytes(kept[:-100])
        elif damage == "missing":
            whole.unlink()
        elif damage == "shuffled":
            rewrite(whole, lambda table: table.take(pa.array(range(len(table) - 1, -1, -1))))
        else:
            flipped = bytearray(kept)
            flipped[len(kept) // 3] ^= 1
            whole.write_bytes(bytes(flipped))
        found = findings(folder)
        assert found, damage
        assert all("0_512/10000 shard 1 resized 512: " in finding for finding in found), damage
        with open_pipeline(small_dataset(folder, SETS)) as pipeline:
            assert pipeline.is_up_to_date() is None
        assert written(resize(folder)) == {"0_512/10000": 1}
        assert findings(folder, deep=True) == []
    after = states(folder / "out/resized")
    assert {name: state.sha256 for name, state in after.items()} == {name: s.sha256 for name, s in before.items()}
    same = [name for name in after if after[name] == before[name]]
    assert len(same) == len(after) - 1


def test_a_set_that_is_not_made_is_told_shard_by_shard(folder: Path) -> None:
    found = findings(folder)
    assert len(found) == 2 * len(paths(folder, "main"))
    assert all("not made yet; run pack again" in finding for finding in found)


def test_a_changed_shard_rebuilds_its_images(folder: Path) -> None:
    resize(folder)
    Image.new("RGB", (64, 64), (1, 2, 3)).save(folder / "images/0.png")
    (folder / "out/main/0_512/10000/shard-000000.parquet").unlink()
    with open_pipeline(small_dataset(folder, SETS)) as pipeline:
        pipeline.pack_buckets(BUCKET_KEYS)
        report = pipeline.write_resized(512, BUCKET_KEYS)
    assert written(report) == {"0_512/10000": 1}
    row = pq.read_table(folder / "out/resized/512/0_512/10000/shard-000000.parquet").to_pylist()[0]
    colour = np.asarray(Image.open(io.BytesIO(row["image"])), int).mean(axis=(0, 1))
    assert np.abs(colour - (1, 2, 3)).max() < 4


def test_a_row_that_cannot_be_resized_keeps_its_place(tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS, lambda number: {"width": 2, "height": 2000} if number == 6 else {})
    Image.new("F", (64, 64), 0.5).save(tmp_path / "images/3.png", "TIFF")
    Image.new("RGB", (2, 2000)).save(tmp_path / "images/6.png")
    pack(small_dataset(tmp_path))
    report = resize(tmp_path)
    assert not any(bucket.blocked for bucket in report.buckets.values())
    reasons = {reason for bucket in report.buckets.values() for reason in bucket.failed}
    assert {reason.split(":")[0] for reason in reasons} == {
        "ValueError",
        "32 x 32000 pixels are more than the 16383 of a WebP's side",
    }
    rows = [row for path in paths(tmp_path, "resized/512")
            for row in pq.read_table(tmp_path / "out/resized/512" / path).to_pylist()]  # fmt: skip
    failed = [row for row in rows if row["image"] is None]
    assert (len(rows), len(failed)) == (ROWS, 2)
    assert {row["resize_error"] for row in failed} == reasons
    assert {row[name] for row in failed for name in ("width", "height", "crop_left")} == {None}
    with open_pipeline(small_dataset(tmp_path, "resized: [512]\nresized_prefix: out/resized\n")) as pipeline:
        assert pipeline.verify(deep=True).findings == ()


def test_images_wait_for_their_shards(folder: Path) -> None:
    (folder / "out/main/0_512/10000/shard-000000.parquet").unlink()
    report = resize(folder)
    blocked = {key: bucket.blocked for key, bucket in report.buckets.items() if bucket.blocked}
    assert list(blocked) == ["0_512/10000"]
    assert "the main shard is not done" in str(blocked["0_512/10000"])


def test_strangers_below_the_sets_are_found(folder: Path) -> None:
    resize(folder)
    resize(folder, 1024)
    (folder / "out/resized/README.md").write_text("here")
    surplus = folder / "out/resized/512/0_512/10000/shard-000009.parquet"
    surplus.write_bytes((surplus.parent / "shard-000000.parquet").read_bytes())
    found = findings(folder)
    assert len(found) == 2
    assert "README.md is no shard of a resized set" in found[0]
    assert "shard-000009.parquet is not in the plan" in found[1]
    resize(folder)
    assert not surplus.exists()


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("resized: [256]", "resized"),
        ("resized: [512, 512]", "each value may stand here once"),
        ("resized: [512]\nresized_prefix: out/main/resized", "overlaps with output_prefix"),
        ("resized: [512]\nresized_prefix: out/work", "overlaps with work_prefix"),
        (SETS + "sidecar: {crops: {resized: [{size: 512, prefix: else}]}}", "512 is among resized"),
        (SETS + "sidecar: {merge: [{source_prefix: out/resized/512, columns: [style]}]}", "outputs cannot be inputs"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path: Path, block: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small_dataset(tmp_path, f"{block}\n")


def test_the_folder_is_beside_the_shards_by_default(tmp_path: Path) -> None:
    dataset = small_dataset(tmp_path, "resized: [512]\n")
    assert dataset.resized_prefix == (tmp_path / "out/main_resized").as_uri()
    assert "resized_prefix" not in small_dataset(tmp_path).prefixes


def test_a_handoff_tells_the_sets(folder: Path) -> None:
    with open_pipeline(small_dataset(folder, SETS)) as pipeline:
        assert {finding.check for finding in pipeline.write_handoff().findings} == {"resized_state"}
    resize(folder)
    resize(folder, 1024)
    with open_pipeline(small_dataset(folder, SETS)) as pipeline:
        assert pipeline.write_handoff().findings == ()
        told = pipeline.read_handoff()
    assert told is not None
    assert told["prefixes"]["resized_512"] == (folder / "out/resized/512").as_uri()
    assert {"resized_512", "resized_1024"} <= set(told["fingerprints"])
    card = (folder / "out" / "work" / "handoff" / "README.md").read_text()
    assert "WebP of the area of 1024 x 1024" in card


def test_a_task_that_fails_leaves_nothing_and_the_next_run_makes_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PQ-01: leaving the writer by an exception must not publish a file of fewer rows."""
    calls = []

    def failing(data: object, wish: object) -> bytes:
        calls.append(data)
        if len(calls) == 3:
            raise RuntimeError("the third image")
        return resize_image(data, wish)  # type: ignore[arg-type,return-value]

    with monkeypatch.context() as patch:
        patch.setattr(resize_shard, "resize_image", failing)
        report = resize(folder)
    blocked = {key: bucket.blocked for key, bucket in report.buckets.items() if bucket.blocked}
    ((key, why),) = blocked.items()
    assert str(why).endswith(": RuntimeError: the third image")
    assert len(paths(folder, "resized/512")) == len(paths(folder, "main")) - 1
    assert written(resize(folder)) == {key: 1}
    assert not [name for name in states(folder / "out/resized") if ".tmp-" in name]


def test_memory_is_a_row_group_and_a_decode_not_the_shard(tmp_path: Path) -> None:
    """A shard of 60 noisy pictures of 4 megapixels, 700 MB decoded: the peak is that of a few of them."""
    pixels = np.random.default_rng(1).integers(0, 256, (2000, 2000, 3), np.uint8)
    (tmp_path / "images").mkdir()
    Image.fromarray(pixels).save(tmp_path / "images/noise.jpg", quality=60)
    lines = [json.dumps({"id": f"k{n}", "url": "noise.jpg", "width": 2000, "height": 2000}) for n in range(60)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    yaml = tmp_path / "small.yaml"
    yaml.write_text(YAML.replace("shard_size: 4", "shard_size: 60") + SETS)
    assert probe("pack", yaml)["packed"] == 60
    told = probe("resize", yaml)
    assert told["peak_bytes"] - told["before_bytes"] < 200 << 20


def test_training_reads_a_resized_set_in_place_of_the_shards(tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS)
    Image.new("F", (64, 64), 0.5).save(tmp_path / "images/3.png", "TIFF")
    pack(small_dataset(tmp_path))
    resize(tmp_path)
    packed = PackedDataset(str(tmp_path / "out/resized/512"), str(tmp_path / "out/side"))
    reader = BatchReader(packed, ReadSettings(batch_size=4, world_size=1), rank=0, sidecar_columns=["full_description"])
    names = ("image_key", "image", "full_description")
    rows = [row for batch in reader for row in zip(*(batch[name] for name in names), strict=True)]
    assert sorted(key for key, _, _ in rows) == [f"key-{number:04d}" for number in range(ROWS)]
    for key, image, caption in rows:
        assert caption == [f"caption {int(key[4:])}"]
        assert (image is None) == (key == "key-0003")
        if image is not None:
            assert Image.open(io.BytesIO(image)).format == "WEBP"
