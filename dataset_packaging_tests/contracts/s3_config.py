"""Storage configurations of the tests' servers."""

from dataset_packaging.config import AccessGrantsConfig, S3Config
from dataset_packaging.io.store import StorageConfig
from dataset_packaging_tests.servers.s3_server import S3Endpoint


def s3_config(server: S3Endpoint, endpoint: str | None = None, **changes: object) -> S3Config:
    """Point an s3 block at a server, or at a proxy before it; short times, so that faults take seconds."""
    settings: dict[str, object] = {
        "endpoint": endpoint or server.endpoint,
        "region": server.region,
        "read_timeout_s": 2.0,
        "retry_time_s": 30.0,
    }
    return S3Config.model_validate(settings | changes)


def storage(s3: S3Config, *output_prefixes: str, grants: AccessGrantsConfig | None = None) -> StorageConfig:
    """Make the storage part of a dataset."""
    return StorageConfig(s3, grants, output_prefixes)
