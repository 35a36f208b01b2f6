"""Bytes and verdict of each row, in plan order, with bounded look-ahead. Runs in a worker.

Many threads fetch and one decodes; what is fetched and not yet consumed is bounded in bytes, over all shards that the
worker has open.
"""

import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

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
from dataset_packaging.imaging.verify import ImagePolicy, Verdict
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.decoder import CheckedImage, Decoder, WantedImage

FETCH_THREADS = 24
"""Requests in flight per worker: with 80 ms of latency, 4, 8, 16, 32 took 19.6, 14.0, 12.6, 11.7 s for one corpus."""

LOOK_AHEAD_BYTES = 96 << 20
"""Fetched and not yet written, of a worker; objects in flight are counted with their likely length."""

_POLL_S = 1.0

Result = TypeVar("Result")


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
class _Ahead:
    """One object that is asked for and not yet handed on.

    Attributes:
        wanted: the object.
        size_bytes: its likely length, then the real one; 0 once nobody waits for it any more.
        abandoned: whether nobody does.
    """

    wanted: WantedImage
    size_bytes: int
    abandoned: bool = False


class ImageChecker:
    """Fetches and verifies images of one dataset, with threads and connections that stay open between shards.

    Thread-safe: shards that are packed side by side share its threads, its decoder and its look-ahead.
    """

    def __init__(self, stores: Stores, policy: ImagePolicy, decode_timeout_s: float) -> None:
        self._stores = stores
        self._policy = policy
        self._decode_timeout_s = decode_timeout_s
        self._lock = threading.Lock()
        self._ahead_bytes = self._estimated_bytes = self._fetched_bytes = 0
        self._fetchers = ThreadPoolExecutor(FETCH_THREADS, "fetch")
        self._decoder = Decoder(policy)

    def check(self, wanted: Sequence[WantedImage]) -> Generator[CheckedImage, None, None]:
        """Yields the fate of each image, in order; closing the iterator gives up what is in flight.

        Raises DecoderStuck where a decode takes longer than the timeout: the process should then be given up, since
        the thread cannot be stopped; meanwhile another one decodes. Raises MemoryError where a decoder finds none.
        """
        decoder = self._decoder
        waiting: deque[tuple[_Ahead, Future[CheckedImage | Future[CheckedImage]]]] = deque()
        following = 0
        try:
            while following < len(wanted) or waiting:
                while following < len(wanted) and (ahead := self._admit(wanted[following], must=not waiting)):
                    waiting.append((ahead, self._fetchers.submit(self._fetch, ahead, decoder)))
                    following += 1
                    if len(waiting) == 2 * FETCH_THREADS:
                        break
                checked = self._result(waiting[0][1], decoder)
                if isinstance(checked, Future):
                    checked = self._result(checked, decoder)
                self._give_back(waiting.popleft()[0])
                yield checked
        finally:
            for ahead, future in waiting:
                future.cancel()
                self._give_back(ahead)

    def verify_only(self, data: memoryview, wanted: WantedImage) -> CheckedImage:
        """Verifies bytes that are at hand already; raises as `check` does."""
        decoder = self._decoder
        return self._result(decoder.judge(data, wanted), decoder)

    def _admit(self, image: WantedImage, *, must: bool) -> _Ahead | None:
        """Takes room for an object by its likely length: the estimate, corrected by how wrong estimates were so far."""
        with self._lock:
            likely_bytes = image.estimated_bytes
            if self._fetched_bytes > self._estimated_bytes:
                likely_bytes = likely_bytes * self._fetched_bytes // max(1, self._estimated_bytes)
            if not must and self._ahead_bytes + likely_bytes > LOOK_AHEAD_BYTES:
                return None
            self._ahead_bytes += likely_bytes
            return _Ahead(image, likely_bytes)

    def _learn(self, ahead: _Ahead, size_bytes: int) -> None:
        with self._lock:
            self._estimated_bytes += ahead.wanted.estimated_bytes
            self._fetched_bytes += size_bytes
            if not ahead.abandoned:
                self._ahead_bytes += size_bytes - ahead.size_bytes
                ahead.size_bytes = size_bytes

    def _give_back(self, ahead: _Ahead) -> None:
        with self._lock:
            self._ahead_bytes -= ahead.size_bytes
            ahead.size_bytes, ahead.abandoned = 0, True

    def _result(self, future: "Future[Result]", decoder: Decoder) -> "Result":
        while not future.done() and not wait([future], timeout=_POLL_S).done:
            try:
                decoder.require_progress(self._decode_timeout_s)
            except DecoderStuck:
                if self._decoder is decoder:
                    self._decoder = Decoder(self._policy)
                raise
        return future.result()

    def _fetch(self, ahead: _Ahead, decoder: Decoder) -> "CheckedImage | Future[CheckedImage]":
        wanted, max_bytes = ahead.wanted, self._policy.max_bytes
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
        self._learn(ahead, len(data))
        verdict = decoder.judge(data, wanted)
        if ahead.abandoned:
            verdict.cancel()
        return verdict


@cache
def _shared_checker(storage: StorageConfig, policy: ImagePolicy, decode_timeout_s: float) -> ImageChecker:
    return ImageChecker(shared_stores(storage), policy, decode_timeout_s)


def checker_of(dataset: DatasetConfig) -> ImageChecker:
    """Gives every shard of one process and one dataset the same checker, so that threads outlive a shard."""
    return _shared_checker(StorageConfig.of(dataset), image_policy(dataset), dataset.images.decode_timeout_s)
