"""Whatever is damaged is named by `verify`, with bucket, shard and reason, and rebuilt by `pack`, and nothing else.

Every damage is done to the packed files of a real run; then bytes and times of all others are compared.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.core.invariants import Finding
from dataset_packaging.packing.reports import RunOptions
from dataset_packaging_tests.checker import check
from dataset_packaging_tests.packing.photo_dataset import (
    FileState,
    PhotoDataset,
    changed,
    contents,
    open_pipeline,
    pack,
    photo,
    states,
)

SQUARE = "0_512/10000"
SHARD = f"{SQUARE}/shard-000001.parquet"
RECEIPT = f"work/receipts/{SQUARE}/shard-000001.json"
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[PhotoDataset, Path]:
    """A packed dataset of two generations (moved rows, tombstones, rejects), and a copy of it."""
    folder = tmp_path_factory.mktemp("pristine")
    dataset = PhotoDataset(folder / "one", manifest="../manifest.jsonl")  # which stays as it is
    dataset.add_photos(40)
    dataset.row("k5").size = (160, 90)
    dataset.write_image(dataset.row("k7").path, photo(7).data[:-50])
    pack(dataset)
    shutil.copytree(dataset.root, folder / "copy")
    return dataset, folder / "copy"


@pytest.fixture
def dataset(pristine: tuple[PhotoDataset, Path]) -> PhotoDataset:
    """The packed dataset, whole again: files that were restored are stamped anew by one more run."""
    original, copy = pristine
    shutil.rmtree(original.root)
    shutil.copytree(copy, original.root)
    restored = PhotoDataset(original.root, list(original.rows), manifest=original.manifest)
    pack(restored)
    return restored


def cut_by_one_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def cut_in_half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flip_a_byte(path: Path) -> None:
    """In the first data page; same length."""
    with path.open("r+b") as file:
        file.seek(200)
        byte = file.read(1)
        file.seek(200)
        file.write(bytes([byte[0] ^ 0xFF]))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_another_shard(path: Path) -> None:
    shutil.copyfile(path.with_name("shard-000000.parquet"), path)


def replace_by_another_table(path: Path) -> None:
    pq.write_table(pa.table({"image": [b"of another dataset"]}), path)


def write_junk(path: Path) -> None:
    path.write_bytes(b"{not json")


def remove(path: Path) -> None:
    path.unlink()


ALL = [cut_by_one_byte, flip_a_byte, empty, replace_by_another_shard, remove]
names = {"ids": lambda damage: damage.__name__}


def verified(dataset: PhotoDataset, *, deep: bool = False) -> list[Finding]:
    with open_pipeline(dataset.config()) as pipeline:
        return list(pipeline.verify(deep=deep).findings)


@pytest.mark.parametrize("damage", [*ALL, cut_in_half, replace_by_another_table, write_junk], **names)
def test_a_damaged_shard(dataset: PhotoDataset, damage: Damage) -> None:
    """PQ-06: a shard is never trusted by its name or by its footer."""
    before = states(dataset.packed)
    damage(dataset.packed / "main" / SHARD)
    found = verified(dataset)
    (finding,) = [each for each in found if each.check == "shard_state"]
    assert (finding.bucket, finding.shard) == (SQUARE, 1)
    assert {each.bucket for each in found} == {SQUARE}, "what is whole is not named"
    assert "object" in finding.detail
    rebuilt = pack(dataset)
    assert rebuilt.written == {SQUARE: 1}
    after = states(dataset.packed)
    assert set(changed(before, after)) <= {f"main/{SHARD}", f"work/facts/{SHARD}", RECEIPT}
    assert after[f"main/{SHARD}"].sha256 == before[f"main/{SHARD}"].sha256
    assert check(dataset.yaml) == []
    assert verified(dataset, deep=True) == []


@pytest.mark.parametrize("damage", ALL, **names)
def test_a_damaged_sidecar(dataset: PhotoDataset, damage: Damage) -> None:
    before = states(dataset.packed)
    damage(dataset.packed / "side" / SHARD)
    found = verified(dataset)
    (finding,) = [each for each in found if each.check == "sidecar_state"]
    assert (finding.bucket, finding.shard) == (SQUARE, 1)
    assert {each.bucket for each in found} == {SQUARE}, "what is whole is not named"
    rebuilt = pack(dataset)
    assert (rebuilt.written, rebuilt.sidecars) == ({}, 1)
    after = states(dataset.packed)
    assert set(changed(before, after)) == {f"side/{SHARD}", RECEIPT.replace("receipts", "sidecar_receipts")}
    assert after[f"side/{SHARD}"].sha256 == before[f"side/{SHARD}"].sha256
    assert verified(dataset, deep=True) == []


def stale(path: Path) -> None:
    """The receipt of another plan: it parses and adds up."""
    path.write_text(path.read_text().replace('"fingerprint":"', '"fingerprint":"00'))


def of_another_dataset(path: Path) -> None:
    path.write_text(path.read_text().replace('"dataset":"photos"', '"dataset":"others"'))


def of_another_shard(path: Path) -> None:
    shutil.copyfile(path.with_name("shard-000000.json"), path)


RECEIPT_DAMAGES = [remove, stale, write_junk, cut_by_one_byte, of_another_dataset, of_another_shard]


@pytest.mark.parametrize("damage", RECEIPT_DAMAGES, **names)
@pytest.mark.parametrize("kind", ["shard", "sidecar"])
def test_a_damaged_receipt(dataset: PhotoDataset, kind: str, damage: Damage) -> None:
    before = states(dataset.packed)
    receipt = RECEIPT if kind == "shard" else RECEIPT.replace("receipts", "sidecar_receipts")
    damage(dataset.packed / receipt)
    (finding,) = [each for each in verified(dataset) if each.check == f"{kind}_state"]
    assert (finding.bucket, finding.shard) == (SQUARE, 1)
    assert ("receipt" in finding.detail) == (damage is not stale)
    pack(dataset)
    after = states(dataset.packed)
    assert all(name.endswith(("shard-000001.parquet", "shard-000001.json")) for name in changed(before, after))
    assert {name: state.sha256 for name, state in after.items() if name.startswith(("main", "side"))} == {
        name: state.sha256 for name, state in before.items() if name.startswith(("main", "side"))
    }
    assert verified(dataset, deep=True) == []


@pytest.mark.parametrize("damage", [remove, flip_a_byte, empty, cut_by_one_byte], **names)
def test_damaged_facts(dataset: PhotoDataset, damage: Damage) -> None:
    """What verification found is found out again from the shard itself: no image is fetched."""
    before = states(dataset.packed)
    facts = f"work/facts/{SHARD}"
    damage(dataset.packed / facts)
    (finding,) = [each for each in verified(dataset) if each.check == "shard_state"]
    assert (finding.bucket, finding.shard) == (SQUARE, 1)
    assert "facts" in finding.detail
    shutil.rmtree(dataset.root / "images")
    pack(dataset)
    after = states(dataset.packed)
    assert set(changed(before, after)) <= {facts, RECEIPT, f"main/{SHARD}"}
    assert [name for name in before if before[name].sha256 != after[name].sha256] == [RECEIPT]
    assert verified(dataset, deep=True) == []


WORK_FILES = {
    "index": f"generation-000002/index/{SQUARE}.parquet",
    "placement": f"generation-000002/placement/{SQUARE}.parquet",
    "tombstones": "generation-000002/tombstones/0_512/17778.parquet",
    "plan": "generation-000002/plan.parquet",
    "summary": "generation-000002/generation.json",
    "rejects of the manifest": "generation-000002/rejects.parquet",
    "corrections": "generation-000002/corrections.parquet",
    "relocations": "generation-000002/relocations.parquet",
    "pointer": "CURRENT.json",
    "owner": "DATASET.json",
}


@pytest.mark.parametrize("damage", [remove, flip_a_byte], **names)
@pytest.mark.parametrize("file", WORK_FILES.values(), ids=WORK_FILES.keys())
def test_a_damaged_work_file(dataset: PhotoDataset, file: str, damage: Damage) -> None:
    """An index that is lost is made from the manifest again; no row changes its place, and no shard is written."""
    path = dataset.packed / "work" / file
    if damage is flip_a_byte and path.stat().st_size < 201:
        damage = write_junk
    before = _output(dataset)
    damage(path)
    found = [each for each in verified(dataset) if each.check == "work_files"]
    assert any(file in each.detail for each in found)
    expected_bucket = "/".join(file.removesuffix(".parquet").split("/")[-2:]) if "0_512" in file else None
    assert {each.bucket for each in found} == {expected_bucket}
    again = pack(dataset)
    assert (again.written, again.sidecars) == ({}, 0)
    assert list(changed(before, _output(dataset))) == []
    assert verified(dataset, deep=True) == []
    assert check(dataset.yaml) == []
    with open_pipeline(dataset.config()) as pipeline:
        assert "up to date" in (pipeline.is_up_to_date() or "")


@pytest.mark.parametrize("files", [("index", "placement"), ("plan", "tombstones"), ("summary", "pointer")])
def test_several_damaged_work_files_at_once(dataset: PhotoDataset, files: tuple[str, str]) -> None:
    """Where index and placement of one bucket are lost, the generation before is replayed."""
    before = _output(dataset)
    for name in files:
        empty(dataset.packed / "work" / WORK_FILES[name])
    pack(dataset)
    assert list(changed(before, _output(dataset))) == []
    assert verified(dataset, deep=True) == []


def test_damage_of_every_kind_at_once_is_named_and_repaired_at_once(dataset: PhotoDataset) -> None:
    """A damaged index must not hide a damaged shard."""
    before = _output(dataset)
    empty(dataset.packed / "work" / WORK_FILES["index"])
    cut_by_one_byte(dataset.packed / "main" / SHARD)
    remove(dataset.packed / "side" / "0_512/6667/shard-000000.parquet")
    write_junk(dataset.packed / "work/receipts/0_512/15000/shard-000000.json")
    found = {(finding.check, finding.bucket, finding.shard) for finding in verified(dataset)}
    assert found >= {
        ("work_files", SQUARE, None),
        ("shard_state", SQUARE, 1),
        ("sidecar_state", "0_512/6667", 0),
        ("shard_state", "0_512/15000", 0),
    }
    pack(dataset)
    after = _output(dataset)
    assert set(changed(before, after)) == {
        f"main/{SHARD}",
        "main/0_512/15000/shard-000000.parquet",
        "side/0_512/6667/shard-000000.parquet",
    }
    assert verified(dataset, deep=True) == []
    assert check(dataset.yaml) == []


def test_damaged_places_and_a_grown_manifest_at_once(dataset: PhotoDataset) -> None:
    before = _output(dataset)
    remove(dataset.packed / "work" / WORK_FILES["placement"])
    dataset.add_photos(8)
    pack(dataset)
    after = _output(dataset)
    assert {name: after[name] for name in before} == before
    assert check(dataset.yaml) == []


def test_all_generations_are_lost(dataset: PhotoDataset) -> None:
    """The plan is made from the manifest alone: right again, though rows that had moved take their first places."""
    shutil.rmtree(dataset.packed / "work" / "generation-000001")
    shutil.rmtree(dataset.packed / "work" / "generation-000002")
    pack(dataset)
    assert check(dataset.yaml) == []
    assert verified(dataset, deep=True) == []


DERIVED = ["ledger.json", "ledger.parquet", f"rejects/{SQUARE}.parquet", "rejects/manifest.parquet"]


@pytest.mark.parametrize("damage", [remove, cut_by_one_byte], **names)
@pytest.mark.parametrize("file", DERIVED)
def test_a_damaged_ledger_or_reject_list(dataset: PhotoDataset, file: str, damage: Damage) -> None:
    before = states(dataset.packed)
    damage(dataset.packed / "work" / file)
    (finding,) = verified(dataset)
    assert finding.check == "work_files"
    assert file in finding.detail
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.is_up_to_date() is None
    pack(dataset)
    after = states(dataset.packed)
    assert list(changed(before, after)) == [f"work/{file}"]
    assert after[f"work/{file}"].sha256 == before[f"work/{file}"].sha256


def test_a_reject_list_of_a_bucket_without_rejects_is_removed(dataset: PhotoDataset) -> None:
    stray = dataset.packed / "work/rejects/0_512/15000.parquet"
    shutil.copyfile(dataset.packed / f"work/rejects/{SQUARE}.parquet", stray)
    assert [finding.check for finding in verified(dataset)] == ["work_files"]
    pack(dataset)
    assert not stray.exists()


def test_bytes_that_changed_without_a_trace_are_found_by_looking_at_each(dataset: PhotoDataset) -> None:
    """A disk that forgets: size and times are right. `verify --deep` sees it; `--rebuild` repairs it."""
    path = dataset.packed / "main" / SHARD
    good = path.read_bytes()
    receipt = (dataset.packed / RECEIPT).read_text()
    flip_a_byte(path)
    now = path.stat()
    old_tag = receipt.split('"tag":"')[1].split('"')[0]
    (dataset.packed / RECEIPT).write_text(receipt.replace(old_tag, f"{now.st_mtime_ns}-{now.st_ctime_ns}"))
    found = verified(dataset, deep=True)
    assert {(finding.bucket, finding.shard) for finding in found} == {(SQUARE, 1)}
    assert "shard_state" in {finding.check for finding in found}
    pack(dataset, RunOptions(rebuild=True))
    assert path.read_bytes() == good
    assert verified(dataset, deep=True) == []


def test_a_restored_copy_of_everything_needs_no_packing(dataset: PhotoDataset) -> None:
    """Other times, the same bytes: the hash decides, and the receipts are stamped anew."""
    for path in dataset.packed.rglob("*"):
        if path.is_file():
            os.utime(path)
    assert verified(dataset, deep=True) == []
    before = _output(dataset)
    again = pack(dataset)
    assert (again.written, again.sidecars) == ({}, 0)
    assert list(changed(before, _output(dataset))) == []


def test_a_shard_that_the_plan_does_not_have_is_removed(dataset: PhotoDataset) -> None:
    before = contents(dataset)
    stray = dataset.packed / "main" / SQUARE / "shard-000099.parquet"
    shutil.copyfile(dataset.packed / "main" / SHARD, stray)
    found = verified(dataset)
    assert {finding.check for finding in found} == {"foreign_files", "contiguous_shards"}
    assert {finding.bucket for finding in found} == {SQUARE}
    pack(dataset)
    assert contents(dataset) == before


def test_a_file_of_somebody_else_beside_the_shards_is_a_finding_and_stays(dataset: PhotoDataset) -> None:
    (dataset.packed / "main" / SQUARE / "notes.txt").write_text("mine")
    (dataset.packed / "side" / "README.md").write_text("mine")
    pack(dataset)
    found = verified(dataset)
    assert {finding.check for finding in found} == {"foreign_files"}
    assert (dataset.packed / "side" / "README.md").exists()


def _output(dataset: PhotoDataset) -> dict[str, FileState]:
    return {name: state for name, state in states(dataset.packed).items() if name.startswith(("main/", "side/"))}
