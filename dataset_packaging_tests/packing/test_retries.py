"""Rejected rows that are tried again: which, when, and where they end up. The ledger balances after every step."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataset_packaging.errors import AccessDenied, TransientStoreError
from dataset_packaging.io.local_store import LocalStore
from dataset_packaging.packing.reports import RunOptions
from dataset_packaging_tests.checker import check
from dataset_packaging_tests.packing.photo_dataset import (
    Packed,
    PhotoDataset,
    changed,
    open_pipeline,
    pack,
    photo,
    states,
)
from dataset_packaging_tests.packing.store_faults import Faults

SQUARE = "0_512/10000"


@pytest.fixture
def dataset(tmp_path: Path) -> PhotoDataset:
    """Eight square photographs in one shard."""
    made = PhotoDataset(tmp_path / "one")
    made.add_photos(8, size=(96, 96))
    return made


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults.install(monkeypatch, LocalStore)


def balanced(packed: Packed) -> Packed:
    assert packed.ledger.unbalanced == ()
    return packed


def test_a_row_that_is_not_found_stays_rejected_until_its_reason_is_asked_for(dataset: PhotoDataset) -> None:
    path = dataset.row("k3").path
    data = dataset.image_path(path).read_bytes()
    dataset.image_path(path).unlink()
    assert balanced(pack(dataset)).ledger.total.rejected == {"not_found": 1}
    dataset.write_image(path, data)
    before = states(dataset.packed)
    assert balanced(pack(dataset)).ledger.total.rejected == {"not_found": 1}
    assert list(changed(before, states(dataset.packed))) == []
    assert balanced(pack(dataset, RunOptions(retry_rejected=("archived",)))).written == {}
    repaired = balanced(pack(dataset, RunOptions(retry_rejected=("not_found",))))
    assert repaired.written == {SQUARE: 1}
    assert repaired.ledger.total.rejected == {}
    assert _keys(dataset, 1) == ["k3"]
    after = states(dataset.packed)
    old = [f"main/{SQUARE}/shard-000000.parquet", f"side/{SQUARE}/shard-000000.parquet"]
    assert [before[name] for name in old] == [after[name] for name in old]
    assert check(dataset.yaml) == []


def test_a_row_that_was_denied_is_tried_again_by_every_run(dataset: PhotoDataset, faults: Faults) -> None:
    faults.deny(dataset.row("k3").path)
    packed = balanced(pack(dataset))
    assert packed.ledger.total.rejected == {"access_denied": 1}
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.is_up_to_date() is None
    assert balanced(pack(dataset)).ledger.total.rejected == {"access_denied": 1}
    faults.clear()
    repaired = balanced(pack(dataset))
    assert repaired.ledger.total.rejected == {}
    assert _keys(dataset, 1) == ["k3"]
    assert check(dataset.yaml) == []


def test_a_row_without_a_size_that_was_denied_is_probed_again(dataset: PhotoDataset, faults: Faults) -> None:
    dataset.row("k3").size = None
    faults.deny(dataset.row("k3").path)
    packed = balanced(pack(dataset))
    assert packed.ledger.total.rejected == {"access_denied": 1}
    faults.clear()
    assert balanced(pack(dataset)).ledger.total.rejected == {}
    assert check(dataset.yaml) == []


def test_a_new_attempt_that_fails_for_another_reason_tells_that_reason(dataset: PhotoDataset, faults: Faults) -> None:
    path = dataset.row("k3").path
    faults.deny(path)
    pack(dataset)
    faults.clear()
    dataset.write_image(path, b"not an image")
    assert balanced(pack(dataset)).ledger.total.rejected == {"unsupported_format": 1}
    assert check(dataset.yaml) == []
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
        assert pipeline.is_up_to_date()


def test_a_repaired_image_of_another_size_goes_to_its_right_bucket(dataset: PhotoDataset) -> None:
    path = dataset.row("k3").path
    dataset.write_image(path, b"")
    assert balanced(pack(dataset)).ledger.total.rejected == {"empty_object": 1}
    dataset.write_image(path, photo(3, (120, 80)).data)
    repaired = balanced(pack(dataset, RunOptions(retry_rejected=("empty_object",))))
    assert repaired.written == {"0_512/15000": 1}
    assert check(dataset.yaml) == []


def test_an_image_that_breaks_again_before_it_is_packed_is_rejected_in_its_new_place(dataset: PhotoDataset) -> None:
    path = dataset.row("k3").path
    data = dataset.image_path(path).read_bytes()
    dataset.write_image(path, b"")
    pack(dataset)
    dataset.write_image(path, data)
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.retry(["empty_object"]).succeeded == 1
        assert pipeline.waiting_retries() == 1
        assert pipeline.needs_another_round()
    dataset.write_image(path, b"GIF89a")
    packed = balanced(pack(dataset))
    assert sum(packed.ledger.total.rejected.values()) == 1
    assert "empty_object" not in packed.ledger.total.rejected
    assert check(dataset.yaml) == []


def test_an_outage_leaves_the_shard_unpublished_and_its_rows_pending(dataset: PhotoDataset, faults: Faults) -> None:
    """PQ-10, S3-09: an outage never turns a good image into a reject; the next run packs it."""
    dataset.add_photos(3, size=(120, 80))
    faults.fail(dataset.row("k3").path)
    packed = balanced(pack(dataset))
    assert packed.ledger.total.rejected == {}
    assert (packed.ledger.total.packed, packed.ledger.total.pending) == (3, 8)
    assert any("injected" in problem for problem in packed.problems)
    assert dataset.shards() == ["0_512/15000/shard-000000.parquet"]
    faults.clear()
    assert balanced(pack(dataset)).ledger.total.packed == 11
    assert check(dataset.yaml) == []


def test_an_outage_becomes_a_reject_only_where_the_dataset_says_so(dataset: PhotoDataset, faults: Faults) -> None:
    dataset.settings["images_more"] = ", on_fetch_failure: reject"
    faults.fail(dataset.row("k3").path)
    assert balanced(pack(dataset)).ledger.total.rejected == {"fetch_failed": 1}
    faults.clear()
    assert balanced(pack(dataset)).ledger.total.rejected == {}
    assert check(dataset.yaml) == []


def test_an_outage_while_sizes_are_probed_leaves_rows_pending(dataset: PhotoDataset, faults: Faults) -> None:
    dataset.row("k3").size = None
    faults.fail(dataset.row("k3").path)
    packed = balanced(pack(dataset))
    assert (packed.ledger.total.packed, packed.ledger.total.pending) == (7, 1)
    faults.clear()
    assert balanced(pack(dataset)).ledger.total.packed == 8
    assert check(dataset.yaml) == []


def test_a_store_that_is_down_fails_the_run(tmp_path: Path, faults: Faults) -> None:
    dataset = PhotoDataset(tmp_path / "one", settings={"shard_size": 1})
    dataset.add_photos(12, size=(96, 96))
    faults.fail(".")
    with pytest.raises(TransientStoreError, match="shards in a row"):
        pack(dataset)
    faults.clear()
    assert balanced(pack(dataset)).ledger.total.packed == 12
    assert check(dataset.yaml) == []


def test_a_run_that_is_denied_everything_fails_and_rejects_nothing(dataset: PhotoDataset, faults: Faults) -> None:
    """S3-08."""
    faults.deny(".")
    with pytest.raises(AccessDenied, match="every image that was asked for is denied"):
        pack(dataset)
    faults.clear()
    assert balanced(pack(dataset)).ledger.total.packed == 8


def test_a_run_whose_first_images_are_mostly_denied_fails_early(tmp_path: Path, faults: Faults) -> None:
    """S3-08: also where the shards are small."""
    dataset = PhotoDataset(tmp_path / "one", settings={"shard_size": 50})
    dataset.add_photos(300, size=(32, 32))
    faults.deny("1.", "2.", "3.", "4.", "5.", "6.")
    with pytest.raises(AccessDenied, match="of the first"):
        pack(dataset)
    assert len(faults.asked) < 300


def test_a_few_denied_images_among_many_are_rejects(tmp_path: Path, faults: Faults) -> None:
    """S3-08: 10 % of all, and all of one shard."""
    dataset = PhotoDataset(tmp_path / "one", settings={"shard_size": 50})
    dataset.add_photos(250, size=(32, 32))
    faults.deny("7.", *(f"/{number:05d}." for number in range(100, 150)))
    packed = balanced(pack(dataset))
    assert packed.ledger.total.rejected == {"access_denied": 70}
    assert packed.ledger.total.pending == 0


def test_an_outage_while_the_index_is_read_is_no_damage(dataset: PhotoDataset, faults: Faults) -> None:
    """A transient error must not make anybody rebuild what is whole."""
    config = dataset.config()
    with open_pipeline(config) as pipeline:
        pipeline.build_manifest()
        faults.fail(f"index/{SQUARE}.parquet")
        report = pipeline.pack_buckets([SQUARE])
        (problem,) = report.buckets[SQUARE].problems
        assert "injected" in problem
        assert "rebuilt" not in problem
    faults.clear()
    assert pack(dataset).generation == 1


def _keys(dataset: PhotoDataset, number: int) -> list[str]:
    path = dataset.packed / "main" / SQUARE / f"shard-{number:06d}.parquet"
    return pq.read_table(path, columns=["image_key"])["image_key"].to_pylist()
