"""S3 keeps the store contract, on a real server, and so does the dispatcher on both."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dataset_packaging.config import S3Config
from dataset_packaging.errors import NotFound, UnsupportedKey
from dataset_packaging.io.s3_store import S3Store
from dataset_packaging.io.store import StorageConfig, Store, Stores
from dataset_packaging_tests.contracts.s3_config import s3_config, storage
from dataset_packaging_tests.contracts.store_contract import ODD_KEYS, PicklableContract, StoreContract
from dataset_packaging_tests.servers.s3_server import S3Endpoint


class OnSeaweed:
    @pytest.fixture(scope="class")
    @classmethod
    def endpoint(cls, s3_server: S3Endpoint) -> S3Endpoint:
        return s3_server


class OnCeph:
    @pytest.fixture(scope="class")
    @classmethod
    def endpoint(cls, rgw_server: S3Endpoint) -> S3Endpoint:
        return rgw_server


class OnS3:
    """One bucket and one environment for a class, a prefix for each test: making clients costs more than the tests."""

    @pytest.fixture(scope="class")
    @classmethod
    def bucket(cls, endpoint: S3Endpoint) -> Iterator[str]:
        name = f"contract-{uuid.uuid4()}"
        endpoint.client().create_bucket(Bucket=name)
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in endpoint.admin.environ().items():
                patch.setenv(variable, value)
            yield name

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, endpoint: S3Endpoint, bucket: str) -> Store:
        return S3Store(storage(s3_config(endpoint)), writable=True)

    @pytest.fixture
    def root_uri(self, bucket: str) -> str:
        return f"s3://{bucket}/{uuid.uuid4()}"


class TestS3Store(OnSeaweed, OnS3, StoreContract):
    pass


class TestS3StoreOnCeph(OnCeph, OnS3, StoreContract):
    pass


class TestStoresOnS3(OnSeaweed, OnS3, PicklableContract):
    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, endpoint: S3Endpoint, bucket: str) -> Store:
        return Stores(storage(s3_config(endpoint), f"s3://{bucket}"))


class TestStoresOnFiles(PicklableContract):
    @pytest.fixture
    def store(self) -> Store:
        return Stores(StorageConfig(S3Config(), None, ()))

    @pytest.fixture
    def root_uri(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}"


class OddKeysOnS3(OnS3):
    """What another tool stored under a key is read back from it, or the key is refused. S3-01, S3-06."""

    @pytest.mark.parametrize("key", [*ODD_KEYS, "k" * 1000 + "/" + "x" * 20], ids=lambda key: ascii(key)[:40])
    def test_an_odd_key_is_read_as_it_was_stored(self, store: Store, endpoint: S3Endpoint, key: str) -> None:
        bucket = f"odd-{uuid.uuid4()}"  # keys at the top of a bucket
        client = endpoint.client()
        client.create_bucket(Bucket=bucket)
        near = {key.strip("/"), key.strip(), key.replace("//", "/"), key.replace("\\", "/"), key.replace("+", " ")}
        near |= {key.replace("%20", " "), key.replace("%2F", "/"), key.replace("%25", "%")}
        for other in near - {key, ""}:
            self.try_to_store(client, bucket, other, b"another object")
        if not self.try_to_store(client, bucket, key, b"mine"):
            return  # a server that takes the key back has nothing to read
        for other in near - {key, ""}:
            self.try_to_store(client, bucket, other, b"another object")
        uri = f"s3://{bucket}/{key}"
        reads = [lambda: store.get(uri), lambda: store.get_with_info(uri)[0], lambda: store.get_range(uri, 0, 100)]
        for read in [*reads, lambda: memoryview(store.open(uri).read())]:
            try:
                assert bytes(read()) == b"mine"
            except (UnsupportedKey, NotFound):
                assert self.may_refuse(key)
        if not self.may_refuse(key):
            assert uri in {info.uri for info in store.list(f"s3://{bucket}/")}
            assert store.head(uri).size_bytes == 4

    def may_refuse(self, key: str) -> bool:
        raise NotImplementedError

    def try_to_store(self, client: Any, bucket: str, key: str, body: bytes) -> bool:
        try:
            client.put_object(Bucket=bucket, Key=key, Body=body)
        except ClientError:
            return False
        return True


class TestOddKeysOnSeaweed(OnSeaweed, OddKeysOnS3):
    def may_refuse(self, key: str) -> bool:
        return "\\" in key or any(part in ("", ".", "..") for part in key.split("/"))  # SeaweedFS folds them


class TestOddKeysOnCeph(OnCeph, OddKeysOnS3):
    def may_refuse(self, key: str) -> bool:
        return False
