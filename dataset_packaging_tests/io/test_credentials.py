"""When credentials are fetched, kept and fetched again: a clock that the test sets, no waiting."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from dataset_packaging.errors import AccessDenied, NoGrant, StoreError, TransientStoreError
from dataset_packaging.io.credentials import BotoCredentials, ExpiringCredentials, S3Credentials, for_obstore


class Issuer:
    """Hands out numbered credentials that live for `life_s`."""

    def __init__(self, life_s: float | None = 1000.0) -> None:
        self.now = 1_000_000.0
        self.life_s = life_s
        self.count = 0
        self.error: StoreError | None = None
        self.gate = threading.Event()
        self.gate.set()

    def fetch(self) -> S3Credentials:
        self.count += 1
        self.gate.wait(10)
        if self.error is not None:
            raise self.error
        expires_at = None if self.life_s is None else datetime.fromtimestamp(self.now + self.life_s, UTC)
        return S3Credentials(f"key-{self.count}", "secret", "token", expires_at)

    def source(self) -> ExpiringCredentials:
        return ExpiringCredentials(self.fetch, clock=lambda: self.now)


def test_nothing_is_fetched_before_it_is_needed_and_then_once() -> None:
    issuer = Issuer()
    source = issuer.source()
    assert issuer.count == 0
    assert [source.read().access_key for _ in range(100)] == ["key-1"] * 100
    assert issuer.count == 1


def test_many_threads_cause_one_fetch() -> None:
    """S3-04."""
    issuer = Issuer()
    issuer.gate.clear()
    source = issuer.source()
    with ThreadPoolExecutor(32) as pool:
        reads = [pool.submit(source.read) for _ in range(32)]
        issuer.gate.set()
        assert {read.result().access_key for read in reads} == {"key-1"}
    assert issuer.count == 1


def test_they_are_refreshed_at_70_to_80_percent_of_their_life() -> None:
    """S3-04: with margin, never at the last moment."""
    for _ in range(50):
        issuer = Issuer()
        source = issuer.source()
        source.read()
        issuer.now += 699
        assert source.read().access_key == "key-1"
        issuer.now += 102
        assert source.read().access_key == "key-2"


def test_a_refresh_in_time_holds_nobody_up() -> None:
    issuer = Issuer()
    source = issuer.source()
    source.read()
    issuer.now += 850
    issuer.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        refreshing = pool.submit(source.read)
        while issuer.count < 2:
            threading.Event().wait(0.001)
        assert source.read().access_key == "key-1"
        issuer.gate.set()
        assert refreshing.result().access_key == "key-2"


def test_good_credentials_stay_in_use_while_the_issuer_is_throttled() -> None:
    """Kept until they end, asked for again now and then; only then is it an error."""
    issuer = Issuer()
    source = issuer.source()
    source.read()
    issuer.error = TransientStoreError("s3://b/*", "503 SlowDown")
    issuer.now += 850
    assert [source.read().access_key for _ in range(10)] == ["key-1"] * 10
    assert issuer.count == 2
    issuer.now += 149
    assert source.read().access_key == "key-1"
    issuer.now += 2
    with pytest.raises(TransientStoreError):
        source.read()
    issuer.error = None
    issuer.now += 2
    assert source.read().access_key.startswith("key-")


def test_a_failed_fetch_is_not_repeated_by_every_thread() -> None:
    issuer = Issuer()
    issuer.error = NoGrant("s3://b/*", "no grant")
    source = issuer.source()
    for _ in range(100):
        with pytest.raises(NoGrant):
            source.read()
    assert issuer.count == 1
    issuer.now += 31
    issuer.error = None
    assert source.read().access_key == "key-2"


def test_a_refusal_forces_one_fetch_and_no_more() -> None:
    issuer = Issuer(life_s=None)
    source = issuer.source()
    first = source.read()
    assert source.renew(first)
    second = source.read()
    assert second.access_key == "key-2"
    assert source.renew(first), "a thread that was refused with the old ones tries the new ones"
    assert not source.renew(second)
    assert issuer.count == 2
    issuer.now += 31
    assert source.renew(second)
    assert issuer.count == 3


def test_the_same_credentials_again_are_no_renewal() -> None:
    source = ExpiringCredentials(lambda: S3Credentials("static", "secret"))
    assert not source.renew(source.read())


def test_a_renewal_that_fails_is_told() -> None:
    issuer = Issuer()
    source = issuer.source()
    first = source.read()
    issuer.error = AccessDenied("s3://", "the role cannot be assumed")
    with pytest.raises(AccessDenied):
        source.renew(first)


def test_both_clients_get_what_is_held_with_its_true_end() -> None:
    issuer = Issuer()
    source = issuer.source()
    boto, provide = BotoCredentials(source), for_obstore(source)
    assert provide() == {
        "access_key_id": "key-1",
        "secret_access_key": "secret",
        "token": "token",
        "expires_at": datetime.fromtimestamp(issuer.now + 1000, UTC),
    }
    assert boto.get_frozen_credentials().access_key == "key-1"
    issuer.now += 900
    assert boto.get_frozen_credentials().access_key == "key-2"
    assert provide()["access_key_id"] == "key-2"


def test_secrets_do_not_show() -> None:
    assert "hush" not in repr(S3Credentials("key", "hush", "hush-too"))
