"""Credentials that expire: who makes them, when they are made anew, and how the two S3 clients get them."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import botocore.credentials

from dataset_packaging.errors import StoreError, TransientStoreError

if TYPE_CHECKING:
    from obstore.store import S3Credential

_log = logging.getLogger(__name__)

EARLIEST_REFRESH, LATEST_REFRESH = 0.7, 0.8  # of the life that is left when credentials are fetched
LONGEST_TRUST_S = 3600.0  # credentials without an expiry are looked up again after this
FORCED_REFRESH_PAUSE_S = 30.0  # a refusal within this after a forced refresh is a verdict
REFUSAL_PAUSE_S = 30.0  # a refused fetch is not repeated within this
TRANSIENT_PAUSE_S = 1.0  # nor a failed one within this


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """One set of keys. `expires_at` is None where the source does not tell."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    credentials: S3Credentials
    refresh_at: float
    expires_at: float


class ExpiringCredentials:
    """Keeps credentials fresh for many threads and two clients: one fetch at a time, at 70 to 80 % of their life.

    While credentials are still good, a refresh that fails is tried again later, and the other threads do not wait for
    it. When there are none, a failed fetch is not repeated at once: the error stands for a moment.

    Args:
        fetch: Does the I/O; raises a `StoreError`.
        first: Credentials that are there already.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        fetch: Callable[[], S3Credentials],
        first: S3Credentials | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._held = None if first is None else self._hold(first)
        self._failed: tuple[float, StoreError] | None = None
        self._forced_at = float("-inf")

    def read(self) -> S3Credentials:
        """Give credentials that are good now, fetching them where needed.

        Raises:
            StoreError: there are none, and none can be had.
        """
        held, now = self._held, self._clock()
        if held is not None and now < held.refresh_at:
            return held.credentials
        still_good = held is not None and now < held.expires_at
        if not self._lock.acquire(blocking=not still_good):
            assert held is not None
            return held.credentials  # another thread is fetching
        try:
            if self._held is held:
                held = self._refresh(held if still_good else None)
            else:
                assert self._held is not None
                held = self._held
            return held.credentials
        finally:
            self._lock.release()

    def renew(self, refused: S3Credentials) -> bool:
        """Fetch again after a refusal; True when there are other credentials than the refused ones to try with.

        At most one forced fetch within `FORCED_REFRESH_PAUSE_S`: a million refused objects are not a million calls.
        """
        with self._lock:
            if self._held is not None and self._held.credentials != refused:
                return True
            now = self._clock()
            if now - self._forced_at < FORCED_REFRESH_PAUSE_S:
                return False
            self._forced_at = now
            return self._refresh(None).credentials != refused

    def _refresh(self, keep: _Held | None) -> _Held:
        now = self._clock()
        if keep is None and self._failed is not None and now < self._failed[0]:
            raise type(self._failed[1])(*self._failed[1].args)
        try:
            self._held = self._hold(self._fetch())
            self._failed = None
        except StoreError as error:
            if keep is None:
                pause_s = TRANSIENT_PAUSE_S if isinstance(error, TransientStoreError) else REFUSAL_PAUSE_S
                self._failed = (now + pause_s, error)
                raise
            _log.warning("credentials could not be refreshed and stay in use until they expire: %s", error)
            self._held = _Held(keep.credentials, now + (keep.expires_at - now) / 4, keep.expires_at)
        return self._held

    def _hold(self, fresh: S3Credentials) -> _Held:
        now = self._clock()
        if fresh.expires_at is None:
            return _Held(fresh, now + LONGEST_TRUST_S, float("inf"))
        expires_at = fresh.expires_at.timestamp()
        life_s = max(0.0, expires_at - now)
        return _Held(fresh, now + life_s * random.uniform(EARLIEST_REFRESH, LATEST_REFRESH), expires_at)


class BotoCredentials(botocore.credentials.Credentials):
    """Lets a boto3 client sign every request with what an `ExpiringCredentials` holds at that moment."""

    def __init__(self, source: ExpiringCredentials) -> None:
        self._source = source
        super().__init__("", "", None, method="dataset-packaging")

    def get_frozen_credentials(self) -> botocore.credentials.ReadOnlyCredentials:
        """See `botocore.credentials.Credentials`."""
        now = self._source.read()
        return botocore.credentials.ReadOnlyCredentials(now.access_key, now.secret_key, now.token)


class BotoProvider(botocore.credentials.CredentialProvider):
    """Puts `BotoCredentials` first in a botocore session's chain."""

    METHOD = "dataset-packaging"

    def __init__(self, source: ExpiringCredentials) -> None:
        super().__init__()
        self._source = source

    def load(self) -> botocore.credentials.Credentials:
        """See `botocore.credentials.CredentialProvider`."""
        return BotoCredentials(self._source)


def for_obstore(source: ExpiringCredentials) -> "Callable[[], S3Credential]":
    """Make obstore's credential provider, with the true expiry: obstore asks again when it comes near."""

    def provide() -> "S3Credential":
        now = source.read()
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": now.expires_at,
        }

    return provide
