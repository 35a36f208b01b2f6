"""Two runs of one dataset at once, dead holders, and prefixes that belong to others."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from dataset_packaging.config import load_dataset
from dataset_packaging.errors import LeaseHeld, PlanConflict
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing import lease
from dataset_packaging.packing.lease import hold_lease
from dataset_packaging_tests.checker import check
from dataset_packaging_tests.packing.photo_dataset import (
    PhotoDataset,
    changed,
    leftovers,
    open_pipeline,
    pack,
    states,
)

SQUARE = "0_512/10000"


@pytest.fixture
def dataset(tmp_path: Path) -> PhotoDataset:
    made = PhotoDataset(tmp_path / "one")
    made.add_photos(10)
    return made


@pytest.fixture
def stores(dataset: PhotoDataset) -> Stores:
    return Stores(StorageConfig.of(dataset.config()))


@pytest.fixture
def uri(dataset: PhotoDataset) -> str:
    return f"file://{dataset.packed / 'work' / 'LEASE.json'}"


def test_a_second_run_is_refused_while_the_first_is_at_work(dataset: PhotoDataset, stores: Stores, uri: str) -> None:
    """DAG-06: it says who is at work, and writes nothing."""
    with hold_lease(stores, uri, "the-first"):
        before = states(dataset.packed)
        with pytest.raises(LeaseHeld, match=r"run the-first .* is at work on this dataset"):
            pack(dataset)
        assert list(changed(before, states(dataset.packed))) == []
    assert pack(dataset).problems == ()
    assert leftovers(dataset.packed) == []


def test_two_runs_started_together_give_the_result_of_one(dataset: PhotoDataset) -> None:
    config = dataset.config()
    outcomes: list[str] = []

    def run() -> None:
        try:
            outcomes.append("packed" if not pack(config).problems else "problems")
        except LeaseHeld:
            outcomes.append("refused")

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes) <= {"packed", "refused"}
    pack(config)
    assert check(dataset.yaml) == []
    assert leftovers(dataset.packed) == []


def test_a_lease_is_entered_again_by_the_same_run(stores: Stores, uri: str) -> None:
    with hold_lease(stores, uri, "one"):
        with hold_lease(stores, uri, "one") as inner:
            assert inner.nested
        assert stores.get(uri)


HOLD_AND_DIE = """
import os, sys
from dataset_packaging.config import load_dataset
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing.lease import hold_lease
stores = Stores(StorageConfig.of(load_dataset(sys.argv[1])))
with hold_lease(stores, sys.argv[2], "the-dead"):
    os._exit(9)
"""


def test_the_lease_of_a_dead_process_does_not_hold(dataset: PhotoDataset, uri: str) -> None:
    """DAG-06: no waiting for it to expire, where its death can be seen."""
    died = subprocess.run([sys.executable, "-c", HOLD_AND_DIE, dataset.write_yaml(), uri], check=False)
    assert died.returncode == 9
    assert Path(uri.removeprefix("file://")).exists()
    pack(dataset)
    assert check(dataset.yaml) == []
    assert leftovers(dataset.packed) == []


def _write(stores: Stores, uri: str, host: str, expires_in_s: float) -> None:
    record = lease.LeaseRecord("elsewhere", host, f"{os.getpid()}:1", lease.time.time() + expires_in_s)
    stores.put(uri, msgspec.json.encode(record))


def test_the_lease_of_another_host_holds_until_it_expires(stores: Stores, uri: str) -> None:
    _write(stores, uri, "another-host", 60)
    with pytest.raises(LeaseHeld, match="another-host"), hold_lease(stores, uri, "mine"):
        pass
    _write(stores, uri, "another-host", -1)
    with hold_lease(stores, uri, "mine"):
        assert b"mine" in bytes(stores.get(uri))


def test_a_damaged_lease_does_not_hold(stores: Stores, uri: str) -> None:
    stores.put(uri, b"{")
    with hold_lease(stores, uri, "mine"):
        pass


def test_a_lease_is_renewed_while_it_is_held(stores: Stores, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    with hold_lease(stores, uri, "mine") as held:
        first = bytes(stores.get(uri))
        renewed = threading.Event()
        while bytes(stores.get(uri)) == first:
            renewed.wait(0.01)
        held.require_held()


def test_a_run_that_lost_its_lease_stops(stores: Stores, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that was suspended wakes up: what another run has planned meanwhile must not be written over."""
    monkeypatch.setattr(lease, "RENEW_S", 0.01)
    with hold_lease(stores, uri, "suspended") as held:
        _write(stores, uri, "another-host", 60)
        lost = threading.Event()
        while not held.lost:
            lost.wait(0.01)
        with pytest.raises(LeaseHeld, match="was lost"):
            held.require_held()
    assert b"elsewhere" in bytes(stores.get(uri))


def test_a_lease_that_could_not_be_renewed_counts_as_lost_at_once(stores: Stores, uri: str) -> None:
    with hold_lease(stores, uri, "suspended") as held:
        held.renewed_at_s -= lease.LEASE_S + 1
        with pytest.raises(LeaseHeld, match="was lost"):
            held.require_held()


def test_a_run_whose_lease_was_taken_publishes_nothing_more(
    dataset: PhotoDataset, stores: Stores, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run waits for nothing: CURRENT.json stays as it was."""
    pack(dataset)
    dataset.add_photos(5)
    monkeypatch.setattr(lease.Lease, "require_held", _lost)
    before = states(dataset.packed)
    with pytest.raises(LeaseHeld, match="lost"):
        pack(dataset)
    after = states(dataset.packed)
    assert [name for name in changed(before, after) if "generation" not in name] == []
    monkeypatch.undo()
    pack(dataset)
    assert check(dataset.yaml) == []


def _lost(_: lease.Lease) -> None:
    raise LeaseHeld("lost")


@pytest.mark.parametrize("folder", ["main", "side", "work"])
def test_a_folder_with_files_of_others_is_refused_before_anything_is_written(
    dataset: PhotoDataset, folder: str
) -> None:
    config = dataset.config()
    stranger = dataset.packed / folder / "0_512" / "thesis.txt"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("mine")
    with open_pipeline(config) as pipeline:
        with pytest.raises(PlanConflict, match=r"thesis\.txt stands below a prefix of photos"):
            pipeline.preview()
        with pytest.raises(PlanConflict, match=r"thesis\.txt stands below a prefix of photos"):
            pipeline.build_manifest()
    assert list(states(dataset.packed)) == [f"{folder}/0_512/thesis.txt"]


def test_the_shards_of_a_dataset_without_its_work_folder_are_not_touched(dataset: PhotoDataset) -> None:
    pack(dataset)
    (dataset.packed / "work").rename(dataset.packed / "elsewhere")
    before = states(dataset.packed)
    with pytest.raises(PlanConflict, match="restore the work_prefix"):
        pack(dataset)
    assert states(dataset.packed) == before


@pytest.mark.parametrize("change", ["name", "output"])
def test_the_work_folder_of_another_dataset_is_refused(dataset: PhotoDataset, change: str) -> None:
    pack(dataset)
    text = dataset.yaml.read_text()
    changed_text = {
        "name": text.replace("name: photos", "name: others"),
        "output": text.replace("output_prefix: packed/main", "output_prefix: packed/other_main"),
    }[change]
    dataset.yaml.write_text(changed_text)
    before = states(dataset.packed)
    with pytest.raises(PlanConflict, match="belongs to dataset 'photos'"):
        pack(load_dataset(dataset.yaml))
    assert states(dataset.packed) == before
