"""S3 keeps the store contract, on a real server, and so does the dispatcher on both."""

from pathlib import Path

import pytest

from dataset_packaging.config import S3Config
from dataset_packaging.io.s3_store import S3Store
from dataset_packaging.io.store import StorageConfig, Store, Stores
from dataset_packaging_tests.contracts.s3_config import s3_config, storage
from dataset_packaging_tests.contracts.store_contract import PicklableContract, StoreContract
from dataset_packaging_tests.servers.s3_server import S3Endpoint


class TestS3Store(StoreContract):
    @pytest.fixture
    def store(self, s3_server: S3Endpoint, s3_environ: dict[str, str]) -> Store:
        return S3Store(storage(s3_config(s3_server)), writable=True)

    @pytest.fixture
    def root_uri(self, s3_bucket: str) -> str:
        return f"s3://{s3_bucket}/ds"


class TestStoresOnS3(PicklableContract):
    @pytest.fixture
    def store(self, s3_server: S3Endpoint, s3_environ: dict[str, str], root_uri: str) -> Store:
        return Stores(storage(s3_config(s3_server), root_uri))

    @pytest.fixture
    def root_uri(self, s3_bucket: str) -> str:
        return f"s3://{s3_bucket}/ds"


class TestStoresOnFiles(PicklableContract):
    @pytest.fixture
    def store(self) -> Store:
        return Stores(StorageConfig(S3Config(), None, ()))

    @pytest.fixture
    def root_uri(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}"
