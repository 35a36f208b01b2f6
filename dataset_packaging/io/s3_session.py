"""How S3 is reached: one boto3 session resolves the credentials, and both clients, boto3 and obstore, are fed by it."""

import functools
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import boto3
import botocore
import botocore.config
import botocore.session
from botocore.exceptions import ProfileNotFound
from obstore.store import S3Store as ObjectClient

from dataset_packaging.config import S3Config, S3Identity
from dataset_packaging.errors import AccessDenied, ConfigError, TransientStoreError
from dataset_packaging.io.credentials import BotoProvider, ExpiringCredentials, S3Credentials, for_obstore
from dataset_packaging.io.s3_errors import Fate, failure_of_boto

if TYPE_CHECKING:
    from obstore.store import ClientConfig

BotoClient = Any  # boto3 makes its clients' methods at run time
LONGEST_REQUEST = timedelta(minutes=15)  # of obstore, body included; a request that stalls ends by the read timeout
DEFAULT_REGION = "us-east-1"
USER_AGENT = "dataset-packaging"
ROLE_SESSION_S = 3600

_HOST_SAFE_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_AWS_HOST = re.compile(r"https?://[^/]*\.amazonaws\.com(\.cn)?(:\d+)?/?")


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The credentials that an identity asks for; what it leaves out comes from the s3 block."""

    profile: str | None
    role_arn: str | None
    anonymous: bool

    @classmethod
    def of(cls, s3: S3Config, identity: S3Identity | None) -> "_Chosen":
        if identity is None:
            return cls(s3.profile, s3.role_arn, s3.anonymous)
        return cls(identity.profile or s3.profile, identity.role_arn, identity.anonymous)

    def describe(self) -> str:
        if self.anonymous:
            return "anonymous"
        named = [f"role {self.role_arn}"] if self.role_arn else []
        named += [f"profile {self.profile}"] if self.profile else []
        return ", ".join(named) or "boto3's default credentials"


def is_aws(endpoint: str) -> bool:
    """Tell whether a URL is one of Amazon's own. Pure."""
    return _AWS_HOST.fullmatch(endpoint) is not None


def client_config(s3: S3Config, anonymous: bool) -> botocore.config.Config:
    """Make the settings of a boto3 client: explicit timeouts, no retries of its own (`RetryPolicy` decides). Pure."""
    addressing: Literal["path", "virtual", "auto"]
    if s3.path_style is None:
        addressing = "path" if s3.endpoint is not None and not is_aws(s3.endpoint) else "auto"
    else:
        addressing = "path" if s3.path_style else "virtual"
    return botocore.config.Config(
        connect_timeout=s3.connect_timeout_s,
        read_timeout=s3.read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=s3.max_connections,
        tcp_keepalive=True,
        s3={"addressing_style": addressing},
        request_checksum_calculation=s3.checksum,
        response_checksum_validation=s3.checksum,
        signature_version=botocore.UNSIGNED if anonymous else None,
        user_agent_extra=USER_AGENT,
    )


def _open_profile(profile: str | None) -> botocore.session.Session:
    try:
        session = botocore.session.Session(profile=profile)
        session.get_scoped_config()
    except ProfileNotFound as error:
        raise ConfigError(f"s3: {error}: expected a profile of the AWS configuration files") from error
    return session


def _fetch_from_chain(profile: str | None) -> S3Credentials:
    """Walk boto3's own chain: profiles, environment, web identity, SSO, containers, instances.

    A new session each time: what was rotated meanwhile is found, and no session is shared between threads.
    """
    try:
        credentials = _open_profile(profile).get_credentials()
        frozen = credentials.get_frozen_credentials() if credentials is not None else None
    except Exception as error:
        failure = failure_of_boto(error)
        kind = TransientStoreError if failure.fate in (Fate.TRANSIENT, Fate.THROTTLED) else AccessDenied
        raise kind("s3://", f"no credentials: {failure.text}") from error
    if frozen is None or frozen.access_key is None or frozen.secret_key is None:
        where = (
            f"in profile {profile}" if profile else "in the environment, the AWS configuration files or the instance"
        )
        raise AccessDenied("s3://", f"no credentials found {where}; set them, s3.profile, or s3.anonymous: true")
    expiry: datetime | None = getattr(credentials, "_expiry_time", None)  # botocore has no public name for it
    expires_at = None if expiry is None else expiry.astimezone(UTC)
    return S3Credentials(frozen.access_key, frozen.secret_key, frozen.token, expires_at)


def _fetch_from_role(s3: S3Config, profile: str | None, role_arn: str) -> S3Credentials:
    """Assume a role, at the STS of the store itself where the store is not Amazon's."""
    session = boto3.Session(botocore_session=_open_profile(profile), region_name=s3.region)
    client = session.client(
        "sts",
        endpoint_url=s3.endpoint if s3.endpoint is not None and not is_aws(s3.endpoint) else None,
        region_name=session.region_name or DEFAULT_REGION,
        config=botocore.config.Config(
            connect_timeout=s3.connect_timeout_s, read_timeout=s3.read_timeout_s, retries={"mode": "standard"}
        ),
    )
    try:
        answer = client.assume_role(RoleArn=role_arn, RoleSessionName=USER_AGENT, DurationSeconds=ROLE_SESSION_S)
    except Exception as error:
        failure = failure_of_boto(error)
        kind = TransientStoreError if failure.fate in (Fate.TRANSIENT, Fate.THROTTLED) else AccessDenied
        raise kind("s3://", f"role {role_arn} cannot be assumed: {failure.text}") from error
    made = answer["Credentials"]
    return S3Credentials(
        made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"], made["Expiration"].astimezone(UTC)
    )


def credentials_from(s3: S3Config, identity: S3Identity | None) -> ExpiringCredentials | None:
    """Say where an identity's credentials come from; None for an anonymous one. No I/O before the first read."""
    chosen = _Chosen.of(s3, identity)
    if chosen.anonymous:
        return None
    fetch: Callable[[], S3Credentials]
    if chosen.role_arn is None:
        fetch = functools.partial(_fetch_from_chain, chosen.profile)
    else:
        fetch = functools.partial(_fetch_from_role, s3, chosen.profile, chosen.role_arn)
    return ExpiringCredentials(fetch)


def session_with(s3: S3Config, source: ExpiringCredentials | None) -> boto3.Session:
    """Open a boto3 session that signs with `source`; None is for anonymous clients. Not to be shared by threads."""
    session = _open_profile(s3.profile)
    if source is not None:
        session.get_component("credential_provider").providers.insert(0, BotoProvider(source))
    region = s3.region or session.get_config_variable("region") or DEFAULT_REGION
    return boto3.Session(botocore_session=session, region_name=region)


def session_from(s3: S3Config, identity: S3Identity | None = None) -> boto3.Session:
    """Open the boto3 session that a dataset's s3 block (or one of its identities) describes.

    The role, if any, is assumed, and assumed again before it expires. Reads the AWS configuration files; no network
    before the first request. Clients made of it are thread-safe, the session itself is not.

    Raises:
        ConfigError: the profile does not exist.
    """
    return session_with(s3, credentials_from(s3, identity))


@functools.cache
def _home_of_obstore() -> int:
    """Remember where obstore was first used: its threads do not survive a fork, and a child that used it would hang."""
    return os.getpid()


class S3Server:
    """Where S3 is, as boto3 resolves it from settings, environment and profile. Lazy and thread-safe."""

    def __init__(self, s3: S3Config) -> None:
        self.s3 = s3
        self._lock = threading.Lock()
        self._resolved: tuple[str, str, bytes | None] | None = None

    def open_client(self, source: ExpiringCredentials | None) -> BotoClient:
        """Open a boto3 client that signs with `source`."""
        config = client_config(self.s3, anonymous=source is None)
        return session_with(self.s3, source).client("s3", endpoint_url=self.s3.endpoint, config=config)

    def open_object_client(self, source: ExpiringCredentials | None, bucket: str) -> ObjectClient:
        """Open an obstore client of the same server."""
        endpoint, region, root_certificate = self._resolve()
        path_style = self.s3.path_style if self.s3.path_style is not None else not is_aws(endpoint)
        virtual = not path_style and _HOST_SAFE_BUCKET.fullmatch(bucket) is not None
        scheme, _, host = endpoint.partition("://")
        options: ClientConfig = {
            "connect_timeout": timedelta(seconds=self.s3.connect_timeout_s),
            "read_timeout": timedelta(seconds=self.s3.read_timeout_s),
            "timeout": LONGEST_REQUEST,
            "pool_max_idle_per_host": str(self.s3.max_connections),
            "allow_http": scheme == "http",
            "user_agent": USER_AGENT,
        }
        if root_certificate is not None:
            options["root_certificate"] = root_certificate
        return ObjectClient(
            bucket,
            config={
                "endpoint": f"{scheme}://{bucket}.{host}" if virtual else endpoint,
                "region": region,
                "virtual_hosted_style_request": virtual,
                "skip_signature": source is None,
            },
            client_options=options,
            retry_config={"max_retries": 0},
            credential_provider=None if source is None else for_obstore(source),
        )

    def _resolve(self) -> tuple[str, str, bytes | None]:
        with self._lock:
            if self._resolved is None:
                client = self.open_client(None)
                ca_bundle = _open_profile(self.s3.profile).get_config_variable("ca_bundle")
                certificate = Path(ca_bundle).read_bytes() if ca_bundle else None
                self._resolved = (client.meta.endpoint_url.rstrip("/"), client.meta.region_name, certificate)
            return self._resolved


class S3Access:
    """One identity's way to S3: its credentials and the clients that sign with them. Lazy and thread-safe.

    Attributes:
        who: The identity in words, for messages.
    """

    def __init__(self, server: S3Server, source: ExpiringCredentials | None, who: str) -> None:
        self.who = who
        self._server = server
        self._source = source
        self._lock = threading.Lock()
        self._client: BotoClient | None = None
        self._object_clients: dict[str, ObjectClient] = {}

    @classmethod
    def of(cls, server: S3Server, identity: S3Identity | None) -> "S3Access":
        """Take an identity's own permissions."""
        return cls(server, credentials_from(server.s3, identity), _Chosen.of(server.s3, identity).describe())

    def credentials(self) -> S3Credentials | None:
        """Give the credentials in use, fresh; None for anonymous access."""
        return None if self._source is None else self._source.read()

    def renew(self, refused: S3Credentials | None) -> bool:
        """Get other credentials than the refused ones; False where there are none."""
        if self._source is None or refused is None or not self._source.renew(refused):
            return False
        with self._lock:
            self._object_clients.clear()  # they keep credentials until these expire
        return True

    def client(self) -> BotoClient:
        """Give the boto3 client."""
        with self._lock:
            if self._client is None:
                self._client = self._server.open_client(self._source)
            return self._client

    def object_client(self, bucket: str) -> ObjectClient | None:
        """Give the obstore client of a bucket; None in a process that was forked off after obstore's first use."""
        found = self._object_clients.get(bucket)
        if found is not None:
            return found
        if _home_of_obstore() != os.getpid():
            return None
        with self._lock:
            opened = self._server.open_object_client(self._source, bucket)
            self._object_clients[bucket] = opened
            return opened
