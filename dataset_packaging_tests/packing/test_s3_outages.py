"""Whole runs on a store that throttles, breaks off, stalls and goes away: no good image is ever a reject."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dataset_packaging.errors import TransientStoreError
from dataset_packaging_tests.cli.command import run_command
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset, open_pipeline, pack
from dataset_packaging_tests.packing.s3_dataset import Bucket, output_key, uploaded
from dataset_packaging_tests.servers.fault_proxy import (
    Fault,
    FaultProxy,
    Request,
    random_faults,
    with_early_ends,
)
from dataset_packaging_tests.servers.s3_server import S3Endpoint
from dataset_packaging_tests.servers.seaweedfs import SeaweedServer

IMAGES = 2_000
BATCH = 100
"""Images after which a store goes away."""


def behind(dataset: PhotoDataset, proxy: FaultProxy, output: str, **s3: float) -> PhotoDataset:
    """Returns the same dataset, asked for through a proxy and written elsewhere."""
    settings = {"endpoint": proxy.endpoint, "region": "us-east-1", **s3}
    block = ", ".join(f"{name}: {value}" for name, value in settings.items())
    name = output_key(dataset).partition("/")[0]
    root = dataset.root / output
    root.mkdir()
    prefix = dataset.output[: dataset.output.index(f"/{name}/")]
    settings_more = {**dataset.settings, "more": f"s3: {{{block}}}"}
    return replace(dataset, root=root, output=f"{prefix}/{name}/{output}", settings=settings_more)


@pytest.fixture(scope="module")
def environ(s3_server: S3Endpoint) -> Iterator[None]:
    made = s3_server.admin.environ() | {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_REGION": s3_server.region}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def bucket(s3_server: S3Endpoint) -> Bucket:
    client = s3_server.client()
    client.create_bucket(Bucket="outages")
    return Bucket("outages", client)


def photographs(root: Path, count: int, shard_size: int) -> PhotoDataset:
    local = PhotoDataset(root, settings={"shard_size": shard_size, "row_group_bytes": 65536})
    local.add_photos(count - count // 4, size=(48, 48))
    local.add_photos(count // 4, size=(64, 48))
    return local


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, bucket: Bucket, environ: None) -> PhotoDataset:
    """Packed without a disturbance."""
    dataset = uploaded(photographs(tmp_path_factory.mktemp("outages"), IMAGES, 250), bucket, "many")
    packed = pack(dataset)
    assert (packed.problems, packed.ledger.total.packed) == ((), IMAGES)
    return dataset


def test_two_thousand_images_under_faults_are_the_same_bytes(
    clean: PhotoDataset, bucket: Bucket, s3_server: S3Endpoint
) -> None:
    """The issue's mix, on every request of the run: no reject, and every object as without faults."""
    shares = {Fault.THROTTLED: 0.05, Fault.RESET: 0.02, Fault.TRUNCATE: 0.02, Fault.STALL: 0.02}
    with FaultProxy(s3_server.port, with_early_ends(random_faults(11, shares))) as proxy:
        dataset = behind(clean, proxy, "faulty", read_timeout_s=1.0)
        packed = pack(dataset)
    assert (packed.problems, packed.ledger.total.packed, packed.ledger.total.rejected) == ((), IMAGES, {})
    assert sum(proxy.faults.values()) > IMAGES // 10
    assert min(proxy.faults[fault] for fault in shares) > IMAGES // 200
    assert bucket.contents(output_key(dataset)) == bucket.contents(output_key(clean))
    assert bucket.open_uploads() == []


def test_every_second_request_throttled(tmp_path: Path, bucket: Bucket, s3_server: S3Endpoint, environ: None) -> None:
    """S3-09: for a whole run, reads, lists and writes; it completes, with no reject."""
    calm = uploaded(photographs(tmp_path, 300, 150), bucket, "throttled")
    pack(calm)
    with FaultProxy(s3_server.port, random_faults(12, {Fault.THROTTLED: 0.5})) as proxy:
        dataset = behind(calm, proxy, "half")
        packed = pack(dataset)
    assert (packed.problems, packed.ledger.total.packed, packed.ledger.total.rejected) == ((), 300, {})
    assert proxy.faults[Fault.THROTTLED] > 300
    assert bucket.contents(output_key(dataset)) == bucket.contents(output_key(calm))


@contextmanager
def an_outage(proxy: FaultProxy, begin: Callable[[], None], end: Callable[[], None], seconds: float) -> Iterator[None]:
    """Lets a store go away when `BATCH` images were asked for, and come back after some seconds."""
    begun = threading.Event()
    images_asked: list[Request] = []

    def count(request: Request) -> None:
        if "/images/" in request.target:
            images_asked.append(request)
            if len(images_asked) == BATCH:
                begun.set()

    def go_away() -> None:
        begun.wait()
        begin()
        time.sleep(seconds)  # the outage
        end()

    proxy.choose = count
    thread = threading.Thread(target=go_away, daemon=True)
    thread.start()
    yield
    assert begun.is_set()
    thread.join()


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory, environ: None) -> Iterator[SeaweedServer]:
    """A server that tests may stop; its identities are those of the shared one."""
    server = SeaweedServer(tmp_path_factory.mktemp("own-seaweedfs"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def on_own_server(tmp_path_factory: pytest.TempPathFactory, own_server: SeaweedServer) -> tuple[PhotoDataset, Bucket]:
    """Packed without a disturbance."""
    client = own_server.endpoint.client()
    client.create_bucket(Bucket="outage")
    bucket = Bucket("outage", client)
    dataset = uploaded(photographs(tmp_path_factory.mktemp("own"), 400, 50), bucket, "set")
    dataset.settings["more"] = f"s3: {{endpoint: {own_server.endpoint.endpoint}, region: us-east-1}}"
    pack(dataset)
    return dataset, bucket


@pytest.mark.parametrize("kind", ["paused", "stopped"])
def test_a_store_that_goes_away_and_comes_back(
    on_own_server: tuple[PhotoDataset, Bucket], own_server: SeaweedServer, pytestconfig: pytest.Config, kind: str
) -> None:
    """In the middle of a pack, for less than `retry_time_s`: the run goes on by itself."""
    calm, bucket = on_own_server
    steps = (own_server.pause, own_server.resume) if kind == "paused" else (own_server.stop, own_server.start)
    with FaultProxy(own_server.endpoint.port) as proxy:
        dataset = behind(calm, proxy, kind, read_timeout_s=2.0)
        with an_outage(proxy, *steps, pytestconfig.getoption("outage_s")):
            packed = pack(dataset)
    assert (packed.problems, packed.ledger.total.packed, packed.ledger.total.rejected) == ((), 400, {})
    assert bucket.contents(output_key(dataset)) == bucket.contents(output_key(calm))


def test_a_store_that_stays_away_longer_fails_the_run_and_a_rerun_completes(
    on_own_server: tuple[PhotoDataset, Bucket],
    own_server: SeaweedServer,
    pytestconfig: pytest.Config,
) -> None:
    """PQ-10: `retry_time_s` is shorter than the outage: no reject, rows pending, and the next run packs them."""
    calm, bucket = on_own_server
    with FaultProxy(own_server.endpoint.port) as proxy:
        dataset = behind(calm, proxy, "short", read_timeout_s=1.0, retry_time_s=0.5)
        with an_outage(proxy, own_server.pause, own_server.resume, pytestconfig.getoption("outage_s")):
            said, rejected = pack_that_fails(dataset)
        assert "s3://outage/set" in said
        assert "no image was rejected" in said or "given up after" in said
        assert rejected == {}
        packed = pack(dataset)
    assert (packed.problems, packed.ledger.total.packed, packed.ledger.total.rejected) == ((), 400, {})
    assert bucket.contents(output_key(dataset)) == bucket.contents(output_key(calm))


def pack_that_fails(dataset: PhotoDataset) -> tuple[str, dict[str, int]]:
    """Returns what a run that cannot complete says, and what it rejected."""
    try:
        packed = pack(dataset)
    except TransientStoreError as error:
        return str(error), {}
    return " ".join(packed.problems), packed.ledger.total.rejected


def test_the_command_ends_with_3_where_the_store_is_away_and_with_0_afterwards(
    on_own_server: tuple[PhotoDataset, Bucket], own_server: SeaweedServer
) -> None:
    """On Ray, under Dagster; the last line says what to do, and no image is rejected."""
    calm, bucket = on_own_server
    with FaultProxy(own_server.endpoint.port) as proxy:
        dataset = behind(calm, proxy, "command", read_timeout_s=1.0, retry_time_s=0.5)
        dataset.write_yaml()
        env = {"DAGSTER_HOME": str(dataset.root / "dagster"), "RAY_ADDRESS": "local", "DATASET_PACKAGING_RAY_CPUS": "2"}
        with an_outage(proxy, own_server.stop, own_server.start, 5.0):
            failed = run_command("pack", "dataset.yaml", "--json", cwd=dataset.root, env=env)
        assert failed.exit_code == 3, failed
        assert "s3://outage/set" in failed.stderr.splitlines()[-1]
        assert "run again when the store is back" in failed.stderr.splitlines()[-1]
        packed = run_command("pack", "dataset.yaml", "--json", cwd=dataset.root, env=env)
        assert packed.exit_code == 0, packed
        with open_pipeline(dataset.config()) as pipeline:
            assert pipeline.verify(deep=True).findings == ()
    assert (packed.json["packed"], packed.json["rejected"], packed.json["pending"]) == (400, {}, 0)
    assert bucket.contents(output_key(dataset)) == bucket.contents(output_key(calm))
