"""Runs that are killed at every durable step, and at random ones: the next run ends as if nothing had happened.

The end is the same in every byte that readers see, no temporary file is left, and the independent checker is content.
"""

import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataset_packaging.io.store import Stores
from dataset_packaging.packing.reports import RunOptions
from dataset_packaging_tests.checker import check
from dataset_packaging_tests.packing.injection import Kill, watch
from dataset_packaging_tests.packing.photo_dataset import (
    PhotoDataset,
    Row,
    contents,
    leftovers,
    open_pipeline,
    pack,
    photo,
)
from dataset_packaging_tests.packing.runs import KILLED, pack_on_ray, pack_until_killed

PUT_FILES = [
    "work/DATASET.json",
    "work/generation-N/relocations.parquet",
    "work/generation-N/corrections.parquet",
    "work/generation-N/blocks/N-N.arrows",
    "work/generation-N/blocks/N-N.keys.parquet",
    "work/generation-N/blocks/N-N.rejects.parquet",
    "work/generation-N/keys/fates-N.parquet",
    "work/generation-N/keys/tombstones-N.parquet",
    "work/generation-N/duplicates/BUCKET.parquet",
    "work/generation-N/tombstones/BUCKET.parquet",
    "work/generation-N/plan.parquet",
    "work/generation-N/generation.json",
    "work/CURRENT.json",
    "work/facts/BUCKET/shard-N.parquet",
    "work/receipts/BUCKET/shard-N.json",
    "work/ledger.parquet",
    "work/ledger.json",
    "work/rejects/BUCKET.parquet",
    "work/rejects/manifest.parquet",
    "side/BUCKET/shard-N.parquet",
    "work/sidecar_receipts/BUCKET/shard-N.json",
]
STREAMED_FILES = [
    "work/generation-N/index/BUCKET.parquet",
    "work/generation-N/placement/BUCKET.parquet",
    "work/generation-N/rejects.parquet",
    "main/BUCKET/shard-N.parquet",
]
STEPS = [
    "before put_if_absent work/LEASE.json",
    "after put_if_absent work/LEASE.json",
    "before delete work/LEASE.json",
    "after delete work/LEASE.json",
    *(f"{when} put(_if_absent)? {file}" for file in PUT_FILES for when in ("before", "after")),
    *(
        f"{step} {file}"
        for file in STREAMED_FILES
        for step in ("after open", "after write", "before publish", "after publish")
    ),
]


def small_dataset(root: Path, **settings: object) -> PhotoDataset:
    """Two buckets, two generations: a row that moves, a broken line, a damaged image, a duplicate."""
    dataset = PhotoDataset(root, settings={"shard_size": 4, **settings})
    dataset.add_photos(8, size=(96, 96))
    dataset.add_photos(2, size=(120, 80))
    dataset.row("k5").size = (120, 80)
    dataset.write_image(dataset.row("k6").path, photo(6, (96, 96)).data[:-50])
    dataset.rows += ["{broken", Row("k3", dataset.row("k3").path, "again", (96, 96))]
    return dataset


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> PhotoDataset:
    """Packed without a disturbance; other runs read the same images and write elsewhere."""
    dataset = small_dataset(tmp_path_factory.mktemp("kills"))
    pack(dataset)
    assert check(dataset.yaml) == []
    return dataset


@pytest.fixture
def disturbed(clean: PhotoDataset, tmp_path: Path) -> PhotoDataset:
    return PhotoDataset(clean.root, clean.rows, output=f"{tmp_path}/packed", settings=clean.settings)


def root_of(dataset: PhotoDataset) -> str:
    return f"file://{dataset.packed.resolve()}"


def assert_readers_see_whole_shards(dataset: PhotoDataset) -> None:
    for key in dataset.shards():
        pq.read_table(dataset.packed / "main" / key)


def assert_ends_as(dataset: PhotoDataset, clean: PhotoDataset) -> None:
    assert_readers_see_whole_shards(dataset)
    packed = pack(dataset)
    assert packed.problems == ()
    assert packed.ledger.unbalanced == ()
    assert contents(dataset) == contents(clean)
    assert leftovers(dataset.packed) == []


def test_the_steps_that_kills_are_tried_at_are_all_there_are(disturbed: PhotoDataset) -> None:
    """A new kind of file needs a kill of its own: this fails where one is not listed above."""
    seen: list[str] = []
    with watch(Stores, root_of(disturbed), seen.append):
        pack(disturbed)
    files = {event.split()[-1] for event in seen}
    assert files == {*PUT_FILES, *STREAMED_FILES, "work/LEASE.json"}


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_is_killed_at_a_step(
    disturbed: PhotoDataset, clean: PhotoDataset, tmp_path: Path, step: str
) -> None:
    """PQ-01, RAY-02: object, facts, receipt, ledger, pointer: whatever is missing is made, and nothing twice."""
    disturbed.config()
    hits = tmp_path / "hits"
    hits.mkdir()
    kill = Kill(step, hits, occurrence=3 if " write " in step and "shard" in step else 1)
    assert pack_until_killed(disturbed.yaml, root_of(disturbed), kill) == KILLED
    assert_ends_as(disturbed, clean)


LATER = [
    "after put work/CURRENT.json",
    "before put work/CURRENT.json",
    "after publish main/BUCKET/shard-N.parquet",
    "after put work/receipts/BUCKET/shard-N.json",
    "after put work/generation-N/generation.json",
]


@pytest.mark.parametrize("step", LATER)
def test_a_run_that_is_killed_while_it_places_moved_rows(
    disturbed: PhotoDataset, clean: PhotoDataset, tmp_path: Path, step: str
) -> None:
    """In its second generation, or at its last shard."""
    config = disturbed.config()
    seen: list[str] = []
    rehearsal = PhotoDataset(clean.root, clean.rows, output=f"{tmp_path}/rehearsal", settings=clean.settings)
    with watch(Stores, root_of(rehearsal), seen.append):
        pack(rehearsal)
    config = disturbed.config()
    assert config.output_prefix.endswith("packed/main")
    hits = tmp_path / "hits"
    hits.mkdir()
    kill = Kill(step, hits, occurrence=Counter(seen)[step])
    assert pack_until_killed(disturbed.yaml, root_of(disturbed), kill) == KILLED
    assert_ends_as(disturbed, clean)


def test_a_run_that_is_killed_between_a_new_generation_and_the_use_of_its_retries(tmp_path: Path) -> None:
    """A repaired row is packed once, though the list of repaired rows outlives the generation that used it."""
    dataset = PhotoDataset(tmp_path / "one", settings={"shard_size": 4})
    dataset.add_photos(8, size=(96, 96))
    path = dataset.row("k3").path
    dataset.write_image(path, b"")
    pack(dataset)
    dataset.write_image(path, photo(3, (96, 96)).data)
    hits = tmp_path / "hits"
    hits.mkdir()
    kill = Kill("before delete work/retries/generation-N.parquet", hits)
    options = RunOptions(retry_rejected=("empty_object",))
    assert pack_until_killed(dataset.write_yaml(), root_of(dataset), kill, options) == KILLED
    for _ in range(2):
        assert pack(dataset).ledger.total.packed == 8
        assert check(dataset.yaml) == []
    assert leftovers(dataset.packed) == []


@pytest.mark.parametrize(
    "step",
    [
        "before delete main/BUCKET/shard-N.parquet",
        "after delete work/receipts/BUCKET/shard-N.json",
        "after delete main/BUCKET/shard-N.parquet",
        "before delete side/BUCKET/shard-N.parquet",
        "after publish main/BUCKET/shard-N.parquet",
    ],
)
def test_a_rewrite_that_is_killed(tmp_path: Path, step: str) -> None:
    """Shards that are left over go at the end; a killed rewrite is finished by the next run without being asked."""
    dataset = small_dataset(tmp_path / "one", shard_size=2)
    pack(dataset)
    dataset.settings["shard_size"] = 8
    dataset.config()
    hits = tmp_path / "hits"
    hits.mkdir()
    options = RunOptions(rewrite=True)
    assert pack_until_killed(dataset.yaml, root_of(dataset), Kill(step, hits), options) == KILLED
    assert pack(dataset).problems == ()
    assert check(dataset.yaml) == []
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
        assert pipeline.is_up_to_date()


def test_random_kills(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Twenty of them, at random moments of a run; then one that is not disturbed."""
    count = pytestconfig.getoption("--kill-images")
    dataset = PhotoDataset(tmp_path / "one", settings={"shard_size": 16})
    dataset.add_photos(count)
    dataset.add_photos(count // 8, sizes=False)
    for number in range(5, count, 17):
        dataset.row(f"k{number}").size = (640, 97)
    for number in range(7, count, 23):
        dataset.write_image(dataset.row(f"k{number}").path, photo(number).data[:-40])
    dataset.rows += ["{broken", Row("k3", dataset.row("k3").path, "again", (96, 96))]
    clean = PhotoDataset(dataset.root, dataset.rows, output="clean", settings=dataset.settings)
    seen: list[str] = []
    with watch(Stores, root_of(clean), seen.append):
        pack(clean)
    assert check(clean.yaml) == []
    dataset.config()
    draw = random.Random(20)
    died = 0
    for number in range(20):
        hits = tmp_path / f"hits-{number}"
        hits.mkdir()
        # Late moments of a whole run are never reached by a run that resumes: they are drawn from what is left.
        step = Kill(".*", hits, occurrence=draw.randint(1, max(1, len(seen) // 8)))
        died += pack_until_killed(dataset.yaml, root_of(dataset), step) == KILLED
        assert_readers_see_whole_shards(dataset)
    assert died >= 5
    assert_ends_as(dataset, clean)
    assert check(dataset.yaml) == []


RAY_STEPS = [
    ("after write main/BUCKET/shard-N.parquet", "self"),
    ("before publish main/BUCKET/shard-N.parquet", "everything"),
    ("after publish main/BUCKET/shard-N.parquet", "self"),
    ("after put work/facts/BUCKET/shard-N.parquet", "driver"),
    ("after put work/receipts/BUCKET/shard-N.json", "self"),
    ("before put work/generation-N/blocks/N-N.keys.parquet", "self"),
    ("after publish work/generation-N/index/BUCKET.parquet", "everything"),
]


@pytest.mark.parametrize(("step", "victim"), RAY_STEPS)
def test_a_ray_run_whose_worker_or_driver_is_killed(
    disturbed: PhotoDataset, clean: PhotoDataset, tmp_path: Path, step: str, victim: str
) -> None:
    """RAY-02, DAG-13: a dead worker costs a retry and the run succeeds; a dead driver leaves what the next run ends."""
    disturbed.config()
    hits = tmp_path / "hits"
    hits.mkdir()
    kill = Kill(step, hits, occurrence=2 if " write " in step else 1, victim=victim)  # type: ignore[arg-type]
    run = pack_on_ray(disturbed.yaml, tmp_path / "injected", root=root_of(disturbed), kill=kill)
    assert len(list(hits.iterdir())) >= kill.occurrence, run.stderr
    if victim == "self":
        assert run.returncode == 0, run.stderr
        assert contents(disturbed) == contents(clean)
    else:
        assert run.returncode == KILLED
    assert_ends_as(disturbed, clean)
