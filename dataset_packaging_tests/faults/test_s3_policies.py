"""The least-privilege policies of docs/s3.md, tried on real servers with credentials that can do nothing else."""

import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dataset_packaging.errors import AccessDenied, NotFound
from dataset_packaging.io import s3_sink
from dataset_packaging.io.store import Stores
from dataset_packaging_tests.contracts.s3_config import s3_config, storage
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset, Row, open_pipeline, pack, photo
from dataset_packaging_tests.packing.s3_dataset import Bucket, uploaded
from dataset_packaging_tests.servers.fault_proxy import Fault, FaultProxy
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


# whole runs


@pytest.fixture
def under_policies(
    server_and_bucket: tuple[S3Endpoint, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PhotoDataset:
    """A dataset whose reader and writer are two identities that may do what the page says, and nothing else."""
    server, name = server_and_bucket
    local = PhotoDataset(tmp_path / "local", settings={"shard_size": 8})
    local.add_photos(14)
    local.add_photos(6, sizes=False)
    noise = np.random.default_rng(1)
    for number in range(3):
        buffer = io.BytesIO()
        Image.fromarray(noise.integers(0, 256, (900, 900, 3), np.uint8)).save(buffer, "PNG", compress_level=0)
        local.rows.append(Row(f"noise{number}", f"noise{number}.png", "a shard in parts", (900, 900)))
        local.write_image(f"noise{number}.png", buffer.getvalue())
    local.rows.append(Row("missing", "missing.jpg", "no such object", (96, 96)))
    local.rows.append(Row("private", f"s3://{name}/pexels-private/1.jpg", "not below the prefix", (96, 96)))
    dataset = uploaded(local, Bucket(name, server.client()), "pexels")
    server.client().put_object(Bucket=name, Key="pexels-private/1.jpg", Body=photo(1).data)
    profiles = tmp_path / "credentials"
    with profiles.open("w") as file:
        for identity in ("read", "write"):
            policy = policy_of_the_docs(identity, name)
            for documented, used in (("parquet", "main"), ("sidecar", "side"), ("work", "work")):
                policy = policy.replace(f"pexels_{documented}/", f"out/{used}/")
            credentials, _ = server.assume_role(policy)
            variables = credentials.environ()
            told = "\n".join(f"{variable.lower()} = {value}" for variable, value in variables.items())
            file.write(f"[{identity}-only]\n{told}\n")
    for variable in [variable for variable in os.environ if variable.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    monkeypatch.setattr(s3_sink, "PART_BYTES", 5 << 20)
    return replace(
        dataset, output=f"s3://{name}/out", manifest=f"s3://{name}/pexels/mani*.jsonl", root=tmp_path / "run"
    )


@pytest.mark.parametrize("missing_is", [404, 403])
def test_the_two_policies_are_enough_for_a_whole_run(
    under_policies: PhotoDataset, server_and_bucket: tuple[S3Endpoint, str], missing_is: int
) -> None:
    """From manifest to handoff and to the next run, without another permission; denied and missing are told apart.

    S3-08: Amazon's S3 answers 403 for a missing object, since ListBucket is bound to prefixes; these servers do not.
    """
    server, name = server_and_bucket
    with FaultProxy(server.port, lambda _: Fault.HIDE_MISSING if missing_is == 403 else None) as proxy:
        identities = "read: {profile: read-only}, write: {profile: write-only}"
        block = f"s3: {{endpoint: {proxy.endpoint}, region: {server.region}, {identities}}}"
        under_policies.settings["more"] = block
        run_under_policies(under_policies)
    bucket = Bucket(name, server.client())
    assert {key.split("/")[1] for key in bucket.keys("out/")} == {"main", "side", "work"}
    assert bucket.open_uploads() == []


def run_under_policies(under_policies: PhotoDataset) -> None:
    packed = pack(under_policies)
    assert packed.problems == ()
    assert packed.ledger.total.rejected == {"not_found": 1, "access_denied": 1}
    assert packed.ledger.total.packed == 23
    with open_pipeline(under_policies.config()) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
        assert pipeline.write_handoff().findings == ()
        assert pipeline.read_handoff() is not None
        assert {row["reason"]: row["image_key"] for row in pipeline.rejects()} == {
            "not_found": "missing",
            "access_denied": "private",
        }
    assert pack(under_policies).written == {}
