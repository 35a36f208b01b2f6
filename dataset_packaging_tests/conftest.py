"""Fixtures that several test packages share."""

import itertools
from collections.abc import Iterator

import pytest

from dataset_packaging_tests.servers import ceph_rgw
from dataset_packaging_tests.servers.s3_server import S3Endpoint
from dataset_packaging_tests.servers.seaweedfs import SeaweedServer

_BUCKET_NUMBERS = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that make slow tests slower and more thorough, and one that keeps the pictures of the UI."""
    parser.addoption("--lives", type=int, default=6, help="datasets that live through random changes and faults")
    parser.addoption("--kill-images", type=int, default=160, help="images of the run that is killed at random moments")
    parser.addoption("--outage-s", type=float, default=4, help="how long the S3 server is gone in the middle of a pack")
    parser.addoption(
        "--short-sessions-s", type=float, default=8, help="how long a pack with credentials of 3 s takes at least"
    )
    parser.addoption("--screenshots", metavar="FOLDER", help="where the tests of the UI leave the README's pictures")


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
    return _set_environ(s3_server, monkeypatch)


def _set_environ(server: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    environ = server.admin.environ() | {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": server.region,
        "AWS_DEFAULT_REGION": server.region,
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ


@pytest.fixture(scope="session")
def rgw_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Endpoint]:
    """Ceph's gateway: keys exactly as given, listings in byte order, sessions of seconds."""
    if not ceph_rgw.is_installed():
        pytest.skip("Ceph is not installed: apt-get install --no-install-recommends ceph-mon ceph-osd radosgw")
    server = ceph_rgw.CephRgw(tmp_path_factory.mktemp("rgw"))
    try:
        server.start()
        yield server.endpoint
    finally:
        server.stop()


@pytest.fixture
def rgw_bucket(rgw_server: S3Endpoint) -> str:
    """A bucket of Ceph's gateway that nobody has used."""
    name = f"test-{next(_BUCKET_NUMBERS)}"
    rgw_server.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def rgw_environ(rgw_server: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As `s3_environ`, for Ceph's gateway."""
    return _set_environ(rgw_server, monkeypatch)
