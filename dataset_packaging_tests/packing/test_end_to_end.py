"""Datasets of photographs through the whole pipeline, judged by the independent checker."""

import gzip
import hashlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

from dataset_packaging.config import load_dataset
from dataset_packaging.errors import ManifestError
from dataset_packaging.packing.reports import RunOptions
from dataset_packaging_tests.checker import check
from dataset_packaging_tests.packing.photo_dataset import (
    FileState,
    PhotoDataset,
    Row,
    changed,
    contents,
    leftovers,
    open_pipeline,
    pack,
    photo,
    states,
)


@pytest.fixture
def dataset(tmp_path: Path) -> PhotoDataset:
    """Sizes told, untold and wrong; duplicates, broken lines, damaged and missing images."""
    made = PhotoDataset(tmp_path / "one")
    made.add_photos(30)
    made.add_photos(20, sizes=False)
    made.rows += ["{broken", "", '{"id": "no path"}']
    made.rows.append(Row("k3", made.row("k3").path, "again", (96, 96)))
    made.row("k5").size = (160, 90)
    made.write_image(made.row("k7").path, photo(7).data[:-50])
    made.image_path(made.row("k8").path).unlink()
    made.write_image(made.row("k40").path, b"not an image")
    return made


def test_every_row_has_the_fate_that_the_contract_says(dataset: PhotoDataset) -> None:
    packed = pack(dataset)
    assert packed.problems == ()
    assert check(dataset.yaml) == []
    total = packed.ledger.total
    assert (total.rows, total.packed, total.duplicates, total.pending) == (53, 47, 1, 0)
    reasons = {"truncated_image": 1, "not_found": 1, "bad_row": 1, "missing_path": 1, "unsupported_format": 1}
    assert total.rejected == reasons
    assert packed.ledger.unbalanced == ()
    assert leftovers(dataset.packed) == []
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.verify(deep=True).findings == ()


def test_the_same_input_gives_the_same_bytes_in_two_places(dataset: PhotoDataset) -> None:
    pack(dataset)
    elsewhere = PhotoDataset(dataset.root, dataset.rows, output="elsewhere")
    pack(elsewhere)
    assert contents(elsewhere) == contents(dataset)


def test_a_second_run_writes_nothing(dataset: PhotoDataset) -> None:
    pack(dataset)
    before = states(dataset.packed)
    with open_pipeline(dataset.config()) as pipeline:
        assert "up to date" in (pipeline.is_up_to_date() or "")
        assert pipeline.preview().unchanged
    again = pack(dataset)
    assert (again.written, again.sidecars) == ({}, 0)
    assert list(changed(before, states(dataset.packed))) == []


def test_a_manifest_of_other_bytes_and_the_same_rows_writes_no_shard(dataset: PhotoDataset) -> None:
    """DAG-12: the plan is made anew, and proves that everything is right already."""
    pack(dataset)
    before = _output(dataset)
    dataset.rows.insert(0, "")
    again = pack(dataset)
    assert again.generation == 3
    assert list(changed(before, _output(dataset))) == []
    assert check(dataset.yaml) == []


def test_new_rows_come_into_new_shards_and_old_ones_stay(dataset: PhotoDataset) -> None:
    pack(dataset)
    before = _output(dataset)
    dataset.add_photos(20)
    pack(dataset)
    after = _output(dataset)
    assert {name: after[name] for name in before} == before
    new_keys = {f"k{number}" for number in range(len(dataset.rows) - 20, len(dataset.rows))}
    added = [name for name in after if name not in before and name.startswith("main/")]
    assert added
    for name in added:
        assert set(pq.read_table(dataset.packed / name, columns=["image_key"])["image_key"].to_pylist()) <= new_keys
    assert check(dataset.yaml) == []


def test_a_row_whose_size_was_told_wrong_stands_in_its_right_bucket(dataset: PhotoDataset) -> None:
    """BKT-01: the bucket is that of the decoded image; the place that it was planned for stays empty."""
    assert dataset.row("k5").size == (160, 90)
    packed = pack(dataset)
    assert packed.generation == 2
    table = pq.read_table(dataset.packed / "main", columns=["image_key", "width", "height"])
    row = table.to_pylist()[table["image_key"].to_pylist().index("k5")]
    assert (row["width"], row["height"]) == (photo(5).width_px, photo(5).height_px)
    tombstones = list((dataset.packed / "work").rglob("tombstones/*/*.parquet"))
    assert [pq.read_table(path).num_rows for path in tombstones] == [1]


def test_a_shard_whose_every_row_is_rejected_has_no_rows_and_leaves_no_gap(tmp_path: Path) -> None:
    """PQ-11: readers that count from 0 meet every number."""
    dataset = PhotoDataset(tmp_path, settings={"shard_size": 2})
    for row in dataset.add_photos(6, size=(96, 96))[2:4]:
        dataset.write_image(row.path, b"")
    pack(dataset)
    counts = [pq.read_metadata(dataset.packed / "main" / key).num_rows for key in dataset.shards()]
    assert counts == [2, 0, 2]
    assert check(dataset.yaml) == []


def test_a_row_that_repeats_a_key_is_a_duplicate_whatever_becomes_of_its_image(tmp_path: Path) -> None:
    """The first row of a key stays, also where its image tells no size; a later one is never packed in its stead."""
    dataset = PhotoDataset(tmp_path)
    dataset.add_photos(4, sizes=False)
    dataset.write_image("broken.jpg", b"not an image")
    first_is_broken = Row("k0", "broken.jpg", "first", None)
    dataset.rows.insert(0, first_is_broken)
    dataset.rows.append(Row("k1", "broken.jpg", "last", None))
    packed = pack(dataset)
    assert check(dataset.yaml) == []
    total = packed.ledger.total
    assert (total.packed, total.rejected, total.duplicates) == (3, {"unsupported_format": 1}, 2)
    assert packed.ledger.unbalanced == ()


def test_what_the_manifest_tells_of_the_bytes_decides_before_the_decoder(tmp_path: Path) -> None:
    """IMG-08: whole or damaged, a file of other bytes than the source had is no file of the source."""
    checks = ", sha256: sha256, md5: md5, bytes: size"
    dataset = PhotoDataset(tmp_path / "one", settings={"direct_more": checks})
    rows = dataset.add_photos(9, size=(96, 96))
    for row in rows:
        data = dataset.image_path(row.path).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        row.extra |= {"sha256": digest.upper(), "md5": hashlib.md5(data).hexdigest(), "size": len(data)}
    rows[0].extra["sha256"] = "0" * 64
    rows[1].extra["md5"] = "0" * 32
    rows[2].extra["size"] = str(len(photo(2, (96, 96)).data) + 1)
    dataset.write_image(rows[3].path, photo(30, (96, 96)).data)  # whole, and another picture
    dataset.write_image(rows[4].path, photo(4, (96, 96)).data[:-50])
    rows[5].size = None
    rows[5].extra["md5"] = "1" * 32
    rows[6].extra |= {"sha256": None, "size": None}
    packed = pack(dataset)
    assert packed.ledger.total.rejected == {"checksum_mismatch": 6}
    assert check(dataset.yaml) == []
    with open_pipeline(dataset.config()) as pipeline:
        assert {str(row["image_key"]) for row in pipeline.rejects()} == {f"k{number}" for number in range(6)}
        assert pipeline.is_up_to_date()  # permanent: no run tries them again


def test_a_trial_run_takes_the_first_rows_and_a_whole_run_keeps_them(dataset: PhotoDataset) -> None:
    config = dataset.config()
    with open_pipeline(config) as pipeline:
        manifest = pipeline.build_manifest(RunOptions(limit_rows=10))
        assert manifest.rows == 10
        pipeline.pack_buckets(list(manifest.buckets))
    before = {name: state for name, state in states(dataset.packed).items() if name.startswith("main/")}
    pack(dataset)
    after = states(dataset.packed)
    assert {name: after[name] for name in before} == before
    assert check(dataset.yaml) == []


def test_all_forms_of_the_manifest_give_the_same_shards(dataset: PhotoDataset) -> None:
    pack(dataset)
    plain = contents(dataset)
    zipped = PhotoDataset(dataset.root, dataset.rows, output="zipped")
    zipped.config()
    (zipped.root / zipped.manifest).write_bytes(gzip.compress((zipped.root / zipped.manifest).read_bytes()))
    pack(load_dataset(zipped.write_yaml()))
    assert contents(zipped) == plain


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_the_end_of_a_line_ends_a_row(tmp_path: Path, end: str) -> None:
    """MAN-01: captions hold what other readers take for line ends; lines are counted as an editor counts them."""
    dataset = PhotoDataset(tmp_path / "one")
    captions = ["a\u2028b", "c\u2029d", "e\x85f", "g", "h\u000bi\u000cj"]
    for row, caption in zip(dataset.add_photos(5, size=(96, 96)), captions, strict=True):
        row.caption = caption
    config = dataset.config()
    rows = [row.line() for row in dataset.rows if isinstance(row, Row)]
    text = end.join(["", rows[0], rows[1], "", "  ", "{broken", *rows[2:]])  # and no end behind the last one
    (dataset.root / dataset.manifest).write_bytes(text.encode())
    packed = pack(config)
    assert (packed.ledger.total.rows, packed.ledger.total.packed) == (6, 5)
    side = pq.read_table(dataset.packed / "side", columns=["image_key", "full_description"]).to_pydict()
    assert dict(zip(side["image_key"], side["full_description"], strict=True)) == {
        f"k{number}": [caption] for number, caption in enumerate(captions)
    }
    with open_pipeline(config) as pipeline:
        (reject,) = pipeline.rejects()
    assert (reject["reason"], reject["line"]) == ("bad_row", 6)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_manifest_that_is_cut_off_fails_the_run_and_changes_nothing(dataset: PhotoDataset, compression: str) -> None:
    """MAN-02, MAN-08: never a shorter dataset, whether it was packed before or not; two members or frames are whole."""
    compress = gzip.compress if compression == "gzip" else zstandard.compress
    config = dataset.config()
    manifest = dataset.root / dataset.manifest
    lines = manifest.read_bytes().splitlines(keepends=True)
    whole = compress(b"".join(lines[:20])) + compress(b"".join(lines[20:]))
    manifest.write_bytes(whole[:-9])
    with pytest.raises(ManifestError, match="upload the file again"):
        pack(config)
    assert [name for name in states(dataset.packed) if name.startswith(("main/", "side/", "work/CURRENT"))] == []
    manifest.write_bytes(whole)
    assert pack(config).ledger.total.rows == len([line for line in lines if line.strip()])
    before = _output(dataset)
    manifest.write_bytes(whole[:-9])
    with pytest.raises(ManifestError, match="upload the file again"):
        pack(config)
    assert _output(dataset) == before
    with open_pipeline(config) as pipeline:
        assert pipeline.verify().findings == ()


def _output(dataset: PhotoDataset) -> dict[str, FileState]:
    return {name: state for name, state in states(dataset.packed).items() if name.startswith(("main/", "side/"))}
