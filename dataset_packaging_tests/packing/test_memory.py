"""Bounds of memory, as peaks of resident memory of processes that do one thing. Times are measured by benchmarks."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_packaging.config import WORKER_HEAP, DatasetConfig, load_dataset, set_ray_environment
from dataset_packaging.core.receipts import ShardReceipt, StoredObject, encode_receipt
from dataset_packaging.packing.executor import SerialExecutor
from dataset_packaging.packing.fetch import LOOK_AHEAD_BYTES
from dataset_packaging.packing.fingerprints import main_fingerprint, policy_fingerprint
from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging.packing.reports import SilentProgress
from dataset_packaging_tests.manifests import ManifestSpec, write_manifest
from dataset_packaging_tests.packing.memory_probe import probe

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
BASE_BYTES = 250 * MIB
"""The interpreter, the libraries, and what a worker may take beside what is counted."""

ROW_GROUP_BYTES = 32 * MIB

_DATASET = """
name: memory
manifest: rows.jsonl
output_prefix: out
mapping: {{direct: {{image_key: id, s3_image_path: path, bytes: bytes}}}}
packing: {{shard_size: {shard_size}, row_group_bytes: {row_group_bytes}, max_shard_bytes: 4294967296}}
"""


def _write_dataset(
    folder: Path,
    image: Path,
    rows: int,
    shard_size: int,
    size_px: tuple[int, int],
    row_group_bytes: int = ROW_GROUP_BYTES,
) -> Path:
    """Writes a manifest that names one image again and again, under other keys."""
    folder.mkdir(exist_ok=True)
    facts = {"path": f"file://{image}", "width": size_px[0], "height": size_px[1], "bytes": image.stat().st_size}
    lines = [json.dumps({"id": f"{number:06d}", **facts}) for number in range(rows)]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    yaml = folder / "memory.yaml"
    yaml.write_text(_DATASET.format(shard_size=shard_size, row_group_bytes=row_group_bytes))
    return yaml


def test_workers_get_the_environment_that_the_bounds_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """RAY-03: the heap of a worker gives back what a shard took, so that it does not grow from shard to shard."""
    for name in WORKER_HEAP:
        monkeypatch.delenv(name, raising=False)
    set_ray_environment()
    image = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    for name, value in WORKER_HEAP.items():
        assert os.environ[name] == value
        assert f"{name}={value}" in image  # of the workers of a cluster


@pytest.fixture(scope="module")
def four_mib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image whose bytes are as many as its pixels' samples, and cheap to verify."""
    path = tmp_path_factory.mktemp("images") / "noise.png"
    pixels = np.random.default_rng(1).integers(0, 256, (1024, 1365, 3), np.uint8)
    Image.fromarray(pixels).save(path, compress_level=0)
    return path


def test_memory_does_not_grow_with_the_number_of_shards(tmp_path: Path, four_mib: Path) -> None:
    """PQ-12: 60 shards of 20 MiB against 6, for each step that reads or writes shards."""
    few, many = (
        _write_dataset(tmp_path / str(shards), four_mib, shards * 5, 5, (1365, 1024), 8 * MIB) for shards in (6, 60)
    )
    for step in ("pack", "sidecars", "check", "verify"):
        assert probe(step, many)["peak_bytes"] < 1.2 * probe(step, few)["peak_bytes"], step


def test_the_manifest_step_is_flat_in_the_rows_of_a_bucket(tmp_path: Path) -> None:
    """MAN: 160,000 rows of 4 KB against 32,000, all of one bucket: index and plan hold none of their texts."""
    peaks = []
    for rows in (32_000, 160_000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        write_manifest(folder / "rows.jsonl", ManifestSpec(rows, 4000, sizes=((640, 480),)))
        yaml = folder / "memory.yaml"
        yaml.write_text(f"name: memory\nmanifest: rows.jsonl\noutput_prefix: out\nmapping: {{base_uri: {folder}}}\n")
        peaks.append(probe("manifest", yaml)["peak_bytes"])
    assert peaks[1] < 1.2 * peaks[0]


def test_a_check_of_a_thousand_shards_opens_them_one_after_the_other(tmp_path: Path) -> None:
    """PQ-12: a thousand footers at once would be tens of megabytes."""
    path = tmp_path / "small.png"
    Image.new("L", (16, 16), 7).save(path)
    few, many = (_write_dataset(tmp_path / str(shards), path, shards, 1, (16, 16)) for shards in (100, 1000))
    for step in ("pack", "sidecars", "check", "verify"):
        told = [probe(step, many), probe(step, few)]
        assert [one["packed"] for one in told] == [1000, 100]
        assert told[0]["peak_bytes"] < 1.2 * told[1]["peak_bytes"], step


def test_a_check_holds_less_than_three_row_groups(tmp_path: Path, four_mib: Path) -> None:
    """PQ-08: the whole process, interpreter and libraries included, while it reads three row groups of 64 MiB."""
    row_group_bytes = 64 * MIB
    rows = 3 * row_group_bytes // four_mib.stat().st_size
    yaml = _write_dataset(tmp_path / "large", four_mib, rows, rows, (1365, 1024), row_group_bytes)
    probe("pack", yaml)
    probe("sidecars", yaml)
    (shard,) = (tmp_path / "large" / "out").rglob("*.parquet")
    assert pq.ParquetFile(shard).metadata.num_row_groups == 3
    for step in ("check", "verify"):
        assert probe(step, yaml)["peak_bytes"] < 3 * row_group_bytes, step


@pytest.mark.parametrize(
    ("shards", "shard_mib"), [(1, 64), (4, 64), (16, 64), (1, 1024)], ids=["one", "four", "sixteen", "large"]
)
def test_a_worker_is_flat_in_the_number_and_the_size_of_shards(
    tmp_path: Path, four_mib: Path, shards: int, shard_mib: int
) -> None:
    """RAY-03: the peak is look-ahead, one row group, one decode and the base, whatever the shards hold."""
    rows = shard_mib // 4
    told = probe("pack", _write_dataset(tmp_path, four_mib, shards * rows, rows, (1365, 1024)))
    assert told["packed"] == shards * rows
    assert told["peak_bytes"] <= LOOK_AHEAD_BYTES + ROW_GROUP_BYTES + 4 * 1365 * 1024 + BASE_BYTES


def test_the_largest_images_are_decoded_one_at_a_time(tmp_path: Path) -> None:
    """SCALE: a progressive JPEG is held as all its coefficients; several of 300 megapixels follow each other."""
    side_px = 17_320
    path = tmp_path / "large.jpg"
    with Image.new("L", (side_px, side_px), 128) as image:
        image.save(path, quality=80, progressive=True)
    told = probe("pack", _write_dataset(tmp_path, path, 4, 1000, (side_px, side_px)))
    assert told["packed"] == 4
    assert told["peak_bytes"] <= LOOK_AHEAD_BYTES + ROW_GROUP_BYTES + 4 * side_px**2 + BASE_BYTES


def _pipeline(dataset: DatasetConfig) -> Pipeline:
    return Pipeline(dataset, lambda: nullcontext(SerialExecutor()), SilentProgress(), "test")


def _write_receipts(dataset: DatasetConfig) -> None:
    """Puts an object, facts and a receipt in the place of every planned shard, without packing any."""
    with _pipeline(dataset) as pipeline:
        run = pipeline._run
        current = run.require_current()
        policy = policy_fingerprint(dataset)
        for shard in current.shards:
            stored = []
            places = run.layout.shard_uri(shard.bucket, shard.number), run.layout.facts_uri(shard.bucket, shard.number)
            for uri in places:
                path = Path(uri.removeprefix("file://"))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"0123456789")
                info = run.stores.head(uri)
                stored.append(StoredObject(info.size_bytes, info.tag, "0" * 64))
            receipt = ShardReceipt(
                dataset.name,
                shard.bucket.key,
                shard.number,
                main_fingerprint(dataset, shard),
                stored[0],
                stored[1],
                shard.live_rows,
                shard.live_rows,
                10,
                1,
                policy,
                current.summary.number,
            )
            path = Path(run.layout.receipt_uri(shard.bucket, shard.number).removeprefix("file://"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode_receipt(receipt))


def test_the_driver_is_flat_in_the_number_of_shards(tmp_path: Path, four_mib: Path) -> None:
    """RAY-03: what the driver keeps of 10,000 shards is a few kilobytes each."""
    peaks = []
    for shards in (1_000, 10_000):
        yaml = _write_dataset(tmp_path / str(shards), four_mib, shards, 1, (1365, 1024))
        dataset = load_dataset(yaml, os.environ)
        with _pipeline(dataset) as pipeline:
            pipeline.build_manifest()
        _write_receipts(dataset)
        told = probe("status", yaml)
        assert told["packed"] == shards
        peaks.append(told["peak_bytes"])
    assert peaks[1] - peaks[0] <= 9_000 * 8192


def test_a_million_scores_in_random_order_find_their_rows_in_little_memory(tmp_path: Path) -> None:
    """SCALE: into a million rows; all processes together at one time, Ray's own services included."""
    command = [sys.executable, "-m", "benchmarks.merge_memory", "1000000", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    merged = json.loads(done.stdout.splitlines()[-1])
    assert (merged["keys"], merged["rows"], merged["rows_with_another_score"]) == (1_000_000, 1_000_000, 0)
    assert merged["together_bytes"] < 1.5e9


def test_a_merge_is_flat_in_the_size_of_its_source(tmp_path: Path) -> None:
    """SCALE: 2,000,000 keys in random order, of which the dataset has 200, against 200,000."""
    image = tmp_path / "small.png"
    Image.new("L", (16, 16), 7).save(image)
    yaml = _write_dataset(tmp_path, image, 200, 50, (16, 16))
    probe("pack", yaml)
    with yaml.open("a") as file:
        file.write("sidecar: {merge: [{source: scores.parquet, columns: {aesthetic_score: score}}]}\n")
    peaks = []
    for factor, keys in ((0.25, 200_000), (0.5, 2_000_000)):
        numbers = np.random.default_rng(5).permutation(keys)
        texts = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 6, "0")
        scores = pa.table({"image_key": texts, "score": numbers * factor})
        pq.write_table(scores, tmp_path / "scores.parquet", row_group_size=1 << 17)
        peaks.append(probe("sidecars", yaml)["peak_bytes"])
        landed = pq.read_table(tmp_path / "out_sidecar", columns=["image_key", "aesthetic_score"]).to_pylist()
        assert {int(row["image_key"]): row["aesthetic_score"] for row in landed} == {n: n * factor for n in range(200)}
    assert peaks[1] < 1.2 * peaks[0], peaks
