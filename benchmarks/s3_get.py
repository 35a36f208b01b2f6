"""GET from S3: the store that packing reads with, against a bare obstore loop, boto3 and pyarrow, in one run.

The clients take turns on the same keys with the same number of threads, so that the ratios hold on a busy machine; CPU
time per GB is the steadiest figure. The server (SeaweedFS) and the clients share the machine.
Run: ``python -m benchmarks.s3_get [--objects N] [--size BYTES] [--threads N] [--rounds N]``.
"""

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import boto3
import botocore.config
import obstore
import pyarrow.fs
from obstore.store import S3Store
from rich.console import Console
from rich.table import Table

from dataset_packaging.config import S3Config
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging_tests.servers.s3_server import S3Endpoint
from dataset_packaging_tests.servers.seaweedfs import SeaweedServer

BUCKET = "bench"
FLOOR = "obstore loop"

Get = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Sample:
    """One client's turn."""

    seconds: float
    cpu_seconds: float
    size_bytes: int


def get_with_stores(server: S3Endpoint) -> Get:
    """Open the store that packing reads images with."""
    stores = Stores(StorageConfig(S3Config(endpoint=server.endpoint, region=server.region), None, ()))
    return lambda key: len(stores.get(f"s3://{BUCKET}/{key}"))


def get_with_obstore(server: S3Endpoint) -> Get:
    """Open obstore with nothing around it."""
    client = S3Store(
        BUCKET,
        config={
            "endpoint": server.endpoint,
            "region": server.region,
            "access_key_id": server.admin.access_key,
            "secret_access_key": server.admin.secret_key,
            "virtual_hosted_style_request": False,
        },
        client_options={"allow_http": True},
    )
    return lambda key: len(memoryview(obstore.get(client, key).bytes()))


def get_with_boto3(server: S3Endpoint) -> Get:
    """Open a boto3 client with as many connections as threads."""
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.admin.access_key,
        aws_secret_access_key=server.admin.secret_key,
        config=botocore.config.Config(max_pool_connections=64),
    )
    return lambda key: len(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())


def get_with_pyarrow(server: S3Endpoint) -> Get:
    """Open Arrow's S3 file system."""
    filesystem = pyarrow.fs.S3FileSystem(
        access_key=server.admin.access_key,
        secret_key=server.admin.secret_key,
        endpoint_override=server.endpoint.removeprefix("http://"),
        scheme="http",
        region=server.region,
    )

    def get(key: str) -> int:
        with filesystem.open_input_stream(f"{BUCKET}/{key}") as stream:
            return len(stream.readall())

    return get


CLIENTS: dict[str, Callable[[S3Endpoint], Get]] = {
    FLOOR: get_with_obstore,
    "dataset_packaging": get_with_stores,
    "boto3": get_with_boto3,
    "pyarrow": get_with_pyarrow,
}


def measure(get: Get, keys: list[str], threads: int) -> Sample:
    """Read all keys once."""
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        size_bytes = sum(pool.map(get, keys))
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    return Sample(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, size_bytes)


def run(server: S3Endpoint, objects: int, size_bytes: int, threads: int, rounds: int) -> dict[str, list[Sample]]:
    """Store the objects, then let the clients take turns."""
    client = server.client()
    client.create_bucket(Bucket=BUCKET)
    keys = [f"images/{number:06d}.jpg" for number in range(objects)]
    for key in keys:
        client.put_object(Bucket=BUCKET, Key=key, Body=os.urandom(size_bytes))
    gets = {name: opened(server) for name, opened in CLIENTS.items()}
    for get in gets.values():
        measure(get, keys, threads)  # connections, caches
    samples: dict[str, list[Sample]] = {name: [] for name in gets}
    for _ in range(rounds):
        for name, get in gets.items():
            samples[name].append(measure(get, keys, threads))
    return samples


def tabulate(samples: dict[str, list[Sample]], title: str) -> Table:
    """Make the table: medians of the rounds; ratios are of turns that stood next to each other."""
    table = Table("client", "MB/s", f"of {FLOOR}", "CPU-s/GB", title=title)
    for name, turns in samples.items():
        speed = statistics.median(turn.size_bytes / turn.seconds / 1e6 for turn in turns)
        ratio = statistics.median(
            floor.seconds / turn.seconds for floor, turn in zip(samples[FLOOR], turns, strict=True)
        )
        cpu = statistics.median(turn.cpu_seconds / turn.size_bytes * 1e9 for turn in turns)
        table.add_row(name, f"{speed:.0f}", f"{ratio:.2f}", f"{cpu:.2f}")
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=500)
    parser.add_argument("--size", type=int, default=500_000, help="bytes of each object")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = SeaweedServer(Path(folder) / "seaweedfs")
        try:
            server.start()
            os.environ.update(server.endpoint.admin.environ())
            samples = run(server.endpoint, options.objects, options.size, options.threads, options.rounds)
        finally:
            server.stop()
    title = f"GET of {options.objects} × {options.size:,} bytes, {options.threads} threads, {options.rounds} rounds"
    Console().print(tabulate(samples, title))


if __name__ == "__main__":
    main()
