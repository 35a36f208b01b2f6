"""Where credentials, region and endpoint come from; proven by requests to a real server."""

import sys
import threading
from pathlib import Path

import pytest

from dataset_packaging.config import S3Config, S3Identity
from dataset_packaging.errors import AccessDenied
from dataset_packaging.io.s3_session import S3Server, client_config, is_aws, session_from
from dataset_packaging.io.store import Stores
from dataset_packaging_tests.contracts.s3_config import s3_config, storage
from dataset_packaging_tests.servers.s3_server import S3Endpoint


@pytest.fixture
def bare_environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment that names no credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return monkeypatch


def write_profiles(folder: Path, server: S3Endpoint) -> None:
    (folder / "credentials").write_text(
        "".join(
            f"[{name}]\naws_access_key_id = {who.access_key}\naws_secret_access_key = {who.secret_key}\n"
            for name, who in (("team", server.admin), ("outsider", server.nobody))
        )
    )
    (folder / "config").write_text(f"[profile team]\nregion = eu-west-3\nendpoint_url = {server.endpoint}\n")


def test_a_profile_gives_credentials_region_and_endpoint_to_both_clients(
    s3_server: S3Endpoint, s3_bucket: str, bare_environ: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_profiles(tmp_path, s3_server)
    stores = Stores(storage(S3Config(profile="team"), f"s3://{s3_bucket}"))
    stores.put(f"s3://{s3_bucket}/x", b"1")  # boto3
    assert bytes(Stores(storage(S3Config(profile="team"))).get(f"s3://{s3_bucket}/x")) == b"1"  # obstore
    session = session_from(S3Config(profile="team"))
    assert session.region_name == "eu-west-3"
    assert session_from(S3Config(profile="team", region="us-east-1")).region_name == "us-east-1"


def test_reading_and_writing_take_their_own_identities(
    s3_server: S3Endpoint, s3_bucket: str, bare_environ: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_profiles(tmp_path, s3_server)
    s3 = s3_config(s3_server, read=S3Identity(profile="outsider"), write=S3Identity(profile="team"))
    stores = Stores(storage(s3, f"s3://{s3_bucket}/out"))
    stores.put(f"s3://{s3_bucket}/out/x", b"1")
    assert bytes(stores.get(f"s3://{s3_bucket}/out/x")) == b"1"
    with pytest.raises(AccessDenied, match="profile outsider, access key test-nobody"):
        stores.get(f"s3://{s3_bucket}/out-of-it/x")


def test_a_role_is_assumed_at_the_store_s_own_sts(
    s3_server: S3Endpoint, s3_bucket: str, s3_environ: dict[str, str]
) -> None:
    s3 = s3_config(s3_server, role_arn=s3_server.role_arn)
    frozen = session_from(s3).get_credentials().get_frozen_credentials()
    assert frozen.token
    assert frozen.access_key != s3_server.admin.access_key
    stores = Stores(storage(s3, f"s3://{s3_bucket}/out"))
    stores.put(f"s3://{s3_bucket}/out/x", b"1")
    assert bytes(stores.get(f"s3://{s3_bucket}/out/x")) == b"1"


def test_a_role_that_may_not_be_assumed_is_named(
    s3_server: S3Endpoint, s3_bucket: str, s3_environ: dict[str, str]
) -> None:
    role_arn = s3_server.role_arn + "-of-others"
    with pytest.raises(AccessDenied, match=role_arn):
        Stores(storage(s3_config(s3_server, role_arn=role_arn))).get(f"s3://{s3_bucket}/x")


def test_anonymous_requests_are_not_signed(s3_server: S3Endpoint, bare_environ: pytest.MonkeyPatch) -> None:
    client = s3_server.client()
    client.create_bucket(Bucket="public")  # open to all in the server's configuration
    client.put_object(Bucket="public", Key="a", Body=b"1")
    client.put_object(Bucket="public", Key="tab\there", Body=b"2")
    stores = Stores(storage(s3_config(s3_server, anonymous=True)))
    assert bytes(stores.get("s3://public/a")) == b"1"
    assert bytes(stores.get("s3://public/tab\there")) == b"2"
    assert len(list(stores.list("s3://public/"))) == 2
    with pytest.raises(AccessDenied, match="anonymous"):
        stores.put("s3://public/b", b"")


def test_credentials_of_a_process_are_renewed_before_they_end(
    s3_server: S3Endpoint, s3_bucket: str, bare_environ: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """S3-04: what boto3 resolves (here a credential process) has an end, and both clients know it."""
    s3_server.client().put_object(Bucket=s3_bucket, Key="x", Body=b"1")
    script = tmp_path / "issue.py"
    script.write_text(
        "import json, datetime\n"
        f"open({str(tmp_path / 'calls')!r}, 'a').write('x')\n"
        "end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=2)\n"
        f"print(json.dumps(dict(Version=1, AccessKeyId={s3_server.admin.access_key!r}, "
        f"SecretAccessKey={s3_server.admin.secret_key!r}, Expiration=end.isoformat())))\n"
    )
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {sys.executable} {script}\n")
    stores = Stores(storage(s3_config(s3_server)))
    for _ in range(30):
        assert bytes(stores.get(f"s3://{s3_bucket}/x")) == b"1"
        threading.Event().wait(0.1)  # three seconds of work
    assert 2 <= len((tmp_path / "calls").read_text()) <= 8  # not 30; boto3 runs the process twice for each session


@pytest.mark.parametrize(
    ("endpoint", "aws"),
    [
        ("https://s3.eu-west-1.amazonaws.com", True),
        ("https://s3.cn-north-1.amazonaws.com.cn", True),
        ("https://bucket.vpce-1a2b-3c4d.s3.us-east-1.vpce.amazonaws.com", True),
        ("https://s3.amazonaws.com.example.org", False),
        ("https://minio.example.org/s3.amazonaws.com", False),
        ("http://127.0.0.1:9000", False),
    ],
)
def test_amazon_s_own_addresses_are_told_from_others(endpoint: str, aws: bool) -> None:
    assert is_aws(endpoint) == aws


def test_a_client_has_explicit_times_and_no_retries_of_its_own() -> None:
    s3 = S3Config(connect_timeout_s=3.0, read_timeout_s=4.0, max_connections=7)
    config = client_config(s3, anonymous=False)
    assert (config.connect_timeout, config.read_timeout, config.max_pool_connections) == (3.0, 4.0, 7)
    assert config.retries == {"mode": "standard", "total_max_attempts": 1}


@pytest.mark.parametrize(
    ("settings", "bucket", "expected"),
    [
        ({"region": "eu-west-1"}, "photos", ("https://photos.s3.eu-west-1.amazonaws.com", "true")),
        ({"region": "eu-west-1"}, "dotted.photos", ("https://s3.eu-west-1.amazonaws.com", "false")),
        ({"region": "eu-west-1", "path_style": True}, "photos", ("https://s3.eu-west-1.amazonaws.com", "false")),
        ({"endpoint": "https://store.example.org"}, "photos", ("https://store.example.org", "false")),
        (
            {"endpoint": "https://store.example.org", "path_style": False},
            "photos",
            ("https://photos.store.example.org", "true"),
        ),
    ],
)
def test_the_bucket_stands_where_the_server_expects_it(
    settings: dict[str, object], bucket: str, expected: tuple[str, str], bare_environ: pytest.MonkeyPatch
) -> None:
    client = S3Server(S3Config.model_validate(settings)).open_object_client(None, bucket)
    assert (client.config["endpoint"], client.config["virtual_hosted_style_request"]) == expected
