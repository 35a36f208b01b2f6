"""What goes wrong between a worker and S3. Real servers; a proxy breaks the requests that a test chooses."""

import io
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dataset_packaging.errors import (
    AccessDenied,
    Archived,
    ConfigError,
    NotFound,
    StoreError,
    TransientStoreError,
    UnsupportedKey,
)
from dataset_packaging.io.s3_keys import split_s3_uri
from dataset_packaging.io.store import Stores
from dataset_packaging_tests.contracts.s3_config import s3_config, storage
from dataset_packaging_tests.servers.fault_proxy import (
    Fault,
    FaultProxy,
    Request,
    first_requests,
    random_faults,
)
from dataset_packaging_tests.servers.s3_server import S3Endpoint
from dataset_packaging_tests.servers.seaweedfs import SeaweedServer

BODY = bytes(range(256)) * 400


@pytest.fixture
def proxy(s3_server: S3Endpoint, s3_environ: dict[str, str]) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.port) as running:
        yield running


@pytest.fixture
def stores(s3_server: S3Endpoint, proxy: FaultProxy, s3_bucket: str) -> Stores:
    return stores_behind(proxy, s3_server, s3_bucket)


def stores_behind(proxy: FaultProxy, server: S3Endpoint, bucket: str, **changes: object) -> Stores:
    return Stores(storage(s3_config(server, proxy.endpoint, **changes), f"s3://{bucket}/out"))


@pytest.fixture
def image_uri(s3_server: S3Endpoint, s3_bucket: str) -> str:
    s3_server.client().put_object(Bucket=s3_bucket, Key="images/1.jpg", Body=BODY)
    return f"s3://{s3_bucket}/images/1.jpg"


def gets(request: Request) -> bool:
    return request.method == "GET" and "list-type" not in request.target


def puts(request: Request) -> bool:
    return request.method == "PUT"


# S3-01


@pytest.mark.parametrize(
    "key",
    [
        "a#1.jpg",
        "a?x=1.jpg",
        "a b+c%20d;e.jpg",
        "/x//y.jpg",
        "ä.jpg",
        "a\u0308.jpg",
        " x",
        "t\tn\n.jpg",
        "a/",
        "?",
        "#",
        "",
    ],
)
def test_a_uri_is_split_and_never_parsed(key: str) -> None:
    """S3-01: generic URL parsers drop what follows # or ?, decode, strip and normalize."""
    assert split_s3_uri(f"s3://b/{key}") == ("b", key)


@pytest.mark.parametrize("uri", ["s3://[b/k", "s3:///k", "s3://", "s3://../k", "s3://b/" + "é" * 513, "s3://b/\ud800"])
def test_what_names_no_object_is_refused(uri: str) -> None:
    """S3-01, S3-06."""
    with pytest.raises(UnsupportedKey):
        split_s3_uri(uri)


# S3-04


def test_an_expired_token_in_the_middle_of_an_upload_is_renewed(
    stores: Stores, proxy: FaultProxy, s3_bucket: str
) -> None:
    """S3-04: ExpiredToken on the second part: that part is sent again, the upload completes."""
    proxy.choose = first_requests(1, Fault.EXPIRED_TOKEN, lambda r: puts(r) and "partNumber=2" in r.target)
    with stores.open_sink(f"s3://{s3_bucket}/out/x") as sink:
        for _ in range(5):
            sink.write(bytes(10_000_000))
    assert proxy.faults[Fault.EXPIRED_TOKEN] == 1
    assert stores.head(f"s3://{s3_bucket}/out/x").size_bytes == 50_000_000
    assert proxy.count("POST", "?uploads") == 1


def test_an_expired_token_on_a_read_is_renewed(stores: Stores, proxy: FaultProxy, image_uri: str) -> None:
    """S3-04: obstore cannot tell an expired token from other refusals; boto3 can."""
    proxy.choose = first_requests(2, Fault.EXPIRED_TOKEN, gets)
    assert bytes(stores.get(image_uri)) == BODY


# S3-05


@pytest.mark.parametrize("fault", [Fault.TRUNCATE, Fault.RESET, Fault.STALL])
@pytest.mark.parametrize("key", ["images/1.jpg", "images//1.jpg"], ids=["obstore", "boto3"])
def test_a_broken_body_is_read_again(
    rgw_server: S3Endpoint, rgw_bucket: str, rgw_environ: dict[str, str], fault: Fault, key: str
) -> None:
    """S3-05: once broken, then fine."""
    rgw_server.client().put_object(Bucket=rgw_bucket, Key=key, Body=BODY)
    with FaultProxy(rgw_server.port, first_requests(1, fault, gets)) as proxy:
        stores = stores_behind(proxy, rgw_server, rgw_bucket)
        assert bytes(stores.get(f"s3://{rgw_bucket}/{key}")) == BODY
        assert proxy.faults[fault] == 1
        assert stores.stats()["retries"] == 1


@pytest.mark.parametrize("fault", [Fault.TRUNCATE, Fault.RESET])
def test_a_body_that_stays_short_is_an_error_after_bounded_retries(
    proxy: FaultProxy, s3_server: S3Endpoint, s3_bucket: str, image_uri: str, fault: Fault
) -> None:
    """S3-05: never half an image, never for ever."""
    proxy.choose = lambda request: fault
    stores = stores_behind(proxy, s3_server, s3_bucket, max_retries=4)
    with pytest.raises(TransientStoreError) as caught:
        stores.get(image_uri)
    assert proxy.faults[fault] == 5
    assert "4 retries" in str(caught.value)
    assert image_uri in str(caught.value)


def test_a_range_that_breaks_off_is_read_again(stores: Stores, proxy: FaultProxy, image_uri: str) -> None:
    """S3-05, for the range reads of an open file."""
    proxy.choose = first_requests(2, Fault.TRUNCATE, gets)
    with stores.open(image_uri) as file:
        assert file.read() == BODY


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(
    stores: Stores, s3_server: S3Endpoint, s3_bucket: str
) -> None:
    """Halves of two objects are no object."""
    client = s3_server.client()
    client.put_object(Bucket=s3_bucket, Key="big", Body=b"a" * 3_000_000)
    with stores.open(f"s3://{s3_bucket}/big") as file:
        assert file.read(10) == b"a" * 10
        client.put_object(Bucket=s3_bucket, Key="big", Body=b"b" * 3_000_000)
        with pytest.raises(StoreError):
            file.read()


@pytest.mark.parametrize("key", ["out/file", "out//file"], ids=["obstore", "boto3"])
@pytest.mark.parametrize(("size", "requests"), [(0, 2), (1, 1), (64 * 2**10, 1), (64 * 2**10 + 1, 2)])
def test_opening_costs_one_request_and_a_small_object_no_other(
    rgw_server: S3Endpoint, rgw_bucket: str, rgw_environ: dict[str, str], key: str, size: int, requests: int
) -> None:
    """Size, tag and footer come together; an empty object has no end to ask for."""
    body = os.urandom(size)
    rgw_server.client().put_object(Bucket=rgw_bucket, Key=key, Body=body)
    with (
        FaultProxy(rgw_server.port) as proxy,
        stores_behind(proxy, rgw_server, rgw_bucket).open(f"s3://{rgw_bucket}/{key}") as file,
    ):
        file.seek(-min(size, 10), io.SEEK_END)
        assert file.read() == body[-10:]
        file.seek(0)
        assert file.read() == body
        assert sum("/file" in r.target and r.target.endswith(key) for r in proxy.requests) == requests


# S3-08


def test_a_missing_object_is_not_found_without_a_retry(stores: Stores, proxy: FaultProxy, s3_bucket: str) -> None:
    """S3-08."""
    with pytest.raises(NotFound):
        stores.get(f"s3://{s3_bucket}/images/none.jpg")
    assert proxy.count("GET") == 1


def test_an_archived_object_is_told_from_a_denied_one(stores: Stores, proxy: FaultProxy, image_uri: str) -> None:
    """S3-08: both are 403; the error code decides."""
    proxy.choose = lambda request: Fault.ARCHIVED
    with pytest.raises(Archived):
        stores.get(image_uri)
    proxy.choose = lambda request: Fault.DENIED
    with pytest.raises(AccessDenied) as caught:
        stores.get(image_uri)
    assert not isinstance(caught.value, Archived)
    assert "retries" not in stores.stats()


def test_a_refusal_names_object_identity_and_what_to_check(
    s3_server: S3Endpoint, s3_bucket: str, image_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3-08: by a server that really refuses this identity."""
    for name, value in s3_server.nobody.environ().items():
        monkeypatch.setenv(name, value)
    stores = Stores(storage(s3_config(s3_server)))
    with pytest.raises(AccessDenied) as caught:
        stores.get(image_uri)
    said = str(caught.value)
    assert image_uri in said
    assert "access key test-nobody" in said
    assert f"s3:GetObject on arn:aws:s3:::{s3_bucket}/images/1.jpg" in said
    assert "s3:ListBucket" in said
    assert "\n" not in said
    assert "test-nobody-secret" not in said
    with pytest.raises(AccessDenied, match=f"may s3:ListBucket on arn:aws:s3:::{s3_bucket} for prefix images/"):
        list(stores.list(f"s3://{s3_bucket}/images/"))
    with pytest.raises(AccessDenied, match="s3:PutObject"):
        stores.put(f"s3://{s3_bucket}/images/new", b"")


def test_many_refusals_are_not_many_renewals(s3_server: S3Endpoint, s3_bucket: str, proxy: FaultProxy) -> None:
    """S3-08: a refused row costs two requests (obstore's, and boto3's for the reason), the first one a third."""
    proxy.choose = lambda request: Fault.DENIED
    stores = stores_behind(proxy, s3_server, s3_bucket)
    for n in range(20):
        with pytest.raises(AccessDenied):
            stores.get(f"s3://{s3_bucket}/images/{n}")
    assert proxy.count("GET") <= 42


def test_a_clock_that_is_off_is_no_denial(stores: Stores, proxy: FaultProxy, image_uri: str) -> None:
    """S3-08: 403 RequestTimeTooSkewed is the machine's fault, and may pass."""
    proxy.choose = first_requests(2, Fault.CLOCK_SKEW, gets)
    assert bytes(stores.get(image_uri)) == BODY


def test_a_web_page_is_no_listing(stores: Stores, proxy: FaultProxy, s3_bucket: str, image_uri: str) -> None:
    proxy.choose = first_requests(2, Fault.NOT_S3)
    assert [info.uri for info in stores.list(f"s3://{s3_bucket}/")] == [image_uri]
    assert proxy.faults[Fault.NOT_S3] == 2


def test_no_credentials_at_all_is_one_clear_line(
    s3_server: S3Endpoint, image_uri: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(AccessDenied, match=r"no credentials found .* s3\.profile"):
        Stores(storage(s3_config(s3_server))).get(image_uri)
    with pytest.raises(ConfigError, match="nowhere"):
        Stores(storage(s3_config(s3_server, profile="nowhere"))).get(image_uri)


# S3-09


def test_throttling_is_waited_out_with_fewer_requests_at_once(
    stores: Stores, proxy: FaultProxy, image_uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S3-09: 503 for 30 % of the requests: all rows come, and the log tells that the concurrency was lowered."""
    proxy.choose = random_faults(1, {Fault.THROTTLED: 0.3}, gets)
    with caplog.at_level(logging.INFO), ThreadPoolExecutor(32) as pool:
        assert all(bytes(body) == BODY for body in pool.map(stores.get, [image_uri] * 300))
    assert stores.stats()["throttled"] == proxy.faults[Fault.THROTTLED]
    lowered = [record.getMessage() for record in caplog.records if "throttling" in record.getMessage()]
    assert lowered
    assert "32 requests at once instead of 64" in lowered[0]
    assert 2 <= stores.concurrency_limits()["s3-read"] < 64


def test_every_second_request_throttled_still_completes(stores: Stores, proxy: FaultProxy, image_uri: str) -> None:
    """S3-09."""
    proxy.choose = random_faults(2, {Fault.THROTTLED: 0.5})
    with ThreadPoolExecutor(16) as pool:
        assert all(bytes(body) == BODY for body in pool.map(stores.get, [image_uri] * 200))


def test_time_in_the_queue_is_not_time_of_failing(
    proxy: FaultProxy, s3_server: S3Endpoint, s3_bucket: str, image_uri: str
) -> None:
    """S3-09: with few requests allowed at once, those that wait for their turn do not use up their retry time."""
    answers = iter([Fault.THROTTLED] * 12 + [Fault.STALL_EARLY] * 12)  # a first round, and a slow second one
    proxy.choose = lambda request: next(answers, None)
    stores = stores_behind(proxy, s3_server, s3_bucket, max_connections=1, read_timeout_s=0.5, retry_time_s=2.0)
    with ThreadPoolExecutor(12) as pool:
        assert all(bytes(body) == BODY for body in pool.map(stores.get, [image_uri] * 12))


def test_throttling_without_end_is_a_transient_error(
    proxy: FaultProxy, s3_server: S3Endpoint, s3_bucket: str, image_uri: str
) -> None:
    """S3-09: never a verdict on the image."""
    proxy.choose = lambda request: Fault.THROTTLED
    stores = stores_behind(proxy, s3_server, s3_bucket, retry_time_s=1.0)
    started = time.monotonic()
    with pytest.raises(TransientStoreError, match="503"):
        stores.get(image_uri)
    assert 0.9 < time.monotonic() - started < 4


def test_all_faults_at_once_reject_nothing(
    stores: Stores, proxy: FaultProxy, s3_server: S3Endpoint, s3_bucket: str
) -> None:
    """The issue's mix: 5 % 503, 2 % resets, 2 % truncated bodies, 2 % stalls; every body is its own."""
    client = s3_server.client()
    bodies = {f"s3://{s3_bucket}/m/{n}": os.urandom(20_000 + n) for n in range(50)}
    for uri, body in bodies.items():
        client.put_object(Bucket=s3_bucket, Key=uri.split("/", 3)[3], Body=body)
    shares = {Fault.THROTTLED: 0.05, Fault.RESET: 0.02, Fault.TRUNCATE: 0.02, Fault.STALL: 0.02, Fault.ERROR_500: 0.02}
    proxy.choose = random_faults(3, shares)
    uris = list(bodies) * 10
    with ThreadPoolExecutor(16) as pool:
        assert all(bytes(body) == bodies[uri] for uri, body in zip(uris, pool.map(stores.get, uris), strict=True))
    assert min(proxy.faults[fault] for fault in shares) > 0


def test_writing_survives_the_same_faults(stores: Stores, proxy: FaultProxy, s3_bucket: str) -> None:
    shares = {Fault.THROTTLED: 0.1, Fault.RESET_EARLY: 0.1, Fault.LOST_REPLY: 0.1, Fault.ERROR_500: 0.1}
    proxy.choose = random_faults(4, shares)
    body = os.urandom(70_000_000)
    with stores.open_sink(f"s3://{s3_bucket}/out/big") as sink:
        for start in range(0, len(body), 7_000_000):
            sink.write(body[start : start + 7_000_000])
    for n in range(6):
        assert stores.put_if_absent(f"s3://{s3_bucket}/out/{n}", b"%d" % n) is not None
        tag = stores.head(f"s3://{s3_bucket}/out/{n}").tag
        assert stores.put_if_match(f"s3://{s3_bucket}/out/{n}", b"%d again" % n, tag) is not None
    proxy.choose = lambda request: None
    assert bytes(stores.get(f"s3://{s3_bucket}/out/big")) == body
    assert [bytes(stores.get(f"s3://{s3_bucket}/out/{n}")) for n in range(6)] == [b"%d again" % n for n in range(6)]


def test_the_connections_of_a_process_are_bounded(
    proxy: FaultProxy, s3_server: S3Endpoint, s3_bucket: str, image_uri: str
) -> None:
    """S3-09: not one connection for each thread."""
    stores = stores_behind(proxy, s3_server, s3_bucket, max_connections=4)
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(stores.get, [image_uri] * 200))
    assert proxy.most_connections <= 8  # 4 at work; one more each may be on its way to replace a busy one


# outages


def test_an_outage_shorter_than_the_retry_time_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SeaweedServer(tmp_path / "seaweedfs")
    try:
        server.start()
        for name, value in server.endpoint.admin.environ().items():
            monkeypatch.setenv(name, value)
        client = server.endpoint.client()
        client.create_bucket(Bucket="images")
        client.put_object(Bucket="images", Key="1", Body=BODY)
        stores = Stores(storage(s3_config(server.endpoint, retry_time_s=60.0)))
        assert bytes(stores.get("s3://images/1")) == BODY
        server.stop()
        with ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(stores.get, "s3://images/1") for _ in range(8)]
            time.sleep(3)  # the outage
            assert not any(future.done() for future in waiting)
            server.start()
            assert all(bytes(future.result()) == BODY for future in waiting)
        server.stop()
        down = Stores(storage(s3_config(server.endpoint, retry_time_s=1.0)))
        for act in (
            lambda: down.get("s3://images/1"),
            lambda: list(down.list("s3://images/")),
            lambda: down.put("s3://images/2", b""),
        ):
            with pytest.raises(TransientStoreError) as caught:
                act()
            assert server.endpoint.endpoint in str(caught.value)
            assert "s3://images/" in str(caught.value)
    finally:
        server.stop()


# S3-10


def uploads_in(server: S3Endpoint, bucket: str) -> int:
    return len(server.client().list_multipart_uploads(Bucket=bucket).get("Uploads", []))


def test_a_part_that_cannot_be_sent_aborts_the_upload(proxy: FaultProxy, s3_server: S3Endpoint, s3_bucket: str) -> None:
    """S3-10: part 3 of 4 fails for good."""
    proxy.choose = lambda request: Fault.DENIED if "partNumber=3" in request.target else None
    stores = stores_behind(proxy, s3_server, s3_bucket)
    with pytest.raises(AccessDenied), stores.open_sink(f"s3://{s3_bucket}/out/x") as sink:  # noqa: PT012
        for _ in range(4):
            sink.write(bytes(16 * 2**20))
    assert proxy.count("DELETE", "uploadId") == 1
    assert uploads_in(s3_server, s3_bucket) == 0
    with pytest.raises(NotFound):
        stores.head(f"s3://{s3_bucket}/out/x")


def test_what_a_killed_worker_uploaded_is_swept(
    s3_server: S3Endpoint, s3_bucket: str, s3_environ: dict[str, str]
) -> None:
    """S3-10: only below the folder that is swept; `out` is not `out-other`."""
    program = (
        "import os, sys\nfrom dataset_packaging.config import S3Config\n"
        "from dataset_packaging.io.store import StorageConfig, Stores\n"
        "stores = Stores(StorageConfig(S3Config(endpoint=sys.argv[1]), None, ()))\n"
        "sink = stores.open_sink(sys.argv[2]).__enter__()\n"
        "for _ in range(5): sink.write(bytes(16 * 2**20))\n"
        "os._exit(0)"
    )
    for folder in ("out", "out-other"):
        uri = f"s3://{s3_bucket}/{folder}/shard"
        command = [sys.executable, "-c", program, s3_server.endpoint, uri]
        killed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert killed.returncode == 0, killed.stderr
    assert uploads_in(s3_server, s3_bucket) == 2
    stores = Stores(storage(s3_config(s3_server), f"s3://{s3_bucket}/out"))
    assert stores.abort_uploads(f"s3://{s3_bucket}/out") == 1
    assert uploads_in(s3_server, s3_bucket) == 1
    assert stores.abort_uploads(f"s3://{s3_bucket}/out") == 0


def test_an_upload_that_was_swept_fails_its_writer(stores: Stores, s3_bucket: str) -> None:
    """S3-10: a writer that was taken for dead publishes nothing."""
    uri = f"s3://{s3_bucket}/out/x"
    with pytest.raises(TransientStoreError), stores.open_sink(uri) as sink:  # noqa: PT012
        sink.write(bytes(40_000_000))
        stores.abort_uploads(f"s3://{s3_bucket}/out")
        sink.write(bytes(40_000_000))
    with pytest.raises(NotFound):
        stores.head(uri)


# lost replies


@pytest.mark.parametrize(
    "write",
    [
        lambda stores, uri: stores.put_if_absent(uri, b"mine"),
        lambda stores, uri: stores.put_if_match(uri, b"mine", stores.put(uri, b"before").tag),
    ],
    ids=["absent", "match"],
)
def test_a_conditional_write_whose_reply_was_lost_knows_its_own_object(
    stores: Stores, proxy: FaultProxy, s3_bucket: str, write: Callable[[Stores, str], object]
) -> None:
    """The retry meets the object that the first try wrote: that is success, not another writer."""
    puts_seen: list[Request] = []

    def lose_the_conditional(request: Request) -> Fault | None:
        conditional = {"if-none-match", "if-match"} & set(request.headers)
        if request.method == "PUT" and conditional and not puts_seen:
            puts_seen.append(request)
            return Fault.LOST_REPLY
        return None

    proxy.choose = lose_the_conditional
    assert write(stores, f"s3://{s3_bucket}/out/lease") is not None
    assert proxy.faults[Fault.LOST_REPLY] == 1
    assert bytes(stores.get(f"s3://{s3_bucket}/out/lease")) == b"mine"


def test_a_lost_reply_does_not_claim_anothers_object(stores: Stores, proxy: FaultProxy, s3_bucket: str) -> None:
    stores.put(f"s3://{s3_bucket}/out/lease", b"another's")
    proxy.choose = first_requests(1, Fault.RESET_EARLY, puts)
    assert stores.put_if_absent(f"s3://{s3_bucket}/out/lease", b"mine") is None
    assert bytes(stores.get(f"s3://{s3_bucket}/out/lease")) == b"another's"


def test_a_completed_upload_whose_reply_was_lost_is_published(
    stores: Stores, proxy: FaultProxy, s3_bucket: str
) -> None:
    proxy.choose = first_requests(1, Fault.LOST_REPLY, lambda r: r.method == "POST" and "uploadId" in r.target)
    with stores.open_sink(f"s3://{s3_bucket}/out/x") as sink:
        sink.write(bytes(40_000_000))
    assert proxy.faults[Fault.LOST_REPLY] == 1
    assert stores.head(f"s3://{s3_bucket}/out/x") == sink.info


# S3-12


def test_a_process_that_used_s3_ends(s3_server: S3Endpoint, s3_environ: dict[str, str], image_uri: str) -> None:
    """S3-12: no hang at exit, neither after success nor after an error."""
    program = (
        "import sys\nfrom dataset_packaging.config import S3Config\n"
        "from dataset_packaging.io.store import StorageConfig, Stores\n"
        "stores = Stores(StorageConfig(S3Config(endpoint=sys.argv[1]), None, ()))\n"
        "file = stores.open(sys.argv[2]); file.read(10)\n"
        "print(len(stores.get(sys.argv[2])))\n"
        "stores.get(sys.argv[2] + '-none')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, s3_server.endpoint, image_uri],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.strip() == str(len(BODY))
    assert done.returncode == 1
    assert "NotFound" in done.stderr


def test_a_fork_after_use_reads_with_clients_of_its_own(
    s3_server: S3Endpoint, s3_environ: dict[str, str], image_uri: str
) -> None:
    """S3-12: obstore's threads do not survive a fork; the child must not wait for them."""
    program = (
        "import os, sys\nfrom dataset_packaging.config import S3Config\n"
        "from dataset_packaging.io.store import StorageConfig, Stores\n"
        "stores = Stores(StorageConfig(S3Config(endpoint=sys.argv[1]), None, ()))\n"
        "stores.get(sys.argv[2])\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    size = len(stores.get(sys.argv[2])) + len(Stores(stores.config).get(sys.argv[2]))\n"
        "    os._exit(size == 2 * int(sys.argv[3]) and 7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "print(len(stores.get(sys.argv[2])))\n"
    )
    command = [sys.executable, "-c", program, s3_server.endpoint, image_uri, str(len(BODY))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, str(len(BODY))), done.stderr


# S3-13


@pytest.mark.parametrize(("checksum", "sent"), [("when_required", False), ("when_supported", True)])
def test_checksums_are_sent_only_where_they_are_wanted(
    proxy: FaultProxy, s3_server: S3Endpoint, s3_bucket: str, checksum: str, sent: bool
) -> None:
    """S3-13: some compatible stores refuse trailing checksums; by default there are none."""
    stores = stores_behind(proxy, s3_server, s3_bucket, checksum=checksum)
    stores.put(f"s3://{s3_bucket}/out/x", b"1")
    with stores.open_sink(f"s3://{s3_bucket}/out/y") as sink:
        sink.write(bytes(40_000_000))
    told = [
        any(name.startswith("x-amz-checksum") or name == "x-amz-trailer" for name in request.headers)
        for request in proxy.requests
        if request.method == "PUT"
    ]
    assert told == [sent] * len(told)
    assert bytes(stores.get(f"s3://{s3_bucket}/out/x")) == b"1"


# content


def test_a_body_is_never_unpacked(stores: Stores, s3_server: S3Endpoint, s3_bucket: str) -> None:
    """MAN-08: `Content-Encoding: gzip` is the object's business; the stored bytes are what is asked for."""
    stored = b"\x1f\x8b not really gzip"
    client = s3_server.client()
    for key in ("a", "tab\tb"):  # by obstore, by boto3
        client.put_object(Bucket=s3_bucket, Key=key, Body=stored, ContentEncoding="gzip")
        assert bytes(stores.get(f"s3://{s3_bucket}/{key}")) == stored
