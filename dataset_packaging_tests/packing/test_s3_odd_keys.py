"""Whole runs over keys that clients and stores spell differently: the stored bytes are packed, or a row is rejected."""

import hashlib
import io
import unicodedata
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError
from PIL import Image

from dataset_packaging_tests.contracts.store_contract import ODD_KEYS
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset, Row, open_pipeline, pack
from dataset_packaging_tests.packing.s3_dataset import Bucket, output_key, uploaded
from dataset_packaging_tests.servers.s3_server import S3Endpoint

LONGEST = "k" * 1000 + "/" + "x" * 20 + ".jp"  # 1,024 bytes
TOO_LONG = LONGEST + "g"
KEYS = [
    *ODD_KEYS,
    *(f"deep/{key}" for key in ("//x.jpg", "a/./b.jpg", "a/../b.jpg", "dir/", "a#b?c%20d+e f.jpg", "a%b.jpg")),
    "//", "/", "///x", "x//", "a b/c d/", "%", "%2", "%zz", "+", "?", "#", "&amp;.jpg", "<Key>.jpg", "\x00.jpg",
    "e\u0301\U0001f469\u200d\U0001f4bb.jpg", "\ufeffbom.jpg", "\u202egpj.exe", "é" * 500, LONGEST, TOO_LONG,
]  # fmt: skip


def picture(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 40), (number % 256, number // 256, 90)).save(buffer, "PNG")
    return buffer.getvalue()


def try_to_store(client: Any, bucket: str, key: str, body: bytes) -> bool:
    try:
        client.put_object(Bucket=bucket, Key=key, Body=body)
        return client.get_object(Bucket=bucket, Key=key)["Body"].read() == body
    except (ClientError, ValueError):
        return False


@pytest.fixture(params=["s3", "rgw"])
def server_and_bucket(request: pytest.FixtureRequest) -> tuple[S3Endpoint, Bucket]:
    server: S3Endpoint = request.getfixturevalue(f"{request.param}_server")
    request.getfixturevalue(f"{request.param}_environ")
    name: str = request.getfixturevalue(f"{request.param}_bucket")
    return server, Bucket(name, server.client())


def test_what_was_stored_under_a_key_is_what_is_packed(
    server_and_bucket: tuple[S3Endpoint, Bucket], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """S3-01, S3-06: also where a neighbour that is spelled nearly the same holds another image."""
    server, outputs = server_and_bucket
    images = f"{outputs.name}-odd"  # its keys are at the top
    outputs.client.create_bucket(Bucket=images)
    near = {twin for key in KEYS for twin in twins(key)} - set(KEYS)
    for number, key in enumerate(sorted(near)):
        try_to_store(outputs.client, images, key, picture(10_000 + number))
    stored = {key: picture(n) for n, key in enumerate(KEYS) if try_to_store(outputs.client, images, key, picture(n))}
    kept = {key for key, body in stored.items() if read_back(outputs.client, images, key) == body}
    local = PhotoDataset(tmp_path_factory.mktemp("odd"), settings={"shard_size": 20})
    local.rows += [Row(f"k{number}", f"s3://{images}/{key}", ascii(key), (40, 40)) for number, key in enumerate(KEYS)]
    (local.root / "images").mkdir()
    dataset = uploaded(local, outputs, "set")
    packed = pack(dataset)
    assert packed.problems == ()
    assert packed.ledger.total.pending == 0
    found = {}
    for name in outputs.keys(f"{output_key(dataset)}/main/"):
        for row in pq.read_table(pa.BufferReader(outputs.read(name))).to_pylist():
            found[row["s3_image_path"].removeprefix(f"s3://{images}/")] = row["image"]
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
        rejects = {str(row["s3_image_path"]).removeprefix(f"s3://{images}/"): row for row in pipeline.rejects()}
    assert found.keys() | rejects.keys() >= set(KEYS) - {key for key in KEYS if not key.isprintable()}
    assert len(found) + len(rejects) == len(KEYS), "every row has one fate"
    wrong = [key for key, image in found.items() if digest(image) != digest(stored.get(key, b""))]
    assert wrong == []
    assert {row["reason"] for key, row in rejects.items() if key in kept} <= {"bad_path"}
    assert {row["reason"] for row in rejects.values()} <= {"bad_path", "not_found", "empty_object"}
    assert all(str(row["detail"]) for row in rejects.values())
    lost = {key for key in kept - found.keys() if not folds(server, key)}
    assert lost == set(), "only what the store itself takes for another key may be refused"
    assert TOO_LONG in rejects


def twins(key: str) -> set[str]:
    """Keys that a careless client would ask for instead."""
    forms = {unicodedata.normalize(form, key) for form in ("NFC", "NFD")}
    cut = {key.strip("/"), key.strip(), key.partition("#")[0], key.partition("?")[0]}
    changed = {key.replace("//", "/"), key.replace("+", " "), key.replace("%20", " "), key.replace("\\", "/")}
    return (forms | cut | changed) - {key, ""}


def read_back(client: Any, bucket: str, key: str) -> bytes:
    """What stands under a key when all have been stored; nothing where the server gave its place to another one."""
    try:
        body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except ClientError:
        return b""
    return body


def folds(server: S3Endpoint, key: str) -> bool:
    """Whether this server takes the key for another one, as SeaweedFS does."""
    odd = "\\" in key or any(part in ("", ".", "..") for part in key.split("/"))
    return server.name != "ceph-rgw" and odd


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
