"""S3 Access Grants against a real server that refuses what no grant covers."""

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataset_packaging.config import AccessGrantsConfig, S3Config
from dataset_packaging.errors import AccessDenied, NoGrant, TransientStoreError
from dataset_packaging.io.store import Stores
from dataset_packaging_tests.contracts.s3_config import s3_config, storage
from dataset_packaging_tests.servers.grants_endpoint import GrantsEndpoint
from dataset_packaging_tests.servers.s3_server import S3Endpoint


@pytest.fixture
def grants(s3_server: S3Endpoint, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[GrantsEndpoint]:
    """The caller may do nothing on the server; what a grant gives is all there is."""
    client = s3_server.client()
    for key in ("team-a/1.jpg", "team-a/deep/er/2.jpg", "team-a/img1.jpg", "team-a/img2.jpg", "team-ab/3.jpg"):
        client.put_object(Bucket=s3_bucket, Key=key, Body=key.encode())
    for name, value in s3_server.nobody.environ().items():
        monkeypatch.setenv(name, value)
    with GrantsEndpoint(s3_server) as endpoint:
        endpoint.callers[s3_server.nobody.access_key] = s3_server.nobody
        yield endpoint


def stores_with(grants: GrantsEndpoint, *outputs: str, s3: S3Config | None = None, **changes: object) -> Stores:
    settings: dict[str, object] = {"account_id": grants.account, "region": "us-east-1", "endpoint": grants.endpoint}
    config = AccessGrantsConfig.model_validate(settings | changes)
    return Stores(storage(s3 or s3_config(grants.server), *outputs, grants=config))


def allow(grants: GrantsEndpoint, scope: str, permission: str = "READ") -> None:
    grants.allow(grants.server.nobody, scope, permission)


def test_one_call_opens_a_location_for_all_threads(grants: GrantsEndpoint, s3_bucket: str) -> None:
    """S3-03: not one call for each request, nor one for each folder below the grant."""
    allow(grants, f"s3://{s3_bucket}/team-a/*")
    stores = stores_with(grants)
    uris = [f"s3://{s3_bucket}/team-a/{name}" for name in ("1.jpg", "deep/er/2.jpg")] * 200
    with ThreadPoolExecutor(16) as pool:
        bodies = list(pool.map(lambda uri: bytes(stores.get(uri)).decode(), uris))
    assert [f"s3://{s3_bucket}/{body}" for body in bodies] == uris
    assert grants.calls["dataaccess"] == 1
    assert stores.stats()["grant_calls"] == 1


def test_sources_are_asked_for_reading_and_outputs_for_both(grants: GrantsEndpoint, s3_bucket: str) -> None:
    """S3-03: two permissions, two calls; what one opens the other does not."""
    allow(grants, f"s3://{s3_bucket}/team-a/*", "READ")
    allow(grants, f"s3://{s3_bucket}/out*", "READWRITE")
    stores = stores_with(grants, f"s3://{s3_bucket}/out", f"s3://{s3_bucket}/out_work")
    stores.get(f"s3://{s3_bucket}/team-a/1.jpg")
    for n in range(5):
        stores.put(f"s3://{s3_bucket}/out/{n}/x", b"1")
    with stores.open_sink(f"s3://{s3_bucket}/out_work/big") as sink:
        sink.write(bytes(40_000_000))
    assert len(list(stores.list(f"s3://{s3_bucket}/out/"))) == 5
    assert sorted(grants.targets) == [
        (f"s3://{s3_bucket}/out/*", "READWRITE"),
        (f"s3://{s3_bucket}/team-a/*", "READ"),
    ]
    with pytest.raises(AccessDenied):
        stores.put(f"s3://{s3_bucket}/team-a/new", b"1")  # read grants do not write


def test_a_neighbour_prefix_is_not_opened(grants: GrantsEndpoint, s3_bucket: str) -> None:
    """`team-a/` is not `team-ab/`: the location is named, the rows of the granted one are read."""
    allow(grants, f"s3://{s3_bucket}/team-a/*")
    stores = stores_with(grants)
    assert bytes(stores.get(f"s3://{s3_bucket}/team-a/1.jpg")) == b"team-a/1.jpg"
    with pytest.raises(NoGrant) as caught:
        stores.get(f"s3://{s3_bucket}/team-ab/3.jpg")
    assert caught.value.uri == f"s3://{s3_bucket}/team-ab/3.jpg"
    assert f"s3://{s3_bucket}/team-ab/*" in caught.value.detail
    assert "test-nobody" in caught.value.detail
    with pytest.raises(NoGrant):
        list(stores.list(f"s3://{s3_bucket}/"))


def test_a_wider_grant_reaches_exactly_as_far_as_it_says(grants: GrantsEndpoint, s3_bucket: str) -> None:
    allow(grants, f"s3://{s3_bucket}/team-a*")
    stores = stores_with(grants)
    assert bytes(stores.get(f"s3://{s3_bucket}/team-a/1.jpg")) == b"team-a/1.jpg"
    assert bytes(stores.get(f"s3://{s3_bucket}/team-ab/3.jpg")) == b"team-ab/3.jpg"
    assert grants.calls["dataaccess"] == 1


def test_many_denied_rows_are_few_calls(grants: GrantsEndpoint, s3_bucket: str) -> None:
    """S3-03: a denial is kept for a minute, not asked for again by each row."""
    stores = stores_with(grants)

    def denied(n: int) -> bool:
        with pytest.raises(NoGrant):
            stores.get(f"s3://{s3_bucket}/team-a/{n}.jpg")
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(denied, range(200)))
    assert grants.calls["dataaccess"] == 1
    assert grants.calls["grants"] == 1


@pytest.mark.parametrize("may_list", [True, False])
def test_a_grant_narrower_than_a_folder_is_found_where_grants_may_be_listed(
    grants: GrantsEndpoint, s3_bucket: str, may_list: bool
) -> None:
    allow(grants, f"s3://{s3_bucket}/team-a/img1*")
    grants.may_list = may_list
    stores = stores_with(grants)
    with pytest.raises(NoGrant):
        stores.get(f"s3://{s3_bucket}/team-a/img2.jpg")
    if may_list:
        assert bytes(stores.get(f"s3://{s3_bucket}/team-a/img1.jpg")) == b"team-a/img1.jpg"
    else:
        with pytest.raises(NoGrant):
            stores.get(f"s3://{s3_bucket}/team-a/img1.jpg")
    with pytest.raises(NoGrant):
        stores.get(f"s3://{s3_bucket}/team-a/img2.jpg")


def test_a_grant_on_one_object_opens_that_object(grants: GrantsEndpoint, s3_bucket: str) -> None:
    allow(grants, f"s3://{s3_bucket}/team-a/1.jpg")
    stores = stores_with(grants)
    assert bytes(stores.get(f"s3://{s3_bucket}/team-a/1.jpg")) == b"team-a/1.jpg"
    with pytest.raises(NoGrant):
        stores.get(f"s3://{s3_bucket}/team-a/img1.jpg")


def test_nothing_falls_back_in_silence(
    grants: GrantsEndpoint, s3_bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S3-03: even an identity that could read it by itself is refused, unless fallback is set; then it is logged."""
    for name, value in grants.server.admin.environ().items():
        monkeypatch.setenv(name, value)
    grants.callers[grants.server.admin.access_key] = grants.server.admin
    with pytest.raises(NoGrant):
        stores_with(grants).get(f"s3://{s3_bucket}/team-a/1.jpg")
    stores = stores_with(grants, fallback=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert bytes(stores.get(f"s3://{s3_bucket}/team-a/1.jpg")) == b"team-a/1.jpg"
    said = [record.getMessage() for record in caplog.records if "fallback" in record.getMessage()]
    assert len(said) == 1
    assert f"s3://{s3_bucket}/team-a/*" in said[0]


def test_a_throttled_s3_control_is_waited_for(grants: GrantsEndpoint, s3_bucket: str) -> None:
    allow(grants, f"s3://{s3_bucket}/team-a/*")
    grants.fail_next = 3
    assert bytes(stores_with(grants).get(f"s3://{s3_bucket}/team-a/1.jpg")) == b"team-a/1.jpg"


def test_an_s3_control_that_is_down_is_no_denial(grants: GrantsEndpoint, s3_bucket: str) -> None:
    stores = stores_with(grants, s3=s3_config(grants.server, retry_time_s=1.0), endpoint="http://127.0.0.1:1")
    with pytest.raises(TransientStoreError) as caught:
        stores.get(f"s3://{s3_bucket}/team-a/1.jpg")
    assert "S3 Access Grants" in str(caught.value)


def test_a_refusal_is_believed_only_after_one_forced_refresh(grants: GrantsEndpoint, s3_bucket: str) -> None:
    allow(grants, f"s3://{s3_bucket}/team-a/*")
    grants.useless_next = 1
    stores = stores_with(grants)
    assert bytes(stores.get(f"s3://{s3_bucket}/team-a/1.jpg")) == b"team-a/1.jpg"
    assert grants.calls["dataaccess"] == 2


def test_refusals_after_the_forced_refresh_cost_no_further_calls(grants: GrantsEndpoint, s3_bucket: str) -> None:
    allow(grants, f"s3://{s3_bucket}/team-a/*")
    grants.useless_next = 1000
    stores = stores_with(grants)
    for _ in range(20):
        with pytest.raises(AccessDenied) as caught:
            stores.get(f"s3://{s3_bucket}/team-a/1.jpg")
        assert not isinstance(caught.value, NoGrant)
        assert f"S3 Access Grant READ on s3://{s3_bucket}/team-a/*" in str(caught.value)
    assert grants.calls["dataaccess"] == 2


def test_minimal_privilege_is_asked_for_each_folder_and_gives_no_more(grants: GrantsEndpoint, s3_bucket: str) -> None:
    allow(grants, f"s3://{s3_bucket}/team-a/*")
    stores = stores_with(grants, privilege="Minimal")
    for _ in range(3):
        stores.get(f"s3://{s3_bucket}/team-a/deep/er/2.jpg")
    assert grants.targets == [(f"s3://{s3_bucket}/team-a/deep/er/*", "READ")]
    stores.get(f"s3://{s3_bucket}/team-a/1.jpg")
    assert grants.targets[1:] == [(f"s3://{s3_bucket}/team-a/*", "READ")]


@pytest.mark.parametrize("configured", [None, "999999999999"])
def test_the_instance_of_another_account_is_found(
    grants: GrantsEndpoint, s3_bucket: str, configured: str | None
) -> None:
    """`AccountId` is that of the grants instance, not the caller's; it is looked up once for each bucket."""
    grants.caller_account = "999999999999"
    allow(grants, f"s3://{s3_bucket}/team-a/*")
    stores = stores_with(grants, account_id=configured)
    for name in ("1.jpg", "img1.jpg"):
        stores.get(f"s3://{s3_bucket}/team-a/{name}")
    assert grants.calls["prefix"] == 1
    assert len(grants.targets) == 1


def test_two_identities_in_one_process_keep_their_own_grants(
    grants: GrantsEndpoint, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The AWS plugin shares its cache between them: a second identity gets the first one's credentials."""
    allow(grants, f"s3://{s3_bucket}/team-a/*")
    first = stores_with(grants)
    first.get(f"s3://{s3_bucket}/team-a/1.jpg")
    for name, value in grants.server.admin.environ().items():
        monkeypatch.setenv(name, value)
    grants.callers[grants.server.admin.access_key] = grants.server.admin
    second = stores_with(grants)
    with pytest.raises(NoGrant):
        second.get(f"s3://{s3_bucket}/team-a/1.jpg")
    first.get(f"s3://{s3_bucket}/team-a/1.jpg")


def test_sessions_of_three_seconds_carry_a_long_run(
    rgw_server: S3Endpoint, rgw_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3-04: refreshed in time, for reads and for an upload that outlives its first credentials; few calls."""
    body = b"x" * 100_000
    rgw_server.client().put_object(Bucket=rgw_bucket, Key="src/1", Body=body)
    for name, value in rgw_server.nobody.environ().items():
        monkeypatch.setenv(name, value)
    with GrantsEndpoint(rgw_server, session_s=3) as grants:
        grants.allow(rgw_server.nobody, f"s3://{rgw_bucket}/src/*", "READ")
        grants.allow(rgw_server.nobody, f"s3://{rgw_bucket}/out/*", "READWRITE")
        stores = stores_with(grants, f"s3://{rgw_bucket}/out")
        started = time.monotonic()

        def read(_: int) -> int:
            count = 0
            while time.monotonic() - started < 10:
                assert bytes(stores.get(f"s3://{rgw_bucket}/src/1")) == body
                count += 1
            return count

        with ThreadPoolExecutor(4) as pool, stores.open_sink(f"s3://{rgw_bucket}/out/shard") as sink:
            reads = pool.map(read, range(4))
            while time.monotonic() - started < 10:
                sink.write(bytes(2_000_000))
                time.sleep(0.1)  # an upload that takes its time
            assert sum(reads) > 100
        assert sink.info.size_bytes == stores.head(f"s3://{rgw_bucket}/out/shard").size_bytes
        calls = grants.calls["dataaccess"]
    assert 8 <= calls <= 16, "two locations, each asked for again at 70 to 80 % of 3 s for 10 s"
