"""The least-privilege policies of docs/s3.md, tried on real servers with credentials that can do nothing else."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dataset_packaging.errors import AccessDenied, NotFound
from dataset_packaging.io.store import Stores
from dataset_packaging_tests.contracts.s3_config import s3_config, storage
from dataset_packaging_tests.servers.s3_server import S3Endpoint

DOCUMENT = Path(__file__).parents[2] / "docs" / "s3.md"


def policy_of_the_docs(name: str, bucket: str) -> str:
    """Take a policy out of the page, without spaces (Ceph would read them as plus signs)."""
    found = re.search(rf"<!-- policy: {name} -->\n```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    policy = re.sub(r"(SOURCE|OUTPUT)-BUCKET", bucket, found[1])
    return json.dumps(json.loads(policy), separators=(",", ":"))


@pytest.fixture(params=["s3", "rgw"])
def server_and_bucket(request: pytest.FixtureRequest) -> tuple[S3Endpoint, str]:
    server: S3Endpoint = request.getfixturevalue(f"{request.param}_server")
    bucket: str = request.getfixturevalue(f"{request.param}_bucket")
    return server, bucket


@pytest.fixture
def act_as(server_and_bucket: tuple[S3Endpoint, str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Stores]:
    server, bucket = server_and_bucket

    def stores_with(policy: str) -> Stores:
        credentials, _ = server.assume_role(policy_of_the_docs(policy, bucket))
        for variable, value in credentials.environ().items():
            monkeypatch.setenv(variable, value)
        prefixes = [f"s3://{bucket}/pexels_{name}" for name in ("parquet", "sidecar", "work")]
        return Stores(storage(s3_config(server), *prefixes))

    return stores_with


def test_the_policy_for_sources_is_enough_to_read_and_for_nothing_else(
    server_and_bucket: tuple[S3Endpoint, str], act_as: Callable[[str], Stores]
) -> None:
    server, bucket = server_and_bucket
    for key in ("pexels/entry-1.jsonl", "pexels/images/1.jpg", "pexels-private/1.jpg"):
        server.client().put_object(Bucket=bucket, Key=key, Body=key.encode())
    stores = act_as("read")
    assert [info.uri for info in stores.list(f"s3://{bucket}/pexels/entry-")] == [f"s3://{bucket}/pexels/entry-1.jsonl"]
    assert bytes(stores.get(f"s3://{bucket}/pexels/images/1.jpg")) == b"pexels/images/1.jpg"
    assert bytes(stores.get_range(f"s3://{bucket}/pexels/images/1.jpg", 0, 6)) == b"pexels"
    assert stores.open(f"s3://{bucket}/pexels/entry-1.jsonl").read() == b"pexels/entry-1.jsonl"
    refused: list[Callable[[], object]] = [
        lambda: stores.get(f"s3://{bucket}/pexels-private/1.jpg"),
        lambda: list(stores.list(f"s3://{bucket}/pexels-private/")),
        lambda: stores.put(f"s3://{bucket}/pexels/new", b""),
        lambda: stores.delete(f"s3://{bucket}/pexels/images/1.jpg"),
    ]
    for act in refused:
        with pytest.raises(AccessDenied):
            act()


@pytest.mark.parametrize("prefix", ["pexels_parquet", "pexels_sidecar", "pexels_work"])
def test_the_policy_for_outputs_is_enough_for_everything_that_a_run_writes(
    server_and_bucket: tuple[S3Endpoint, str], act_as: Callable[[str], Stores], prefix: str
) -> None:
    server, bucket = server_and_bucket
    server.client().put_object(Bucket=bucket, Key="other/x", Body=b"1")
    stores = act_as("write")
    root = f"s3://{bucket}/{prefix}"
    assert stores.abort_uploads(root) == 0
    with stores.open_sink(f"{root}/512_1024/10000/shard-000000.parquet") as sink:
        sink.write(bytes(40_000_000))
    with pytest.raises(RuntimeError), stores.open_sink(f"{root}/aborted") as sink:  # noqa: PT012
        sink.write(bytes(40_000_000))
        raise RuntimeError
    assert not server.client().list_multipart_uploads(Bucket=bucket).get("Uploads")
    stores.put(f"{root}/receipt.json", b"{}")
    lease = stores.put_if_absent(f"{root}/lease.json", b"1")
    assert lease is not None
    assert stores.put_if_absent(f"{root}/lease.json", b"2") is None
    assert stores.put_if_match(f"{root}/lease.json", b"3", lease.tag) is not None
    assert len(list(stores.list(f"{root}/"))) == 3
    assert stores.open(f"{root}/receipt.json").read() == b"{}"
    stores.delete(f"{root}/lease.json")
    with pytest.raises((NotFound, AccessDenied)):
        stores.head(f"{root}/lease.json")
    with pytest.raises(AccessDenied):
        stores.get(f"s3://{bucket}/other/x")
    with pytest.raises(AccessDenied):
        stores.put(f"s3://{bucket}/other/y", b"")
