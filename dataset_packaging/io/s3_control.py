"""The part of S3 Control that S3 Access Grants need.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_control_GetDataAccess.html
"""

import functools
import logging
import threading
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal
from urllib.parse import urlsplit

import botocore.config

from dataset_packaging.config import AccessGrantsConfig, S3Config, S3Identity
from dataset_packaging.errors import NoGrant, StoreError, TransientStoreError
from dataset_packaging.io.credentials import S3Credentials
from dataset_packaging.io.s3_errors import Fate, failure_of_boto
from dataset_packaging.io.s3_keys import SCHEME
from dataset_packaging.io.s3_session import BotoClient, credentials_from, session_with
from dataset_packaging.io.store import StoreCounts

_log = logging.getLogger(__name__)

CONTROL_ATTEMPTS = 6


@dataclass(frozen=True, slots=True)
class GrantTarget:
    """What is asked for: `s3://bucket/prefix*`, or one object's URI."""

    uri: str

    @property
    def is_prefix(self) -> bool:
        """Tell a prefix from a single object."""
        return self.uri.endswith("*")

    def covers(self, uri: str) -> bool:
        """Tell whether an object, or with a `*` at its end a whole prefix, lies inside. Pure."""
        return uri.startswith(self.uri[:-1]) if self.is_prefix else uri == self.uri


@dataclass(frozen=True, slots=True)
class DataAccess:
    """One answer of GetDataAccess."""

    credentials: S3Credentials
    granted: GrantTarget


class ControlClient:
    """S3 Control as one identity: finds the instance's account and asks for data access."""

    def __init__(
        self, s3: S3Config, config: AccessGrantsConfig, identity: S3Identity | None, counts: StoreCounts
    ) -> None:
        self._s3 = s3
        self._config = config
        self._source = credentials_from(s3, identity)
        self._counts = counts
        self._lock = threading.Lock()
        self._control: BotoClient | None = None
        self._account_of_bucket: dict[str, str] = {}

    def get_data_access(self, target: GrantTarget, permission: str) -> DataAccess:
        """Ask for credentials; where the configured account has no grant, in the account that the prefix belongs to.

        Raises:
            NoGrant: no grant covers the whole target with this permission.
            TransientStoreError: S3 Control is throttled or out of reach.
        """
        bucket = target.uri.removeprefix(SCHEME).partition("/")[0]
        account = self._account_of_bucket.get(bucket) or self._config.account_id
        if account is None:
            account = self._find_account(target, self._caller_account())
            self._account_of_bucket[bucket] = account
        try:
            return self._get_data_access(account, target, permission)
        except NoGrant:
            if bucket in self._account_of_bucket:
                raise
            owner = self._find_account(target, account, otherwise=account)
            self._account_of_bucket[bucket] = owner
            if owner == account:
                raise
        return self._get_data_access(owner, target, permission)

    def _get_data_access(self, account: str, target: GrantTarget, permission: str) -> DataAccess:
        asked: dict[str, Any] = {
            "AccountId": account,
            "Target": target.uri,
            "Permission": permission,
            "Privilege": self._config.privilege,
            "DurationSeconds": self._config.duration_s,
        }
        if not target.is_prefix:
            asked["TargetType"] = "Object"
        self._counts.add("grant_calls")
        answer = self._call(target, "get_data_access", asked, f"no grant gives {permission}")
        made = answer["Credentials"]
        credentials = S3Credentials(
            made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"], made["Expiration"].astimezone(UTC)
        )
        whole_grant = self._config.privilege == "Default" and answer.get("MatchedGrantTarget")
        return DataAccess(credentials, GrantTarget(answer["MatchedGrantTarget"]) if whole_grant else target)

    def list_scopes(self, bucket: str, permission: str) -> list[GrantTarget] | None:
        """Ask which grants the caller has in a bucket; None where that may not be asked."""
        account = self._account_of_bucket.get(bucket) or self._config.account_id
        asked = {"AccountId": account, "GrantScope": f"{SCHEME}{bucket}/"}
        found: list[GrantTarget] = []
        while True:
            self._counts.add("grant_list_calls")
            try:
                target = GrantTarget(f"{SCHEME}{bucket}/*")
                answer = self._call(target, "list_caller_access_grants", asked, "grants cannot be listed")
            except StoreError as error:
                _log.debug("the grants in %s are not known: %s", bucket, error)
                return None
            found += [
                GrantTarget(each["GrantScope"])
                for each in answer.get("CallerAccessGrantsList", ())
                if each["Permission"] in (permission, "READWRITE")
            ]
            if not answer.get("NextToken"):
                return found
            asked["NextToken"] = answer["NextToken"]

    def _caller_account(self) -> str:
        try:
            return str(self._open("sts").get_caller_identity()["Account"])
        except Exception as error:
            failure = failure_of_boto(error)
            raise TransientStoreError(SCHEME, f"the account of the identity is not known: {failure.text}") from error

    def _find_account(self, target: GrantTarget, mine: str, otherwise: str | None = None) -> str:
        """Find the account of the Access Grants instance of a prefix, which need not be the caller's."""
        self._counts.add("grant_instance_calls")
        asked = {"AccountId": mine, "S3Prefix": target.uri}
        try:
            answer = self._call(target, "get_access_grants_instance_for_prefix", asked, "no instance is known")
        except NoGrant:
            if otherwise is None:
                raise
            return otherwise
        return str(answer["AccessGrantsInstanceArn"].split(":")[4])

    def _call(self, target: GrantTarget, operation: str, asked: dict[str, Any], refusal: str) -> Any:
        try:
            return getattr(self._client(), operation)(**asked)
        except Exception as error:
            failure = failure_of_boto(error)
        who = "anonymous" if self._source is None else f"access key {self._source.read().access_key}"
        asker = f"asked as {who} in account {asked['AccountId']}"
        if failure.fate in (Fate.THROTTLED, Fate.TRANSIENT, Fate.EXPIRED):
            raise TransientStoreError(target.uri, f"S3 Access Grants do not answer ({asker}): {failure.text}")
        advice = "check the grants of this location and who their grantee is"
        raise NoGrant(target.uri, f"S3 Access Grants: {refusal} ({asker}): {failure.text}; {advice}")

    def _client(self) -> BotoClient:
        with self._lock:
            if self._control is None:
                self._control = self._open("s3control")
            return self._control

    def _open(self, service: Literal["sts", "s3control"]) -> BotoClient:
        session = session_with(self._s3, self._source)
        endpoint = self._config.endpoint
        client = session.client(
            service,
            region_name=self._config.region or session.region_name,
            endpoint_url=endpoint,
            config=botocore.config.Config(
                connect_timeout=self._s3.connect_timeout_s,
                read_timeout=self._s3.read_timeout_s,
                retries={"mode": "standard", "total_max_attempts": CONTROL_ATTEMPTS},
            ),
        )
        if endpoint is not None and service == "s3control":
            client.meta.events.register("before-call.s3-control", functools.partial(_keep_host, endpoint))
        return client


def _keep_host(endpoint: str, params: dict[str, Any], **_: object) -> None:
    """Undo what botocore does to an endpoint of one's own: it puts the account before the host name."""
    asked = urlsplit(params["url"])
    params["url"] = endpoint.rstrip("/") + asked.path + (f"?{asked.query}" if asked.query else "")
