"""Answers of S3 that say something else than they seem to: errors in a 200, pages of a portal, markers, redirects."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataset_packaging.errors import AccessDenied, NotFound, PermanentStoreError, TransientStoreError
from dataset_packaging.io.s3_errors import Fate, fate_of
from dataset_packaging.io.store import Stores
from dataset_packaging_tests.contracts.s3_config import s3_config, storage
from dataset_packaging_tests.servers.fault_proxy import Fault, FaultProxy, Request, first_requests
from dataset_packaging_tests.servers.s3_server import S3Endpoint

BODY = bytes(range(256)) * 400


@pytest.fixture
def proxy(s3_server: S3Endpoint, s3_environ: dict[str, str]) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.port) as running:
        yield running


@pytest.fixture
def stores(s3_server: S3Endpoint, proxy: FaultProxy, s3_bucket: str) -> Stores:
    return Stores(storage(s3_config(s3_server, proxy.endpoint, retry_time_s=3.0), f"s3://{s3_bucket}/out"))


def completes(request: Request) -> bool:
    return request.method == "POST" and "uploadId" in request.target


def test_an_error_inside_a_200_does_not_complete_an_upload(stores: Stores, proxy: FaultProxy, s3_bucket: str) -> None:
    """S3 sends the head of its answer to CompleteMultipartUpload before it knows: the error is in the body."""
    proxy.choose = first_requests(2, Fault.ERROR_IN_200, completes)
    with stores.open_sink(f"s3://{s3_bucket}/out/x") as sink:
        sink.write(BODY * 400)
    assert proxy.faults[Fault.ERROR_IN_200] == 2
    assert bytes(stores.get(f"s3://{s3_bucket}/out/x")) == BODY * 400


def test_an_upload_that_never_completes_leaves_nothing(
    stores: Stores, proxy: FaultProxy, s3_server: S3Endpoint, s3_bucket: str
) -> None:
    proxy.choose = lambda request: Fault.ERROR_IN_200 if completes(request) else None
    with pytest.raises(TransientStoreError, match="InternalError"), stores.open_sink(f"s3://{s3_bucket}/out/x") as sink:
        sink.write(BODY * 400)
    assert not s3_server.client().list_multipart_uploads(Bucket=s3_bucket).get("Uploads")
    with pytest.raises(NotFound):
        stores.head(f"s3://{s3_bucket}/out/x")


@pytest.mark.parametrize("fault", [Fault.NOT_S3, Fault.ERROR_IN_200])
@pytest.mark.parametrize("key", ["images/1.jpg", "images/tab\t1.jpg"], ids=["obstore", "boto3"])
@pytest.mark.parametrize("act", ["get", "get_range", "open", "head"])
def test_an_answer_without_an_etag_is_no_object(
    stores: Stores, proxy: FaultProxy, s3_server: S3Endpoint, s3_bucket: str, fault: Fault, key: str, act: str
) -> None:
    """A portal's page, or an error told as a success, is never taken for an image: the request is sent again."""
    s3_server.client().put_object(Bucket=s3_bucket, Key=key, Body=BODY)
    proxy.choose = first_requests(2, fault, lambda request: request.method in ("GET", "HEAD"))
    uri = f"s3://{s3_bucket}/{key}"
    acts: dict[str, Callable[[], object]] = {
        "get": lambda: bytes(stores.get(uri)),
        "get_range": lambda: bytes(stores.get_range(uri, 0, len(BODY))),
        "open": lambda: stores.open(uri).read(),
        "head": lambda: stores.head(uri).size_bytes,
    }
    assert acts[act]() == (len(BODY) if act == "head" else BODY)
    assert proxy.faults[fault] == 2
    assert stores.stats()["retries"] == 2


@pytest.mark.parametrize("fault", [Fault.NOT_S3, Fault.ERROR_IN_200])
def test_a_write_that_a_portal_answers_is_sent_again(
    stores: Stores, proxy: FaultProxy, s3_bucket: str, fault: Fault
) -> None:
    proxy.choose = first_requests(1, fault, lambda request: request.method == "PUT")
    info = stores.put(f"s3://{s3_bucket}/out/x", BODY)
    assert stores.head(f"s3://{s3_bucket}/out/x") == info
    assert bytes(stores.get(f"s3://{s3_bucket}/out/x")) == BODY


def test_a_bucket_of_another_region_fails_the_run_with_what_to_set(
    stores: Stores, proxy: FaultProxy, s3_bucket: str
) -> None:
    """301 PermanentRedirect to every request: as a denial it ends the run early, and rejects no image."""
    proxy.choose = lambda request: Fault.REDIRECT
    with pytest.raises(AccessDenied, match=r"s3\.region"):
        stores.get(f"s3://{s3_bucket}/images/1.jpg")
    with pytest.raises(AccessDenied, match=r"s3\.region"):
        stores.put(f"s3://{s3_bucket}/out/x", b"1")
    assert "retries" not in stores.stats()


@pytest.mark.parametrize(
    ("status", "code", "fate"),
    [
        (400, "InvalidToken", Fate.DENIED),
        (403, "InvalidAccessKeyId", Fate.DENIED),
        (403, "SignatureDoesNotMatch", Fate.DENIED),
        (400, "AuthorizationHeaderMalformed", Fate.DENIED),
        (301, "PermanentRedirect", Fate.DENIED),
        (400, "KMS.DisabledException", Fate.DENIED),
        (400, "ExpiredToken", Fate.EXPIRED),
        (403, "RequestTimeTooSkewed", Fate.TRANSIENT),
        (400, "RequestTimeout", Fate.TRANSIENT),
        (400, "XAmzContentSHA256Mismatch", Fate.TRANSIENT),
        (200, "InternalError", Fate.TRANSIENT),
        (200, "SlowDown", Fate.THROTTLED),
        (503, "", Fate.THROTTLED),
        (502, "", Fate.TRANSIENT),
        (409, "OperationAborted", Fate.TRANSIENT),
        (403, "InvalidObjectState", Fate.ARCHIVED),
        (405, "MethodNotAllowed", Fate.PERMANENT),
    ],
)
def test_what_concerns_every_object_is_never_the_fault_of_one(status: int, code: str, fate: Fate) -> None:
    """S3-08: a token, a key, a region or a KMS key that is wrong is a denial, which ends a run early."""
    assert fate_of(status, code) is fate


def test_an_empty_object_is_read_as_such(stores: Stores, s3_server: S3Endpoint, s3_bucket: str) -> None:
    s3_server.client().put_object(Bucket=s3_bucket, Key="images/empty", Body=b"")
    uri = f"s3://{s3_bucket}/images/empty"
    assert bytes(stores.get(uri)) == b""
    assert bytes(stores.get_range(uri, 0, 10)) == b""
    assert stores.open(uri).read() == b""


@pytest.mark.parametrize("server", ["s3", "rgw"])
def test_a_listing_of_more_than_a_page_is_whole_and_sorted(server: str, request: pytest.FixtureRequest) -> None:
    """A thousand keys are told at a time; the folder's own marker, which consoles make, is not one of its objects."""
    endpoint: S3Endpoint = request.getfixturevalue(f"{server}_server")
    request.getfixturevalue(f"{server}_environ")
    bucket: str = request.getfixturevalue(f"{server}_bucket")
    client = endpoint.client()
    names = [f"many/{number * 7919 % 1100:04d}-é+ %.jpg" for number in range(1100)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: client.put_object(Bucket=bucket, Key=key, Body=b"1"), names))
    client.put_object(Bucket=bucket, Key="many/", Body=b"")
    stores = Stores(storage(s3_config(endpoint)))
    assert [info.uri for info in stores.list(f"s3://{bucket}/many/")] == [
        f"s3://{bucket}/{key}" for key in sorted(names)
    ]
    assert stores.stats()["list"] == 2


def test_what_was_deleted_in_a_versioned_bucket_is_not_there(
    rgw_server: S3Endpoint, rgw_bucket: str, rgw_environ: dict[str, str]
) -> None:
    """A delete marker stands before the versions: not found, not listed, and free for a conditional write."""
    client = rgw_server.client()
    client.put_bucket_versioning(Bucket=rgw_bucket, VersioningConfiguration={"Status": "Enabled"})
    stores = Stores(storage(s3_config(rgw_server), f"s3://{rgw_bucket}/out"))
    uri = f"s3://{rgw_bucket}/out/x"
    stores.put(uri, b"1")
    stores.put(uri, b"2")
    assert bytes(stores.get(uri)) == b"2"
    stores.delete(uri)
    acts: list[Callable[[], object]] = [lambda: stores.get(uri), lambda: stores.head(uri), lambda: stores.open(uri)]
    for act in acts:
        with pytest.raises(NotFound):
            act()
    assert list(stores.list(f"s3://{rgw_bucket}/out/")) == []
    assert stores.put_if_absent(uri, b"3") is not None
    assert bytes(stores.get(uri)) == b"3"


def test_a_request_that_s3_does_not_understand_is_told_in_its_words(stores: Stores, proxy: FaultProxy) -> None:
    """It concerns this object alone, and no try makes it better."""
    proxy.choose = lambda request: Fault.NOT_ALLOWED
    with pytest.raises(PermanentStoreError, match="405 MethodNotAllowed"):
        stores.get("s3://bucket/x")
    assert "retries" not in stores.stats()
