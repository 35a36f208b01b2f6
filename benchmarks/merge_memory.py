"""A keyed merge into the sidecars of a dataset without images: time, memory, and whether every value is at its key.

The manifest is generated, planned as ever, and its shards are stood in for by facts and receipts, as if all images had
been packed: sidecars are made of index rows alone. The source holds every key once, in random order, as Parquet; with
SOURCE_KEYS it holds more keys, which the dataset does not have.

Usage: python -m benchmarks.merge_memory KEYS FOLDER [SOURCE_KEYS]      (1000000 keys: less than a minute on two cores)
"""

import hashlib
import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.manifest_memory import PeakMemory, peak_memory
from dataset_packaging.config import DatasetConfig, parse_dataset, read_runtime
from dataset_packaging.core.receipts import ShardReceipt, encode_receipt
from dataset_packaging.io.parquet import stored_object, write_table
from dataset_packaging.packing.executor import SerialExecutor, ray_executor
from dataset_packaging.packing.fingerprints import main_fingerprint, policy_fingerprint
from dataset_packaging.packing.index_schema import FACTS_SCHEMA
from dataset_packaging.packing.pipeline import BUCKET_KEYS, Pipeline
from dataset_packaging.packing.planned_rows import read_planned_rows
from dataset_packaging.packing.reports import SilentProgress
from dataset_packaging.packing.run import Run

_DATASET = """\
name: merged
manifest: {folder}/rows.jsonl
output_prefix: {folder}/main
sidecar_prefix: {folder}/side
work_prefix: {folder}/work
mapping: {{direct: {{image_key: id, s3_image_path: path}}}}
packing: {{shard_size: 5000}}
sidecar:
  merge: [{{source: {folder}/scores.parquet, columns: {{aesthetic_score: score}}, mode: prefer_source}}]
"""
_LINES_AT_ONCE = 10_000
_KEYS_AT_ONCE = 1 << 17


def write_sources(folder: Path, keys: int, source_keys: int) -> None:
    """Writes the manifest, and the scores of all its keys, and of others, in random order."""
    with (folder / "rows.jsonl").open("w") as file:
        for start in range(0, keys, _LINES_AT_ONCE):
            file.writelines(
                f'{{"id":"key-{n:09d}","path":"s3://bucket/images/{n:09d}.jpg","width":{300 + n % 900},"height":600}}\n'
                for n in range(start, min(start + _LINES_AT_ONCE, keys))
            )
    order = np.random.default_rng(11).permutation(max(keys, source_keys))
    schema = pa.schema({"image_key": pa.string(), "score": pa.float64()})
    with pq.ParquetWriter(folder / "scores.parquet", schema) as writer:
        for start in range(0, len(order), _KEYS_AT_ONCE):
            part = order[start : start + _KEYS_AT_ONCE]
            writer.write_table(pa.table({"image_key": [f"key-{n:09d}" for n in part], "score": part * 0.5}))


def stand_in(dataset: DatasetConfig) -> int:
    """Puts facts, an object and a receipt at the place of every planned shard; returns the shards."""
    run = Run(dataset, "stand-in", SilentProgress(), lambda: nullcontext(SerialExecutor()))
    current = run.require_current()
    policy = policy_fingerprint(dataset)
    for shard in current.shards:
        rows = read_planned_rows(
            run.stores, current.layout, shard, ["shard", "position", "planned_width", "planned_height"]
        )
        count = len(rows)
        constant = {
            "is_rgba": False, "format": "JPEG", "mode": "RGB", "frames": 1, "exif_orientation": 1, "bytes": 100_000,
            "sha256": "0" * 64, "warnings": None,
        }  # fmt: skip
        width, height = rows["planned_width"], rows["planned_height"]
        given = {
            "position": rows["position"], "width": width, "height": height, "stored_width": width,
            "stored_height": height,
        }  # fmt: skip
        facts = pa.Table.from_arrays(
            [given[f.name] if f.name in given else pa.array([constant[f.name]] * count, f.type) for f in FACTS_SCHEMA],
            schema=FACTS_SCHEMA,
        )
        stored = write_table(run.stores, run.layout.facts_uri(shard.bucket, shard.number), facts)
        info = run.stores.put(run.layout.shard_uri(shard.bucket, shard.number), b"stands in for images")
        main = stored_object(info, hashlib.sha256(b"stands in for images").hexdigest())
        receipt = ShardReceipt(
            dataset.name, shard.bucket.key, shard.number, main_fingerprint(dataset, shard), main, stored, count, count,
            100_000 * count, 1, policy, current.summary.number,
        )  # fmt: skip
        run.stores.put(run.layout.receipt_uri(shard.bucket, shard.number), encode_receipt(receipt))
    return len(current.shards)


def count_wrong(folder: Path) -> tuple[int, int]:
    """Reads every sidecar; returns rows, and rows whose score is not that of their key."""
    rows = wrong = 0
    for path in (folder / "side").rglob("*.parquet"):
        table = pq.ParquetFile(path).read(columns=["image_key", "aesthetic_score"])
        numbers = np.array([int(key[4:]) for key in table["image_key"].to_pylist()], np.float64)
        scores = table["aesthetic_score"].to_numpy(zero_copy_only=False)
        wrong += int(np.count_nonzero(scores != (numbers * 0.5).astype(np.float32)))
        rows += len(table)
    return rows, wrong


def run_merge(folder: Path, keys: int, source_keys: int) -> dict[str, object]:
    """Prepares the dataset and merges; returns the figures of the merge alone."""
    folder.mkdir(parents=True, exist_ok=True)
    write_sources(folder, keys, source_keys)
    dataset = parse_dataset(_DATASET.format(folder=folder), "merged.yaml", folder, os.environ)
    with (
        ray_executor(read_runtime(os.environ)) as executor,
        Pipeline(dataset, lambda: nullcontext(executor), SilentProgress(), f"plan-{os.getpid()}") as pipeline,
    ):
        pipeline.build_manifest()
    shards = stand_in(dataset)
    with ray_executor(read_runtime(os.environ)) as executor, peak_memory() as peak:
        started = time.perf_counter()
        with Pipeline(dataset, lambda: nullcontext(executor), SilentProgress(), f"merge-{os.getpid()}") as pipeline:
            report = pipeline.write_sidecars(BUCKET_KEYS)
        seconds = time.perf_counter() - started
    blocked = [bucket.blocked for bucket in report.buckets.values() if bucket.blocked]
    assert not blocked, blocked[:3]
    return {"source_keys": source_keys, **_figures(folder, keys, shards, seconds, peak)}


def _figures(folder: Path, keys: int, shards: int, seconds: float, peak: PeakMemory) -> dict[str, object]:
    rows, wrong = count_wrong(folder)
    return {
        "keys": keys,
        "rows": rows,
        "rows_with_another_score": wrong,
        "shards": shards,
        "seconds": round(seconds, 1),
        "driver_bytes": peak.driver_bytes,
        "largest_worker_bytes": peak.largest_worker_bytes,
        "workers": len(peak.workers),
        "together_bytes": peak.together_bytes,
    }


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    extra = int(sys.argv[3]) if len(sys.argv) > 3 else wanted
    print(json.dumps(run_merge(Path(sys.argv[2]).resolve(), wanted, extra)))
