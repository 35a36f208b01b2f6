"""Whole runs with S3 Access Grants on real servers that refuse what no grant opens."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from dataset_packaging.packing.pipeline import BUCKET_KEYS
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset, Row, open_pipeline, photo
from dataset_packaging_tests.packing.s3_dataset import Bucket, output_key, uploaded
from dataset_packaging_tests.servers.fault_proxy import FaultProxy
from dataset_packaging_tests.servers.grants_endpoint import GrantsEndpoint, session_policy
from dataset_packaging_tests.servers.s3_server import S3Endpoint

SESSION_S = 3
CONNECTIONS = 4
LATENCY_S = 0.1


def act_as_nobody(server: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be someone whom the server knows and allows nothing."""
    for name, value in server.nobody.environ().items():
        monkeypatch.setenv(name, value)


def with_grants(dataset: PhotoDataset, grants: GrantsEndpoint, endpoint: str, root: Path) -> PhotoDataset:
    """Returns the dataset with both blocks of the YAML; it is written to `granted/` in the same bucket."""
    s3 = f"s3: {{endpoint: {endpoint}, region: us-east-1, max_connections: {CONNECTIONS}, read_timeout_s: 10}}"
    block = f"account_id: '{grants.account}', region: us-east-1, endpoint: {grants.endpoint}"
    root.mkdir()
    name = dataset.output.split("/")[2]
    return replace(
        dataset,
        root=root,
        output=f"s3://{name}/granted",
        settings={**dataset.settings, "more": f"{s3}\naccess_grants: {{{block}}}"},
    )


@pytest.fixture(params=["s3", "rgw"])
def server_and_bucket(request: pytest.FixtureRequest) -> tuple[S3Endpoint, Bucket]:
    server: S3Endpoint = request.getfixturevalue(f"{request.param}_server")
    name: str = request.getfixturevalue(f"{request.param}_bucket")
    return server, Bucket(name, server.client())


@pytest.fixture
def grants(server_and_bucket: tuple[S3Endpoint, Bucket], monkeypatch: pytest.MonkeyPatch) -> Iterator[GrantsEndpoint]:
    server, bucket = server_and_bucket
    act_as_nobody(server, monkeypatch)
    with GrantsEndpoint(server) as endpoint:
        endpoint.allow(server.nobody, f"s3://{bucket.name}/set/*", "READ")
        endpoint.allow(server.nobody, f"s3://{bucket.name}/team-a/*", "READ")
        endpoint.allow(server.nobody, f"s3://{bucket.name}/granted/*", "READWRITE")
        yield endpoint


def test_rows_of_a_prefix_without_a_grant_are_rejected_and_the_others_packed(
    server_and_bucket: tuple[S3Endpoint, Bucket], grants: GrantsEndpoint, tmp_path: Path
) -> None:
    """S3-03, S3-08: `team-a/` is granted, `team-ab/` is not; both are there, and most rows are of the neighbour."""
    server, bucket = server_and_bucket
    local = PhotoDataset(tmp_path / "local", settings={"shard_size": 10})
    for team, count in (("team-a", 9), ("team-ab", 21)):
        for number in range(count):
            data = photo(number, (96, 96)).data
            bucket.client.put_object(Bucket=bucket.name, Key=f"{team}/{number}.jpg", Body=data)
            local.rows.append(Row(f"{team}-{number}", f"s3://{bucket.name}/{team}/{number}.jpg", team, (96, 96)))
    local.root.mkdir()
    dataset = with_grants(uploaded(local, bucket, "set"), grants, server.endpoint, tmp_path / "run")
    with open_pipeline(dataset.config()) as pipeline:
        pipeline.build_manifest()
        report = pipeline.pack_buckets(BUCKET_KEYS)
        assert [bucket.problems for bucket in report.buckets.values() if bucket.problems] == []
        pipeline.write_sidecars(BUCKET_KEYS)
        total = pipeline.ledger().total
        rejects = list(pipeline.rejects())
        assert pipeline.verify(deep=True).findings == ()
    assert (total.packed, total.rejected, total.pending) == (9, {"access_denied": 21}, 0)
    assert {row["image_key"] for row in rejects} == {f"team-ab-{number}" for number in range(21)}
    for row in rejects:
        assert f"s3://{bucket.name}/team-ab/*" in str(row["detail"])
        assert "READ" in str(row["detail"])
    opened = {(target.removeprefix(f"s3://{bucket.name}/"), permission) for target, permission in grants.targets}
    assert {("set/*", "READ"), ("team-a/*", "READ"), ("team-ab/*", "READ")} <= opened
    assert {target.split("/")[0] for target, permission in opened if permission == "READWRITE"} == {"granted"}
    made, _ = server.assume_role(session_policy(f"s3://{bucket.name}/team-a/*", "READ"))
    granted = server.client(credentials=made)
    assert granted.get_object(Bucket=bucket.name, Key="team-a/1.jpg")["Body"].read() == photo(1, (96, 96)).data
    with pytest.raises(ClientError, match=r"AccessDenied|403"):  # by the server itself, whoever asks
        granted.get_object(Bucket=bucket.name, Key="team-ab/1.jpg")


def test_sessions_of_three_seconds_carry_a_whole_pack(
    rgw_server: S3Endpoint,
    rgw_bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    """S3-04: a slow store and credentials that end many times on the way: no error, no reject, and few grant calls."""
    bucket = Bucket(rgw_bucket, rgw_server.client())
    seconds = pytestconfig.getoption("short_sessions_s")
    local = PhotoDataset(tmp_path / "local", settings={"shard_size": 100})
    local.add_photos(int(seconds * CONNECTIONS / LATENCY_S), size=(48, 48))
    images = len(local.rows)
    dataset = uploaded(local, bucket, "set")
    act_as_nobody(rgw_server, monkeypatch)
    with GrantsEndpoint(rgw_server, session_s=SESSION_S) as grants, FaultProxy(rgw_server.port) as proxy:
        grants.allow(rgw_server.nobody, f"s3://{rgw_bucket}/set/*", "READ")
        grants.allow(rgw_server.nobody, f"s3://{rgw_bucket}/granted/*", "READWRITE")
        proxy.latency_s = LATENCY_S
        slow = with_grants(dataset, grants, proxy.endpoint, tmp_path / "run")
        started = time.monotonic()
        with open_pipeline(slow.config()) as pipeline:
            pipeline.build_manifest()
            report = pipeline.pack_buckets(BUCKET_KEYS)
            packing_s = report.seconds
            pipeline.write_sidecars(BUCKET_KEYS)
            ledger = pipeline.ledger()
            counts = pipeline.counts()
        run_s = time.monotonic() - started
    assert [bucket.problems for bucket in report.buckets.values() if bucket.problems] == []
    assert (ledger.total.packed, ledger.total.rejected, ledger.total.pending) == (images, {}, 0)
    assert packing_s > seconds
    assert counts["grant_calls"] == grants.calls["dataaccess"]
    locations_and_workers = 2 * 2  # sources and outputs, in the driver and in its tasks
    assert packing_s / SESSION_S < counts["grant_calls"]
    assert counts["grant_calls"] <= locations_and_workers * (1 + run_s / (0.6 * SESSION_S))
    assert len(bucket.keys(f"{output_key(slow)}/main/")) == -(-images // 100)
