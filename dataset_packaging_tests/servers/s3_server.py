"""What tests know of a real S3 server, whichever it is."""

import functools
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import boto3
import botocore.config


@dataclass(frozen=True, slots=True)
class Credentials:
    """One key pair, with a session token where an STS made it."""

    access_key: str
    secret_key: str
    token: str | None = None

    def environ(self) -> dict[str, str]:
        """Say it in the variables that AWS clients read."""
        named = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return named | ({"AWS_SESSION_TOKEN": self.token} if self.token else {})


@dataclass(frozen=True, slots=True)
class S3Endpoint:
    """A running S3 server.

    Attributes:
        endpoint: `http://127.0.0.1:port`; path style.
        admin: May do everything.
        nobody: Known to the server, allowed nothing.
        role_arn: A role that `admin` can assume with an inline policy.
    """

    name: str
    endpoint: str
    admin: Credentials
    nobody: Credentials
    role_arn: str
    region: str = "us-east-1"

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    def client(self, service: str = "s3", credentials: Credentials | None = None, endpoint: str | None = None) -> Any:
        """Open a plain boto3 client, as `admin` unless told: how tests look at the server, past the code under test."""
        return _client(self, service, credentials or self.admin, endpoint or self.endpoint)

    def assume_role(self, policy: str, duration_s: int = 900) -> tuple[Credentials, datetime]:
        """Let the server's own STS make credentials that an inline policy narrows; with them, when they end."""
        answer = self.client("sts").assume_role(
            RoleArn=self.role_arn, RoleSessionName="test", DurationSeconds=duration_s, Policy=policy
        )["Credentials"]
        made = Credentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])
        return made, answer["Expiration"]


@functools.cache
def _client(server: S3Endpoint, service: str, who: Credentials, endpoint: str) -> Any:
    """Open a client once for all tests: making one costs more than a hundred requests."""
    return boto3.session.Session().client(
        service,
        endpoint_url=endpoint,
        region_name=server.region,
        aws_access_key_id=who.access_key,
        aws_secret_access_key=who.secret_key,
        aws_session_token=who.token,
        config=botocore.config.Config(
            s3={"addressing_style": "path"},
            parameter_validation=False,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            retries={"mode": "standard", "total_max_attempts": 4},
        ),
    )
