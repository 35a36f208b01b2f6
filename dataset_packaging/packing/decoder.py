"""The one thread of a worker that judges images. Runs in a worker.

A worker is one CPU of the cluster: one decode at a time keeps it busy, and never more than one raster stands in its
memory, however large the images that follow each other. Hashing and decoding release the GIL, so that objects are
fetched and shards written beside.
"""

import hashlib
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

from dataset_packaging.errors import AccessDenied, DecoderStuck, TransientStoreError
from dataset_packaging.imaging.verify import ImagePolicy, Verdict, verify_image

DECODER_REASONS = frozenset({"decoder_crashed", "decoder_timeout"})
"""Verdicts that only a process of their own may reach: in a worker, neighbours might have caused them."""


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


class Decoder:
    """Judges images in the order in which they come."""

    def __init__(self, policy: ImagePolicy) -> None:
        self._policy = policy
        self._waiting: queue.SimpleQueue[tuple[Future[CheckedImage], memoryview, WantedImage]] = queue.SimpleQueue()
        self._at_work: tuple[str, float] | None = None
        # A daemon: a decode that never ends must not keep its process from ending.
        threading.Thread(target=self._work, name="decode", daemon=True).start()

    def judge(self, data: memoryview, wanted: WantedImage) -> "Future[CheckedImage]":
        """Queues an image; see `judge_image` for what the future brings."""
        future: Future[CheckedImage] = Future()
        self._waiting.put((future, data, wanted))
        return future

    def require_progress(self, timeout_s: float) -> None:
        """Raises DecoderStuck where the decode at hand takes longer than the timeout."""
        at_work = self._at_work
        if at_work is not None and time.monotonic() - at_work[1] > timeout_s:
            raise DecoderStuck(f"{at_work[0]} has been decoding for more than {timeout_s:g} s")

    def _work(self) -> None:
        while True:
            self._judge_next(*self._waiting.get())

    def _judge_next(self, future: "Future[CheckedImage]", data: memoryview, wanted: WantedImage) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._at_work = (wanted.uri, time.monotonic())
        try:
            future.set_result(judge_image(data, wanted, self._policy))
        except BaseException as error:  # handed on to whoever waits, not judged here
            future.set_exception(error)
        self._at_work = None


def judge_image(data: memoryview, wanted: WantedImage, policy: ImagePolicy) -> CheckedImage:
    """Returns the fate of an object's bytes: compared with what the manifest says of them, then verified. Pure.

    Raises MemoryError where a decoder finds none: whose fault that is must be found out in a process of its own.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    mismatch = checksum_mismatch(data, sha256, wanted)
    verdict = Verdict("checksum_mismatch", mismatch) if mismatch else verify_image(data, policy)
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
