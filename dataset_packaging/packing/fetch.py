"""Bytes and verdict of each row, in plan order, with bounded look-ahead. Runs in a worker.

One thread per request in flight fetches an object and then waits for the decode slot: hashing and decoding release the
GIL, so that the caller can write the shard meanwhile. What is fetched and not yet consumed is bounded in bytes, what is
being decoded in pixels.
"""

import hashlib
import itertools
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
    ObjectTooLarge,
    StoreError,
    TransientStoreError,
    UnsupportedKey,
)
from dataset_packaging.imaging.verify import ImagePolicy, Verdict, estimate_decoded_bytes, verify_image
from dataset_packaging.io.store import Stores

FETCH_THREADS = 24
"""Requests in flight per worker: with 80 ms of latency, 4, 8, 16, 32 took 19.6, 14.0, 12.6, 11.7 s for one corpus."""

LOOK_AHEAD_BYTES = 96 << 20
"""Fetched and not yet written; objects in flight are counted with their likely length."""

DECODE_BYTES = 1 << 30
"""Decoded pixels that may stand in memory at once, at 4 bytes each; one image above it is decoded alone."""

DECODE_SLOTS = 1
"""Images decoded at once per worker: a worker is one CPU of the cluster, and the shard is written beside."""

DECODER_REASONS = frozenset({"decoder_crashed", "decoder_timeout"})
"""Verdicts that only a process of their own may reach: in a worker, neighbours might have caused them."""

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
    elif isinstance(error, ObjectTooLarge):
        reason = "too_large"
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


@dataclass(slots=True)
class _Ahead:
    """One object that is asked for and not yet handed on; `size_bytes`: its likely length, then the real one."""

    future: "Future[CheckedImage]"
    size_bytes: int


class ImageChecker:
    """Fetches and verifies images of one dataset. Use as a context manager: leaving it gives up what is in flight."""

    def __init__(self, stores: Stores, policy: ImagePolicy, decode_timeout_s: float) -> None:
        self._stores = stores
        self._policy = policy
        self._decode_timeout_s = decode_timeout_s
        self._gate = DecodeGate()
        self._decoding: dict[int, tuple[str, float]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._ahead_bytes = self._estimated_bytes = self._fetched_bytes = 0
        self._pool = ThreadPoolExecutor(FETCH_THREADS, "fetch")

    def __enter__(self) -> "ImageChecker":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def check(self, wanted: Sequence[WantedImage]) -> Iterator[CheckedImage]:
        """Yields the fate of each image, in order.

        Raises DecoderStuck where a decode takes longer than the timeout: the process must then be given up, since the
        thread cannot be stopped. Raises MemoryError where a decoder finds none: whose fault that is must be found out
        in a process of its own.
        """
        waiting: deque[_Ahead] = deque()
        following = 0
        while following < len(wanted) or waiting:
            while following < len(wanted) and self._may_start(len(waiting), wanted[following]):
                waiting.append(self._submit(wanted[following]))
                following += 1
            checked = self._wait(waiting[0].future)
            with self._lock:
                self._ahead_bytes -= waiting.popleft().size_bytes
            yield checked

    def verify_only(self, data: memoryview, wanted: WantedImage) -> CheckedImage:
        """Verifies bytes that are at hand already; raises as `check` does."""
        return self._wait(self._pool.submit(self._judge, data, wanted))

    def _likely_bytes(self, image: WantedImage) -> int:
        """Returns the estimated length of an object, corrected by how wrong the estimates were so far."""
        if self._fetched_bytes <= self._estimated_bytes:
            return image.estimated_bytes
        return image.estimated_bytes * self._fetched_bytes // max(1, self._estimated_bytes)

    def _may_start(self, waiting: int, image: WantedImage) -> bool:
        if waiting == 0:
            return True
        with self._lock:
            return waiting < 2 * FETCH_THREADS and self._ahead_bytes + self._likely_bytes(image) <= LOOK_AHEAD_BYTES

    def _submit(self, image: WantedImage) -> _Ahead:
        with self._lock:
            likely_bytes = self._likely_bytes(image)
            self._ahead_bytes += likely_bytes
        ahead = _Ahead(Future(), likely_bytes)
        ahead.future = self._pool.submit(self._check_one, image, ahead)
        return ahead

    def _wait(self, future: "Future[CheckedImage]") -> CheckedImage:
        while not wait([future], timeout=_POLL_S).done:
            now = time.monotonic()
            for uri, since in list(self._decoding.values()):
                if now - since > self._decode_timeout_s:
                    raise DecoderStuck(f"{uri} has been decoding for {now - since:.0f} s")
        return future.result()

    def _check_one(self, wanted: WantedImage, ahead: _Ahead) -> CheckedImage:
        max_bytes = self._policy.max_bytes
        if wanted.expected_bytes is not None and wanted.expected_bytes > max_bytes:
            detail = f"the manifest says {wanted.expected_bytes} bytes; images.max_bytes is {max_bytes}"
            return CheckedImage(None, "", Verdict("too_large", detail))
        try:
            data = self._stores.get(wanted.uri, max_bytes)
        except StoreError as error:
            reason, detail = reject_reason(error)
            outage = error if isinstance(error, TransientStoreError) else None
            denied = error if isinstance(error, AccessDenied) else None
            return CheckedImage(None, "", Verdict(reason, detail), outage, denied)
        with self._lock:
            self._ahead_bytes += len(data) - ahead.size_bytes
            self._estimated_bytes += wanted.estimated_bytes
            self._fetched_bytes += len(data)
            ahead.size_bytes = len(data)
        return self._judge(data, wanted)

    def _judge(self, data: memoryview, wanted: WantedImage) -> CheckedImage:
        decoded_bytes = estimate_decoded_bytes(data)
        number = next(self._numbers)
        self._gate.enter(decoded_bytes)
        self._decoding[number] = wanted.uri, time.monotonic()
        try:
            sha256 = hashlib.sha256(data).hexdigest()
            mismatch = checksum_mismatch(data, sha256, wanted)
            verdict = Verdict("checksum_mismatch", mismatch) if mismatch else verify_image(data, self._policy)
        finally:
            del self._decoding[number]
            self._gate.leave(decoded_bytes)
        if verdict.reason in DECODER_REASONS:
            raise MemoryError(f"{wanted.uri}: {verdict.detail}")
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
