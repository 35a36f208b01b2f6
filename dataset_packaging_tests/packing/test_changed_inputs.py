"""Changed manifests and settings: `plan` says what would be kept, rewritten and added, and `pack` does just that."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataset_packaging.errors import PlanConflict
from dataset_packaging.packing.preview import PlanPreview
from dataset_packaging.packing.reports import RunOptions
from dataset_packaging_tests.checker import check
from dataset_packaging_tests.packing.photo_dataset import (
    FileState,
    PhotoDataset,
    changed,
    open_pipeline,
    pack,
    photo,
    states,
)

SQUARE = "0_512/10000"


@pytest.fixture
def dataset(tmp_path: Path) -> PhotoDataset:
    made = PhotoDataset(tmp_path / "one")
    made.add_photos(40)
    pack(made)
    return made


def preview(dataset: PhotoDataset, options: RunOptions = RunOptions()) -> PlanPreview:  # noqa: B008
    """Returns what `plan` says, after making sure that it writes nothing."""
    config = dataset.config()
    before = states(dataset.packed)
    with open_pipeline(config) as pipeline:
        said = pipeline.preview(options)
    assert list(changed(before, states(dataset.packed))) == []
    return said


def said_and_done(
    dataset: PhotoDataset,
    options: RunOptions = RunOptions(),  # noqa: B008
) -> tuple[dict[str, tuple[int, int, int]], list[str]]:
    """Returns (kept, rewritten, added) by bucket where anything is done, and the reasons; asserts that pack does so."""
    said = preview(dataset, options)
    before = _main(dataset)
    pack(dataset, options)
    after = _main(dataset)
    for key, bucket in said.buckets.items():
        old = {name for name in before if name.startswith(f"{key}/")}
        new = {name for name in after if name.startswith(f"{key}/")}
        written = {name for name in new & old if before[name] != after[name]}
        assert (len(new & old) - len(written), len(written), len(new - old), len(old - new)) == (
            bucket.kept,
            bucket.rewritten,
            bucket.added,
            bucket.removed,
        ), key
    assert check(dataset.yaml) == []
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
        assert pipeline.is_up_to_date()
    done = {
        key: (bucket.kept, bucket.rewritten, bucket.added)
        for key, bucket in said.buckets.items()
        if bucket.rewritten or bucket.added
    }
    return done, sorted(said.reasons)


def test_new_rows(dataset: PhotoDataset) -> None:
    dataset.add_photos(3, size=(96, 96))
    assert said_and_done(dataset) == ({SQUARE: (3, 0, 1)}, ["not packed yet"])


def test_removed_rows_rewrite_their_shards_from_the_old_images(dataset: PhotoDataset) -> None:
    """No image is fetched again: there is none to fetch."""
    dataset.rows.remove(dataset.row("k2"))
    moved_away = dataset.root / "images"
    moved_away.rename(dataset.root / "gone")
    said = preview(dataset)
    pack(dataset)
    (dataset.root / "gone").rename(moved_away)
    bucket = said.buckets[SQUARE]
    assert (bucket.kept, bucket.rewritten, bucket.added) == (2, 1, 0)
    assert list(said.reasons) == ["its planned rows or settings have changed"]
    assert check(dataset.yaml) == []


def test_changed_captions_rewrite_single_shards_in_place_from_the_old_images(dataset: PhotoDataset) -> None:
    dataset.row("k2").caption = "another one"
    before = states(dataset.packed)
    shutil.move(dataset.root / "images", dataset.root / "gone")
    pack(dataset)
    shutil.move(dataset.root / "gone", dataset.root / "images")
    written = [name for name in changed(before, states(dataset.packed)) if not name.startswith("work/generation")]
    shard = f"{SQUARE}/shard-000000"
    assert [name for name in written if name.startswith(("main", "side"))] == [
        f"main/{shard}.parquet",
        f"side/{shard}.parquet",
    ]
    assert check(dataset.yaml) == []


def test_a_field_of_the_sidecar_only_rewrites_no_shard(dataset: PhotoDataset) -> None:
    dataset.row("k2").extra["note"] = "goes to meta_info"
    before = _main(dataset)
    packed = pack(dataset)
    assert (packed.written, packed.sidecars) == ({}, 1)
    assert _main(dataset) == before
    assert check(dataset.yaml) == []


def test_a_removed_row_that_comes_back_gets_a_new_place(dataset: PhotoDataset) -> None:
    row = dataset.row("k2")
    at = dataset.rows.index(row)
    dataset.rows.remove(row)
    pack(dataset)
    dataset.rows.insert(at, row)
    done, _ = said_and_done(dataset)
    assert done == {SQUARE: (3, 0, 1)}
    assert _keys(dataset, f"{SQUARE}/shard-000003.parquet") == ["k2"]


def test_removed_changed_and_new_rows_at_once(dataset: PhotoDataset) -> None:
    dataset.rows.remove(dataset.row("k2"))
    dataset.row("k39").caption = "changed"
    dataset.row("k1").size = (96, 96)  # which is a lie: it moves twice
    dataset.rows.insert(0, dataset.photo_row(100, size=(120, 80)))
    pack(dataset)
    assert check(dataset.yaml) == []
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.verify(deep=True).findings == ()


def test_rows_in_another_order_change_nothing(dataset: PhotoDataset) -> None:
    dataset.rows.reverse()
    assert said_and_done(dataset) == ({}, [])


def test_another_path_for_the_same_key_fetches_that_image_only(dataset: PhotoDataset) -> None:
    row = dataset.row("k2")
    replacement = photo(200, (96, 96))
    row.path = "replacement.jpg"
    images = dataset.root / "images"
    images.rename(dataset.root / "gone")
    dataset.write_image("replacement.jpg", replacement.data)
    pack(dataset)
    shutil.copytree(dataset.root / "gone", images, dirs_exist_ok=True)
    assert check(dataset.yaml) == []


def test_a_row_that_is_rejected_becomes_whole_when_its_line_changes(tmp_path: Path) -> None:
    dataset = PhotoDataset(tmp_path / "one")
    dataset.add_photos(8, size=(96, 96))
    good = dataset.row("k3").path
    dataset.row("k3").path = "wrong-name.jpg"
    assert pack(dataset).ledger.total.rejected == {"not_found": 1}
    dataset.row("k3").path = good
    packed = pack(dataset)
    assert packed.ledger.total.packed == 8
    assert check(dataset.yaml) == []


def test_another_integrity_rewrites_shards_in_place_from_the_old_images(dataset: PhotoDataset) -> None:
    before = {key: _keys(dataset, key) for key in dataset.shards()}
    dataset.settings["integrity"] = "load"
    done, reasons = said_and_done(dataset)
    assert reasons == ["its planned rows or settings have changed"]
    assert {key: _keys(dataset, key) for key in dataset.shards()} == before
    assert all(kept == added == 0 for kept, _, added in done.values())


def test_another_mapping_rewrites_shards_in_place_from_the_old_images(dataset: PhotoDataset) -> None:
    """Only those whose columns differ: a row without the field changes nothing."""
    dataset.row("k2").extra["tone"] = "warm"
    pack(dataset)
    (shard,) = [name for name in dataset.shards() if "k2" in _keys(dataset, name)]
    column = pq.read_table(dataset.packed / "main" / shard, columns=["style"])["style"]
    assert set(column.to_pylist()) == {None}
    dataset.settings["direct_more"] = ", style: tone"
    said = preview(dataset)
    (dataset.root / "images").rename(dataset.root / "gone")
    packed = pack(dataset)
    (dataset.root / "gone").rename(dataset.root / "images")
    assert sum(packed.written.values()) == sum(bucket.rewritten for bucket in said.buckets.values()) == 1
    column = pq.read_table(dataset.packed / "main" / shard, columns=["style"])["style"]
    assert set(column.to_pylist()) == {None, "warm"}
    assert check(dataset.yaml) == []


def test_another_schema_of_the_sidecars_writes_them_alone(dataset: PhotoDataset) -> None:
    shards = _main(dataset)
    for more in ('sidecar: {schema_extensions: [{name: filter_clear, type: "struct<score: double>"}]}', ""):
        dataset.settings["more"] = more
        assert said_and_done(dataset) == ({}, [])
        assert _main(dataset) == shards
        for name in dataset.shards():
            names = pq.read_schema(dataset.packed / "side" / name).names
            assert ("filter_clear" in names) == bool(more)


def test_an_image_that_only_the_stricter_check_refuses_comes_and_goes_with_the_setting(tmp_path: Path) -> None:
    """IMG-08: the middle of its pixel data is damaged in a way that Pillow passes over."""
    dataset = PhotoDataset(tmp_path / "one")
    dataset.add_photos(8, size=(160, 160))
    path = dataset.row("k0").path
    data = bytearray(photo(0, (160, 160)).data)
    data[len(data) // 2 : len(data) // 2 + 2] = b"\x00\x00"
    dataset.write_image(path, bytes(data))
    strict = pack(dataset)
    dataset.settings["integrity"] = "load"
    lenient = pack(dataset)
    assert check(dataset.yaml) == []
    dataset.settings["integrity"] = "strict"
    again = pack(dataset)
    assert check(dataset.yaml) == []
    assert strict.ledger.total.rejected == again.ledger.total.rejected == {"corrupt_image": 1}
    assert lenient.ledger.total.rejected == {}


def test_a_format_that_is_refused_no_longer_counts_for_unsized_rows_either(tmp_path: Path) -> None:
    """Verdicts of the manifest step are those of the settings of today."""
    dataset = PhotoDataset(tmp_path / "one", settings={"images_more": ", formats: [JPEG]"})
    dataset.add_photos(20, sizes=False)
    packed = pack(dataset)
    refused = packed.ledger.total.rejected
    assert set(refused) == {"unsupported_format"}
    dataset.settings["images_more"] = ""
    packed = pack(dataset)
    assert packed.ledger.total.rejected == {}
    assert packed.ledger.total.packed == 20
    assert check(dataset.yaml) == []


@pytest.mark.parametrize("settings", [{"shard_size": 5}, {"images_more": ", orientation: stored"}])
def test_what_moves_rows_between_shards_is_refused_without_rewrite(
    dataset: PhotoDataset, settings: dict[str, object]
) -> None:
    dataset.settings |= settings
    config = dataset.config()
    before = states(dataset.packed)
    with open_pipeline(config) as pipeline:
        with pytest.raises(PlanConflict, match="--rewrite"):
            pipeline.preview()
        with pytest.raises(PlanConflict, match="--rewrite"):
            pipeline.build_manifest()
    assert [name for name in changed(before, states(dataset.packed)) if "LEASE" not in name] == []


def test_rewrite_with_larger_shards_removes_those_that_are_left_over(dataset: PhotoDataset) -> None:
    dataset.settings["shard_size"] = 20
    done, reasons = said_and_done(dataset, RunOptions(rewrite=True))
    assert done[SQUARE] == (0, 1, 0)
    assert reasons == ["it is not in the plan any more and is removed", "its planned rows or settings have changed"]
    assert dataset.shards().count(f"{SQUARE}/shard-000001.parquet") == 0
    left = [name for name in states(dataset.packed) if "shard-000001" in name]
    assert left == []


def test_rewrite_with_smaller_shards(dataset: PhotoDataset) -> None:
    dataset.settings["shard_size"] = 3
    done, _ = said_and_done(dataset, RunOptions(rewrite=True))
    assert done[SQUARE] == (0, 3, 3)


def test_rewrite_removes_nothing_before_the_new_shards_are_durable(dataset: PhotoDataset) -> None:
    dataset.settings["shard_size"] = 20
    before = set(dataset.shards())
    config = dataset.config()
    with open_pipeline(config) as pipeline:
        pipeline.build_manifest(RunOptions(rewrite=True))
        (dataset.packed / "main" / SQUARE / "shard-000000.parquet").unlink()
        (dataset.packed / "main" / SQUARE / "shard-000000.parquet").mkdir()  # cannot be written
        report = pipeline.pack_buckets([SQUARE, "0_512/15000"])
        assert report.buckets[SQUARE].problems
        assert set(dataset.shards()) | {f"{SQUARE}/shard-000000.parquet"} >= before


def test_a_rebuild_fetches_everything_and_changes_no_byte(dataset: PhotoDataset) -> None:
    before = _main(dataset)
    said = preview(dataset, RunOptions(rebuild=True))
    assert sum(bucket.rewritten for bucket in said.buckets.values()) == len(before)
    pack(dataset, RunOptions(rebuild=True))
    after = _main(dataset)
    assert {name: state.sha256 for name, state in after.items()} == {n: s.sha256 for n, s in before.items()}
    assert all(after[name].mtime_ns > before[name].mtime_ns for name in before)


def _main(dataset: PhotoDataset) -> dict[str, FileState]:
    return states(dataset.packed / "main")


def _keys(dataset: PhotoDataset, shard: str) -> list[str]:
    return pq.read_table(dataset.packed / "main" / shard, columns=["image_key"])["image_key"].to_pylist()
