"""Latency of one row at random: our reader by the index of row groups, against pyarrow on the same files, in turn.

Shards of random bytes in place of images, in the layout of a packed dataset, below a local folder or an S3 prefix.
Every way gets the same rows in the same order and returns the same bytes; between two of ours no row group is kept.

Usage: python -m benchmarks.random_access PREFIX|seaweedfs [--rows 4000] [--asked 200] [--endpoint URL]

`seaweedfs` starts the S3 server of the tests for the time of the measurement.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.config import S3Config
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import shard_name
from dataset_packaging.core.schema import IMAGE_COLUMN, KEY_COLUMN, MAIN_SCHEMA
from dataset_packaging.io.parquet import open_hashing_sink, open_parquet, shard_writer
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.reading import PackedDataset, RowReader
from dataset_packaging_tests.servers.seaweedfs import SeaweedServer

BUCKET = Bucket.parse("512_1024/10000")
SHARD_ROWS = 1000
IMAGE_BYTES = (80_000, 320_000)
ROW_GROUP_BYTES = (4 << 20, 64 << 20)
"""Small row groups, and the default of `packing.row_group_bytes`."""

Way = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds of one way."""

    median_ms: float
    p95_ms: float


def write_shards(stores: Stores, prefix: str, rows: int, row_group_bytes: int) -> None:
    """Writes shards whose images are random bytes, the same each time."""
    rng = random.Random(7)
    for shard in range(-(-rows // SHARD_ROWS)):
        uri = f"{prefix}/{BUCKET.key}/{shard_name(shard)}.parquet"
        with (
            open_hashing_sink(stores, uri) as sink,
            shard_writer(pa.PythonFile(sink, mode="w"), MAIN_SCHEMA, IMAGE_COLUMN) as writer,
        ):
            for group in _groups(rng, shard, min(SHARD_ROWS, rows - shard * SHARD_ROWS), row_group_bytes):
                writer.write_table(pa.Table.from_pylist(group, MAIN_SCHEMA))


def _groups(rng: random.Random, shard: int, rows: int, row_group_bytes: int) -> Iterator[list[dict[str, object]]]:
    group: list[dict[str, object]] = []
    size = 0
    for row in range(rows):
        image = rng.randbytes(rng.randint(*IMAGE_BYTES))
        place = {"width": 1000, "height": 1000, "is_rgba": False, "s3_image_path": f"s3://b/{shard}/{row}.jpg"}
        group.append({KEY_COLUMN: f"{shard}/{row}", IMAGE_COLUMN: image, **place})
        size += len(image)
        if size >= row_group_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def ways(stores: Stores, storage: StorageConfig, prefix: str) -> dict[str, Way]:
    """Returns the ways to one row, by name; what each reads once is read here."""
    reader = RowReader(PackedDataset(prefix, s3=storage.s3), columns=[IMAGE_COLUMN], kept_blocks=1)
    len(reader)

    def ours(shard: int, row: int) -> bytes:
        reader._kept.clear()  # a neighbour of the row before would cost nothing
        return bytes(reader.row(BUCKET.key, shard, row)[IMAGE_COLUMN])

    footers: dict[int, pq.ParquetFile] = {}

    def shard_of(shard: int) -> pq.ParquetFile:
        return open_parquet(stores, f"{prefix}/{BUCKET.key}/{shard_name(shard)}.parquet")

    def row_group(file: pq.ParquetFile, row: int) -> bytes:
        first = 0
        for number in range(file.num_row_groups):
            rows = file.metadata.row_group(number).num_rows
            if row < first + rows:
                table = file.read_row_group(number, columns=[IMAGE_COLUMN], use_threads=False)
                return bytes(table[IMAGE_COLUMN][row - first].as_py())
            first += rows
        raise IndexError(row)

    def known_footer(shard: int, row: int) -> bytes:
        if shard not in footers:
            footers[shard] = shard_of(shard)
        return row_group(footers[shard], row)

    def whole_file(shard: int, row: int) -> bytes:
        table = shard_of(shard).read(columns=[KEY_COLUMN, IMAGE_COLUMN], use_threads=False)
        return bytes(table.filter(pa.compute.equal(table[KEY_COLUMN], f"{shard}/{row}"))[IMAGE_COLUMN][0].as_py())

    return {
        "RowReader": ours,
        "pyarrow read_row_group, footer known": known_footer,
        "pyarrow read_row_group, footer read": lambda shard, row: row_group(shard_of(shard), row),
        "pyarrow, whole shard": whole_file,
    }


def measure(found: dict[str, Way], rows: int, asked: int) -> dict[str, Latency]:
    """Asks every way for the same rows in turn; the slowest one for a tenth of them."""
    rng = random.Random(3)
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for number in range(asked):
        shard, row = divmod(rng.randrange(rows), SHARD_ROWS)
        seen = set()
        for name, way in found.items():
            if name == "pyarrow, whole shard" and number % 10:
                continue
            started = time.perf_counter()
            seen.add(way(shard, row))
            seconds[name].append(time.perf_counter() - started)
        assert len(seen) == 1, "the ways do not agree"
    return {
        name: Latency(1e3 * statistics.median(times), 1e3 * sorted(times)[int(0.95 * len(times))])
        for name, times in seconds.items()
    }


def main() -> None:
    """Writes the shards, measures, prints one line of JSON for each size of row groups and removes the shards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--endpoint")
    args = parser.parse_args()
    if args.prefix != "seaweedfs":
        measure_below(args.prefix, args.endpoint, args.rows, args.asked)
        return
    with tempfile.TemporaryDirectory() as folder:
        server = SeaweedServer(Path(folder) / "seaweedfs")
        try:
            server.start()
            os.environ.update(server.endpoint.admin.environ())
            server.endpoint.client().create_bucket(Bucket="rows")
            measure_below("s3://rows/packed", server.endpoint.endpoint, args.rows, args.asked)
        finally:
            server.stop()


def measure_below(below: str, endpoint: str | None, rows: int, asked: int) -> None:
    """Measures in shards of each size of row groups, and removes them."""
    storage = StorageConfig(S3Config(endpoint=endpoint), None, (below,))
    stores = Stores(storage)
    for size in ROW_GROUP_BYTES:
        prefix = f"{below.rstrip('/')}/row_groups_{size >> 20}"
        write_shards(stores, prefix, rows, size)
        found = measure(ways(stores, storage, prefix), rows, asked)
        floor = found["pyarrow read_row_group, footer known"].median_ms
        for name, latency in found.items():
            figures = {"ms": round(latency.median_ms, 2), "p95_ms": round(latency.p95_ms, 2)}
            print(json.dumps({"row_group_mib": size >> 20, "way": name, **figures,
                              "ratio": round(latency.median_ms / floor, 2)}))  # fmt: skip
        for info in list(stores.list(f"{prefix}/")):
            stores.delete(info.uri)


if __name__ == "__main__":
    main()
