"""Bytes and verdict of each row, in plan order, with bounded look-ahead. Runs in a worker.

One thread per request in flight fetches an object and then waits for the decode slot: hashing and decoding release the
GIL, so that the caller can write the shard meanwhile. What is fetched and not yet consumed is bounded in bytes, what is
being decoded in pixels.
"""

import hashlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from dataset_packaging.config import DatasetConfig
from dataset_packaging.errors import (
    AccessDenied,
    Archived,
    DecoderStuck,
    NotFound,
    StoreError,
    TransientStoreError,
    UnsupportedKey,
)
from dataset_packaging.imaging.verify import ImagePolicy, Verdict, estimate_decoded_bytes, verify_image
from dataset_packaging.io.store import Stores

FETCH_THREADS = 24
"""Requests in flight per worker: with 80 ms of latency, 4, 8, 16, 32 took 19.6, 14.0, 12.6, 11.7 s for one corpus."""

LOOK_AHEAD_BYTES = 96 << 20
"""Fetched and not yet written; the objects in flight are counted with their estimated length."""

DECODE_BYTES = 1 << 30
"""Decoded pixels that may stand in memory at once, at 4 bytes each; one image above it is decoded alone."""

DECODE_SLOTS = 1
"""Images decoded at once per worker: a worker is one CPU of the cluster, and the shard is written beside."""

_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class WantedImage:
    """A row whose object is to be fetched and verified.

    Attributes:
        uri: of the object.
        estimated_bytes: of the object.
        expected_bytes: what the manifest says, or None.
        expected_sha256: hex, or None.
        expected_md5: hex, or None.
    """

    uri: str
    estimated_bytes: int
    expected_bytes: int | None = None
    expected_sha256: str | None = None
    expected_md5: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedImage:
    """What became of one row.

    Attributes:
        data: the object's bytes; None where they were not had or the row is rejected.
        sha256: hex; empty where there are no bytes.
        verdict: accepted, or with the reason.
        outage: the transient error that used up its retries, else None; then the verdict says `fetch_failed`.
        denied: whether an identity that does open other locations may not read the object (a location without an
            access grant is not counted).
    """

    data: memoryview | None
    sha256: str
    verdict: Verdict
    outage: TransientStoreError | None = None
    denied: AccessDenied | None = None


def image_policy(dataset: DatasetConfig) -> ImagePolicy:
    """Returns what the dataset asks of its images."""
    images = dataset.images
    return ImagePolicy(images.integrity, images.orientation, images.formats, images.max_pixels, images.max_bytes)


def reject_reason(error: StoreError) -> tuple[str, str]:
    """Returns the stable reason and the detail of an object that could not be had. Looks at types only."""
    if isinstance(error, NotFound):
        reason = "not_found"
    elif isinstance(error, AccessDenied):
        reason = "access_denied"
    elif isinstance(error, Archived):
        reason = "archived"
    elif isinstance(error, UnsupportedKey):
        reason = "bad_path"
    else:
        reason = "fetch_failed"
    return reason, error.detail


@dataclass(slots=True)
class DecodeGate:
    """Admits decodes: at most `slots` at once, and at most `budget_bytes` of decoded pixels unless one is alone."""

    slots: int = DECODE_SLOTS
    budget_bytes: int = DECODE_BYTES
    _running: int = 0
    _bytes: int = 0
    _condition: threading.Condition = field(default_factory=threading.Condition)

    def enter(self, decoded_bytes: int) -> None:
        """Waits for a slot and for room."""
        with self._condition:
            self._condition.wait_for(
                lambda: (
                    self._running == 0
                    or (self._running < self.slots and self._bytes + decoded_bytes <= self.budget_bytes)
                )
            )
            self._running += 1
            self._bytes += decoded_bytes

    def leave(self, decoded_bytes: int) -> None:
        """Gives slot and room back."""
        with self._condition:
            self._running -= 1
            self._bytes -= decoded_bytes
            self._condition.notify_all()


class ImageChecker:
    """Fetches and verifies images of one dataset, with threads and connections that stay open between shards.

    Use as a context manager; leaving it waits for what is in flight.
    """

    def __init__(self, stores: Stores, policy: ImagePolicy, decode_timeout_s: float) -> None:
        self._stores = stores
        self._policy = policy
        self._decode_timeout_s = decode_timeout_s
        self._gate = DecodeGate()
        self._decoding: dict[int, float] = {}

    def check(self, wanted: Sequence[WantedImage]) -> Iterator[CheckedImage]:
        """Yields the fate of each image, in order.

        Raises DecoderStuck where a decode takes longer than the timeout: the process must then be given up, since the
        thread cannot be stopped.
        """
        pool = ThreadPoolExecutor(FETCH_THREADS, "fetch")
        waiting: deque[tuple[int, Future[CheckedImage]]] = deque()
        ahead = following = 0
        try:
            while following < len(wanted) or waiting:
                while following < len(wanted) and self._may_start(len(waiting), ahead, wanted[following]):
                    size = wanted[following].estimated_bytes
                    waiting.append((size, pool.submit(self._check_one, following, wanted[following])))
                    ahead += size
                    following += 1
                size, future = waiting.popleft()
                self._wait(future)
                checked = future.result()
                ahead -= size
                yield checked
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def verify_only(self, data: memoryview, wanted: WantedImage) -> CheckedImage:
        """Verifies bytes that are at hand already."""
        return self._judge(0, data, wanted)

    def _may_start(self, waiting: int, ahead: int, image: WantedImage) -> bool:
        if waiting == 0:
            return True
        return waiting < 2 * FETCH_THREADS and ahead + image.estimated_bytes <= LOOK_AHEAD_BYTES

    def _wait(self, future: "Future[CheckedImage]") -> None:
        while not wait([future], timeout=_POLL_S).done:
            now = time.monotonic()
            for number, since in list(self._decoding.items()):
                if now - since > self._decode_timeout_s:
                    raise DecoderStuck(f"image {number} of the shard has been decoding for {now - since:.0f} s")

    def _check_one(self, number: int, wanted: WantedImage) -> CheckedImage:
        max_bytes = self._policy.max_bytes
        if wanted.expected_bytes is not None and wanted.expected_bytes > max_bytes:
            detail = f"the manifest says {wanted.expected_bytes} bytes; images.max_bytes is {max_bytes}"
            return CheckedImage(None, "", Verdict("too_large", detail))
        try:
            data = self._stores.get(wanted.uri)
        except StoreError as error:
            reason, detail = reject_reason(error)
            outage = error if isinstance(error, TransientStoreError) else None
            denied = error if isinstance(error, AccessDenied) else None
            return CheckedImage(None, "", Verdict(reason, detail), outage, denied)
        return self._judge(number, data, wanted)

    def _judge(self, number: int, data: memoryview, wanted: WantedImage) -> CheckedImage:
        decoded_bytes = estimate_decoded_bytes(data)
        self._gate.enter(decoded_bytes)
        self._decoding[number] = time.monotonic()
        try:
            sha256 = hashlib.sha256(data).hexdigest()
            mismatch = checksum_mismatch(data, sha256, wanted)
            verdict = Verdict("checksum_mismatch", mismatch) if mismatch else verify_image(data, self._policy)
        finally:
            del self._decoding[number]
            self._gate.leave(decoded_bytes)
        return CheckedImage(data if verdict.reason is None else None, sha256, verdict)


def checksum_mismatch(data: memoryview, sha256: str, wanted: WantedImage) -> str | None:
    """Returns how the bytes differ from what the manifest says of them, or None where they do not. Pure."""
    if wanted.expected_bytes is not None and len(data) != wanted.expected_bytes:
        return f"{len(data)} bytes; the manifest says {wanted.expected_bytes}"
    if wanted.expected_sha256 is not None and sha256 != wanted.expected_sha256.lower():
        return f"sha256 {sha256}; the manifest says {wanted.expected_sha256}"
    if wanted.expected_md5 is not None:
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if md5 != wanted.expected_md5.lower():
            return f"md5 {md5}; the manifest says {wanted.expected_md5}"
    return None
