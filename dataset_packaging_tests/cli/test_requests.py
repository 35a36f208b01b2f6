"""Requests to S3: what `plan` tells, what a run reports, and what a proxy before the server sees."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dataset_packaging.core.bucketing import ASPECT_RATIOS
from dataset_packaging.orchestration.keys import DatasetKeys
from dataset_packaging.orchestration.local_runs import PackagingOutcome, run_packaging
from dataset_packaging.packing.preview import PlanPreview
from dataset_packaging.packing.request_estimate import Requests, sequential_gets
from dataset_packaging_tests.cli.command import run_command
from dataset_packaging_tests.orchestration.small_dataset import SerialWorkers
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset, open_pipeline
from dataset_packaging_tests.packing.s3_dataset import Bucket, uploaded
from dataset_packaging_tests.packing.test_s3_outages import behind
from dataset_packaging_tests.servers.fault_proxy import FaultProxy, Request
from dataset_packaging_tests.servers.s3_server import S3Endpoint

TOLERANCE = 0.1


def kind_of(request: Request) -> str:
    query = request.target.partition("?")[2]
    if request.method == "GET" and ("list-type" in query or query.startswith("uploads")):
        return "list"
    return {"POST": "put"}.get(request.method, request.method.lower())


@dataclass(slots=True)
class Watched:
    """A dataset behind a proxy that remembers every request."""

    local: PhotoDataset
    dataset: PhotoDataset
    proxy: FaultProxy

    def plan(self) -> PlanPreview:
        with open_pipeline(self.dataset.config()) as pipeline:
            return pipeline.preview()

    def pack(self, instance: dg.DagsterInstance) -> tuple[PackagingOutcome, Counter[str]]:
        """Do what the command does, without Ray; the counts of the outcome are those of all of it."""
        seen = len(self.proxy.requests)
        with open_pipeline(self.dataset.config()) as pipeline:
            assert pipeline.is_up_to_date() is None
            pipeline.require_startable()
            outcome = run_packaging(self.dataset.yaml, instance, workers=SerialWorkers(), assume_due=True)
            counts = Counter(outcome.counts) + Counter(pipeline.counts())
        assert outcome.exit_code == 0, outcome.message
        return replace(outcome, counts=counts), Counter(map(kind_of, self.proxy.requests[seen:]))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def bucket(s3_server: S3Endpoint, s3_bucket: str, s3_environ: dict[str, str]) -> Bucket:
    return Bucket(s3_bucket, s3_server.client())


def photographs(folder: Path, buckets: int, each: int, *, sizes: bool) -> PhotoDataset:
    folder.mkdir()
    local = PhotoDataset(folder, settings={"shard_size": 100, "row_group_bytes": 64 << 20})
    for ratio in ASPECT_RATIOS[:buckets]:
        local.add_photos(each, size=(round(200 * ratio), 200) if ratio < 1 else (200, round(200 / ratio)), sizes=sizes)
    return local


@pytest.fixture
def watched(tmp_path: Path, bucket: Bucket, s3_server: S3Endpoint) -> Iterator[Watched]:
    local = photographs(tmp_path / "local", 25, 4, sizes=True)
    with FaultProxy(s3_server.port) as proxy:
        yield Watched(local, behind(uploaded(local, bucket, "set"), proxy, "out"), proxy)


def metadata_of(instance: dg.DagsterInstance, asset: dg.AssetKey, outcome: PackagingOutcome) -> dict[str, Any]:
    """What the UI shows of the first bucket that holds rows."""
    assert outcome.ledger is not None
    bucket = next(line.bucket for line in outcome.ledger.lines if line.packed)
    chosen = dg.AssetRecordsFilter(asset, asset_partitions=[bucket])
    materialization = instance.fetch_materializations(chosen, limit=1).records[0].asset_materialization
    assert materialization is not None
    return dict(materialization.metadata)


def assert_near(told: Requests, seen: Counter[str]) -> None:
    for kind, count in (("get", told.gets), ("put", told.puts), ("list", told.lists)):
        assert count == pytest.approx(seen[kind], rel=TOLERANCE), (kind, told, seen)
    assert abs(told.heads - seen["head"]) <= 2


def test_the_plan_tells_the_requests_of_a_run_and_the_run_reports_them(
    watched: Watched, bucket: Bucket, instance: dg.DagsterInstance
) -> None:
    """A first run with sizes given, and a later one that adds a few rows: GET, PUT and LIST within 10 %."""
    planned = watched.plan().requests
    outcome, seen = watched.pack(instance)
    assert_near(planned, seen)
    assert {kind: outcome.counts.get(kind, 0) for kind in seen} == seen
    assert outcome.counts["source_get"] == pytest.approx(100, abs=8)
    told = metadata_of(instance, DatasetKeys(watched.dataset.name).shards, outcome)
    assert told["GET per image"].value == 1.0
    of_step = {row.data["request"]: row.data["number"] for row in told["requests of the step"].value.records}
    assert 100 < of_step["GET"] < seen["get"]
    assert 75 <= of_step["PUT"] < seen["put"]

    watched.local.add_photos(3, size=(200, 200))
    uploaded(watched.local, bucket, "set")
    planned = watched.plan().requests
    outcome, seen = watched.pack(instance)
    assert outcome.ledger is not None
    assert outcome.ledger.total.packed == 103
    assert_near(planned, seen)
    assert {kind: outcome.counts.get(kind, 0) for kind in seen} == seen


def test_with_probing_the_command_asks_about_twice_for_each_image(
    tmp_path: Path, bucket: Bucket, s3_server: S3Endpoint
) -> None:
    """On Ray: header probe, then the image; `plan` knows, the closing table says so, and so does `--json`."""
    local = photographs(tmp_path / "local", 6, 10, sizes=False)
    env = {"DAGSTER_HOME": str(tmp_path / "dagster"), "RAY_ADDRESS": "local", "DATASET_PACKAGING_RAY_CPUS": "2"}
    with FaultProxy(s3_server.port) as proxy:
        dataset = behind(uploaded(local, bucket, "set"), proxy, "out")
        dataset.write_yaml()
        plan = run_command("plan", "dataset.yaml", "--json", cwd=dataset.root)
        planned = plan.json["requests"]
        before = len(proxy.requests)
        packed = run_command("pack", "dataset.yaml", "--json", cwd=dataset.root, env=env)
        seen = Counter(map(kind_of, proxy.requests[before:]))
    assert packed.exit_code == 0, packed
    assert_near(Requests(planned["get"], planned["head"], planned["put"], planned["list"]), seen)
    assert {kind: packed.json["requests"].get(kind, 0) for kind in seen} == seen
    assert 2.0 <= packed.json["source_gets_per_image"] < 2.2
    assert packed.json["prediction"]["predicted"]["requests"]["get"] == pytest.approx(seen["get"], rel=TOLERANCE)


@pytest.mark.parametrize(("size", "gets"), [(0, 0), (1, 1), (64 << 10, 1), (65 << 10, 2), (64 << 20, 15)])
def test_reading_in_one_go_asks_for_ever_more(size: int, gets: int) -> None:
    assert sequential_gets(size) == gets
