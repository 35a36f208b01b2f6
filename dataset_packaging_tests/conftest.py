"""Fixtures that several test packages share."""

import itertools
from collections.abc import Iterator

import pytest

from dataset_packaging_tests.servers.s3_server import S3Endpoint
from dataset_packaging_tests.servers.seaweedfs import SeaweedServer

_BUCKET_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Endpoint]:
    """A real S3 server (SeaweedFS), one for the whole test session."""
    server = SeaweedServer(tmp_path_factory.mktemp("seaweedfs"))
    try:
        server.start()
        yield server.endpoint
    finally:
        server.stop()


@pytest.fixture
def s3_bucket(s3_server: S3Endpoint) -> str:
    """A bucket of the real server that nobody has used."""
    name = f"test-{next(_BUCKET_NUMBERS)}"
    s3_server.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def s3_environ(s3_server: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set the AWS variables of this process, and of those it starts: the real server, its region and its admin."""
    environ = s3_server.admin.environ() | {
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_REGION": s3_server.region,
        "AWS_DEFAULT_REGION": s3_server.region,
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ
