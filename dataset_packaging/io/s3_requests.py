"""One loop around every S3 request: admission, judgement, waits, and what the user is told in the end."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dataset_packaging.config import S3Config
from dataset_packaging.errors import (
    AccessDenied,
    Archived,
    NotFound,
    ObjectTooLarge,
    PermanentStoreError,
    PreconditionFailed,
    StoreError,
    TransientStoreError,
    UnsupportedKey,
)
from dataset_packaging.io.concurrency import ConcurrencyLimiter
from dataset_packaging.io.credentials import S3Credentials
from dataset_packaging.io.retry_policy import RetryPolicy
from dataset_packaging.io.s3_errors import BOTO_FAILURES, Failure, Fate, RequestFailed, failure_of_boto
from dataset_packaging.io.s3_keys import SCHEME, is_plain
from dataset_packaging.io.s3_session import S3Access
from dataset_packaging.io.store import StoreCounts

_log = logging.getLogger(__name__)

T = TypeVar("T")

LONGEST_TEXT = 500  # characters of a server's answer in a message

_WORTH_RETRYING = (Fate.THROTTLED, Fate.TRANSIENT, Fate.EXPIRED)
_ERROR_OF_FATE: dict[Fate, type[StoreError]] = {
    Fate.NOT_FOUND: NotFound,
    Fate.DENIED: AccessDenied,
    Fate.ARCHIVED: Archived,
    Fate.PRECONDITION: PreconditionFailed,
    Fate.TOO_LARGE: ObjectTooLarge,
    Fate.THROTTLED: TransientStoreError,
    Fate.TRANSIENT: TransientStoreError,
    Fate.EXPIRED: TransientStoreError,
}


@dataclass(slots=True)
class _Tries:
    """How one request has fared so far."""

    uri: str
    action: str
    retries: int = 0
    renewed: bool = False
    first_failure_at: float | None = None
    access: S3Access | None = None
    used: S3Credentials | None = None

    def failing_for_s(self) -> float:
        """Time since the first failure; starts to run with the first call."""
        now = time.monotonic()
        if self.first_failure_at is None:
            self.first_failure_at = now
        return now - self.first_failure_at

    def leave_out(self, seconds: float) -> None:
        """Do not count time that the request spent in the queue: it was not failing then."""
        if self.first_failure_at is not None:
            self.first_failure_at += seconds


class S3Requests:
    """Sends requests until they succeed or their fate is known. Thread-safe."""

    def __init__(self, s3: S3Config, counts: StoreCounts, name: str) -> None:
        self.limiter = ConcurrencyLimiter(s3.max_connections, name=name)
        self.counts = counts
        self._policy = RetryPolicy(max_retries=s3.max_retries, total_s=s3.retry_time_s)

    def send(self, uri: str, action: str, access_of: Callable[[], S3Access], attempt: Callable[[S3Access], T]) -> T:
        """Try until it works.

        Args:
            uri: Of the object or prefix, for messages.
            action: The IAM action that the identity needs, for messages.
            access_of: Finds the access; may itself ask S3 Control.
            attempt: One try; raises `RequestFailed`, or whatever boto3 raises.

        Raises:
            StoreError: of the class that the last failure calls for.
        """
        tries = _Tries(uri, action)
        while True:
            try:
                tries.access = access_of()
                tries.used = tries.access.credentials()
                return self._admit(tries, tries.access, attempt)
            except RequestFailed as error:
                failure, cause = error.failure, error.__cause__
            except TransientStoreError as error:
                failure, cause = Failure(Fate.TRANSIENT, str(error)), error
            except StoreError as error:
                raise type(error)(uri, error.detail if error.uri == uri else str(error)) from error
            if self._renew(tries, failure):
                continue
            wait_s = self._wait_s(tries, failure)
            if wait_s is None:
                raise _error_of(tries, failure) from cause
            _log.debug("%s of %s is tried again in %.2f s: %s", action, uri, wait_s, failure.text)
            tries.retries += 1
            self.counts.add("retries")
            time.sleep(wait_s)

    def _admit(self, tries: _Tries, access: S3Access, attempt: Callable[[S3Access], T]) -> T:
        queued_at = time.monotonic()
        self.limiter.acquire()
        tries.leave_out(time.monotonic() - queued_at)
        throttled = False
        try:
            return attempt(access)
        except RequestFailed as error:
            throttled = error.failure.fate is Fate.THROTTLED
            raise
        except BOTO_FAILURES as error:
            failure = failure_of_boto(error)
            throttled = failure.fate is Fate.THROTTLED
            raise RequestFailed(failure) from error
        finally:
            self.limiter.release(throttled)
            if throttled:
                self.counts.add("throttled")

    def _renew(self, tries: _Tries, failure: Failure) -> bool:
        """Once for each request, get other credentials after a refusal."""
        if failure.fate not in (Fate.DENIED, Fate.EXPIRED) or tries.renewed or tries.access is None:
            return False
        tries.renewed = True
        try:
            return tries.access.renew(tries.used)
        except StoreError as error:
            _log.debug("no other credentials after a refusal: %s", error)
            return False

    def _wait_s(self, tries: _Tries, failure: Failure) -> float | None:
        if failure.fate not in _WORTH_RETRYING:
            return None
        return self._policy.wait_s(tries.retries, tries.failing_for_s())


def _resource_of(tries: _Tries) -> str:
    """Name the resource that a policy has to allow the action on. Pure."""
    path = tries.uri.removeprefix(SCHEME)
    if not tries.action.startswith("s3:ListBucket"):
        return f"arn:aws:s3:::{path}"
    bucket, _, prefix = path.partition("/")
    below = f" for prefix {prefix}" if prefix and tries.action == "s3:ListBucket" else ""
    return f"arn:aws:s3:::{bucket}{below}"


def _error_of(tries: _Tries, failure: Failure) -> StoreError:
    """Say in one line what failed, as whom, and what to check. Pure but for the clock."""
    kind = _ERROR_OF_FATE.get(failure.fate, PermanentStoreError)
    if kind is PermanentStoreError and not is_plain(tries.uri.removeprefix(SCHEME).partition("/")[2]):
        kind = UnsupportedKey  # compatible stores refuse `.`, `//` and the like each in their own words
    who = "nobody" if tries.access is None else tries.access.who
    if tries.used is not None:
        who = f"{who}, access key {tries.used.access_key}"
    text = " ".join(failure.text.split())[:LONGEST_TEXT]
    if kind is TransientStoreError:
        text = f"{text}; given up after {tries.retries} retries in {tries.failing_for_s():.0f} s"
    elif kind is AccessDenied:
        text = f"{text}; check that this identity may {tries.action} on {_resource_of(tries)}"
        if tries.action == "s3:GetObject":
            text += " (without s3:ListBucket a missing object is refused as well)"
    return kind(tries.uri, f"{tries.action} as {who}: {text}")
