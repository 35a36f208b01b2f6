"""Batches of a packed dataset: real shards, real sidecars, local and on S3."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_packaging.errors import ConfigError, IndexDamaged, ManifestError
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.reading import (
    Batch,
    BatchReader,
    PackedDataset,
    ReadSettings,
    RowReader,
    read_block_index,
    write_block_index,
)
from dataset_packaging.reading.epoch_plan import MIX
from dataset_packaging_tests.servers.s3_server import S3Endpoint
from dataset_packaging_tests.small_dataset import SIZES, pack, picture_bytes, rewrite, small_dataset, write_rows

ROWS = 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty rows in three buckets; shards of four rows, row groups of about two."""
    folder = tmp_path_factory.mktemp("reading")
    write_rows(folder, ROWS)
    pack(small_dataset(folder, "").model_copy(update={"packing": _packing()}))
    return folder


def _packing():
    from dataset_packaging.config import PackingConfig

    return PackingConfig(shard_size=4, row_group_bytes=300)


def located(folder: Path) -> PackedDataset:
    return PackedDataset(str(folder / "out/main"), str(folder / "out/side"))


def reader(folder: Path, rank: int = 0, **fields: object) -> BatchReader:
    settings = ReadSettings(**{"batch_size": 3, "run_bytes": 500} | fields)
    return BatchReader(located(folder), settings, rank=rank, sidecar_columns=["full_description", "meta_info"])


def keys(batches: list[Batch]) -> list[str]:
    return [k for b in batches for k, extra in zip(b["image_key"], b.padding, strict=True) if not extra]


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("remainder", ["pad", "carry"])
def test_every_row_comes_once_with_its_image_and_its_sidecar(folder: Path, world_size: int, remainder: str) -> None:
    seen: Counter[str] = Counter()
    for rank in range(world_size):
        for batch in reader(folder, rank, world_size=world_size, remainder=remainder, lanes=2):
            seen.update(keys([batch]))
            for key, image, texts, meta in zip(
                *(batch[name] for name in ("image_key", "image", "full_description", "meta_info")), strict=True
            ):
                number = int(key[-4:])
                assert bytes(image) == picture_bytes(number, SIZES[number % 3])
                assert texts == [f"caption {number}"]
                assert json.loads(meta)["_packaging"]["bytes"] == len(image)
    assert seen == Counter({f"key-{number:04d}": 1 for number in range(ROWS)})


def test_one_batch_is_one_bucket(folder: Path) -> None:
    for batch in BatchReader(located(folder), ReadSettings(3), columns=["width", "height"]):
        assert len({(w, h) for w, h in zip(batch["width"], batch["height"], strict=True)}) == 1


def test_a_loop_is_an_epoch_and_the_next_one_has_another_order(folder: Path) -> None:
    batches = reader(folder)
    first, second = keys(list(batches)), keys(list(batches))
    assert batches.epoch == 2
    assert sorted(first) == sorted(second)
    assert first != second
    batches.set_epoch(0)
    assert keys(list(batches)) == first


@pytest.mark.parametrize("stop", [0, 1, 7, 16])
@pytest.mark.parametrize("lanes", [1, 3])
def test_reading_goes_on_where_it_stopped(folder: Path, stop: int, lanes: int) -> None:
    whole = [b.columns for b in reader(folder, lanes=lanes)]
    first = reader(folder, lanes=lanes)
    steps = iter(first)
    begun = [next(steps).columns for _ in range(stop)]
    state = json.loads(json.dumps(first.state_dict()))
    assert len(json.dumps(state)) < 300
    second = reader(folder, lanes=lanes)
    second.load_state_dict(state)
    assert begun + [b.columns for b in second] == whole
    assert keys(list(second)) != [k for columns in whole for k in columns["image_key"]], "then comes the next epoch"


@pytest.mark.parametrize(
    "change",
    [{"batch_size": 4}, {"seed": 1}, {"world_size": 2}, {"remainder": "drop"}, {"weights": {"0_512/10000": 2}}],
)
def test_a_state_of_other_settings_is_refused(folder: Path, change: dict[str, object]) -> None:
    state = reader(folder).state_dict()
    with pytest.raises(ConfigError, match="made with other settings or another dataset"):
        reader(folder, **change).load_state_dict(state)
    with pytest.raises(ConfigError, match="no state of a reader"):
        reader(folder, lanes=4).load_state_dict(state)


def test_what_is_dropped_or_padded_is_reported(folder: Path) -> None:
    report = reader(folder, remainder="drop", batch_size=4).report()
    assert {key: (entry.rows, entry.dropped) for key, entry in report.items()} == {
        "0_512/10000": (17, 1),
        "0_512/15000": (17, 1),
        "512_1024/10000": (16, 0),
    }
    batches = reader(folder, remainder="drop", batch_size=4)
    assert len(batches) == 12
    assert len(keys(list(batches))) == 48
    padded = reader(folder, remainder="pad", batch_size=4)
    assert sum(entry.padded for entry in padded.report().values()) == 6
    assert {len(batch) for batch in padded} == {4}


def test_weights_repeat_and_leave_out(folder: Path) -> None:
    counts = Counter(keys(list(reader(folder, weights={"0_512/10000": 2, "0_512/15000": 0}))))
    assert {int(key[-4:]) % 3: count for key, count in counts.items()} == {0: 2, 2: 1}


def test_a_sidecar_that_is_not_aligned_is_refused(tmp_path: Path) -> None:
    """SC-02: a caption must not describe another picture."""
    write_rows(tmp_path, 12)
    pack(small_dataset(tmp_path))
    rewrite(tmp_path / "out/side/0_512/10000/shard-000000.parquet", lambda t: t.take(pa.array([1, 0, 2, 3])))
    with pytest.raises(IndexDamaged, match="has other rows, or another order"):
        list(reader(tmp_path))


def test_images_alone_need_no_sidecar(folder: Path) -> None:
    plain = BatchReader(PackedDataset(str(folder / "out/main")), ReadSettings(8))
    assert sum(len(batch) for batch in plain) == ROWS
    assert set(next(iter(plain)).columns) == {"image_key", "image"}
    with pytest.raises(ConfigError, match="sidecar_prefix: needed for the sidecar columns style"):
        next(iter(BatchReader(PackedDataset(str(folder / "out/main")), ReadSettings(8), sidecar_columns=["style"])))


def test_an_index_that_was_written_saves_the_footers(folder: Path, tmp_path: Path) -> None:
    stores = PackedDataset("/").stores()
    index = read_block_index(stores, (folder / "out/main").as_uri())
    write_block_index(stores, (tmp_path / "index.parquet").as_uri(), index)
    again = PackedDataset(str(folder / "out/main"), index_uri=str(tmp_path / "index.parquet"))
    assert again.read_index(stores).table.equals(index.table)
    before = stores.stats()["get"]
    again.read_index(stores)
    assert stores.stats()["get"] - before == 1


def test_an_index_of_other_shards_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path, 12)
    pack(small_dataset(tmp_path))
    stores = PackedDataset("/").stores()
    main = (tmp_path / "out/main").as_uri()
    uri = (tmp_path / "index.parquet").as_uri()
    write_block_index(stores, uri, read_block_index(stores, main))
    dataset = PackedDataset(main, index_uri=uri)
    shard = tmp_path / "out/main/0_512/10000/shard-000000.parquet"
    saved = shard.read_bytes()
    rewrite(shard, lambda table: table.slice(1))
    with pytest.raises(IndexDamaged, match="is not the shard that"):
        dataset.read_index(stores)
    shard.unlink()
    with pytest.raises(IndexDamaged, match="is not the shard that"):
        dataset.read_index(stores)
    shard.write_bytes(saved)
    (shard.parent / "shard-000001.parquet").write_bytes(saved)
    with pytest.raises(IndexDamaged, match=r"shard-000001\.parquet is not in"):
        dataset.read_index(stores)


def test_a_prefix_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no shard is found below"):
        len(BatchReader(PackedDataset(str(tmp_path)), ReadSettings(8)))


def test_single_rows_are_found_by_number_and_by_place(folder: Path) -> None:
    rows = RowReader(located(folder), sidecar_columns=["full_description"])
    assert len(rows) == ROWS
    found = [rows[number] for number in range(ROWS)]
    assert sorted(row["image_key"] for row in found) == [f"key-{number:04d}" for number in range(ROWS)]
    for row in found:
        number = int(row["image_key"][-4:])
        assert row["image"] == picture_bytes(number, SIZES[number % 3])
        assert row["full_description"] == [f"caption {number}"]
    assert rows[-1] == found[-1]
    assert rows.row("0_512/10000", 1, 2)["image_key"] == "key-0018"
    for number in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError):
            rows[number]
    with pytest.raises(IndexError, match="no row 4 in shard 0"):
        rows.row("0_512/10000", 0, 4)


def test_a_row_costs_one_request_for_its_row_group(folder: Path) -> None:
    rows = RowReader(PackedDataset(str(folder / "out/main")))
    assert len(rows) == ROWS
    rows[7]
    stores = rows.blocks.stores
    before = stores.stats()
    rows[6], rows[7]
    assert stores.stats() == before, "the row group at hand and the footer are kept"
    rows[5]
    assert stores.stats()["get"] - before["get"] <= 1


def test_shards_on_s3_are_read_as_local_ones(
    folder: Path, s3_server: S3Endpoint, s3_bucket: str, s3_environ: dict[str, str]
) -> None:
    client = s3_server.client()
    for path in (folder / "out").rglob("*.parquet"):
        client.upload_file(str(path), s3_bucket, str(path.relative_to(folder / "out")))
    remote = PackedDataset(f"s3://{s3_bucket}/main", f"s3://{s3_bucket}/side")
    here, there = (
        [batch.columns for batch in BatchReader(dataset, ReadSettings(3, run_bytes=500), sidecar_columns=["style"])]
        for dataset in (located(folder), remote)
    )
    assert here == there


def _settle(count: Callable[[], int]) -> int:
    """Waits until a count has stood still for a while; what is asserted of it holds at any moment."""
    still, last = 0, count()
    while still < 10:
        time.sleep(0.005)
        still, last = (still + 1, last) if count() == last else (0, count())
    return last


@pytest.mark.parametrize("on_s3", [False, True], ids=["local", "s3"])
def test_a_slow_consumer_finds_no_more_than_the_look_ahead_read(
    folder: Path, s3_server: S3Endpoint, s3_bucket: str, s3_environ: dict[str, str], on_s3: bool
) -> None:
    """Runs of one step each: what is read and not yet delivered is one run more than are mixed."""
    dataset = PackedDataset(str(folder / "out/main"))
    if on_s3:
        client = s3_server.client()
        for path in (folder / "out/main").rglob("*.parquet"):
            client.upload_file(str(path), s3_bucket, str(path.relative_to(folder / "out")))
        dataset = PackedDataset(f"s3://{s3_bucket}/main")
    batches = BatchReader(dataset, ReadSettings(1, run_bytes=1))
    read: list[int] = []
    blocks = batches.blocks
    original = blocks.read
    blocks.read = lambda number: (read.append(number), original(number))[1]  # type: ignore[method-assign]
    delivered = 0
    for _ in batches:
        delivered += 1
        assert _settle(lambda: len(read)) <= MIX + 1 + delivered
    assert (delivered, sorted(set(read))) == (ROWS, list(range(len(batches.index.table))))


@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from(["drop", "pad", "carry"]), st.integers(1, 9), st.data())
@settings(max_examples=25, deadline=None)
def test_stopping_anywhere_misses_and_repeats_nothing(
    folder: Path, world_size: int, lanes: int, remainder: str, batch_size: int, data: st.DataObject
) -> None:
    """Every rank stops after the same step and goes on in a new process's reader, once or more."""
    fields = {"world_size": world_size, "lanes": lanes, "remainder": remainder, "batch_size": batch_size}
    weights = data.draw(st.sampled_from([{}, {"0_512/15000": 0}, {"512_1024/10000": 1.5}]))
    ranks = [reader(folder, rank, weights=weights, **fields) for rank in range(world_size)]
    whole = [[batch.columns for batch in rank] for rank in ranks]
    stops = sorted(data.draw(st.lists(st.integers(0, len(whole[0])), max_size=3)))
    for rank, expected in enumerate(whole):
        state, seen = None, []
        for start, end in pairwise([0, *stops, len(expected)]):
            again = reader(folder, rank, weights=weights, **fields)
            if state is not None:
                again.load_state_dict(state)
            seen += [batch.columns for batch in islice(again, end - start)]
            state = json.loads(json.dumps(again.state_dict()))
        assert seen == expected
    if remainder != "drop" and not weights:
        once = Counter(key for rank in ranks for key in keys(_replay(rank)))
        assert once == Counter({f"key-{number:04d}": 1 for number in range(ROWS)})


def _replay(batches: BatchReader) -> list[Batch]:
    batches.set_epoch(0)
    return list(batches)


def test_importing_the_reader_loads_neither_torch_nor_what_packs() -> None:
    program = "import sys, dataset_packaging.reading; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "ray", "dagster", "boto3", "PIL"} & set(loaded)


def test_stores_of_the_reader_only_read() -> None:
    assert PackedDataset("/x").stores().config == StorageConfig(PackedDataset("/x").s3, None, ())
    assert isinstance(PackedDataset("/x").stores(), Stores)
