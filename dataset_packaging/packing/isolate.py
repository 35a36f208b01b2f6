"""Verification in a process that can be killed: for images of which the header tells nothing, and to find out which
row of a shard kills its worker.

Images are handed to a child one at a time over a pipe, so that the one at hand when the child dies, does not answer in
time or runs out of memory is the culprit; a second child must confirm it. The task itself never decodes.
"""

import contextlib
import json
import selectors
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass

import msgspec

from dataset_packaging.config import DatasetConfig
from dataset_packaging.errors import StoreError, WorkerFailed
from dataset_packaging.imaging.verify import ImagePolicy, Verdict
from dataset_packaging.io.store import StorageConfig, shared_stores
from dataset_packaging.packing.decoder import DECODER_REASONS
from dataset_packaging.packing.fetch import image_policy
from dataset_packaging.packing.pack_shard import PackTask, read_shard_rows
from dataset_packaging.packing.verify_child import LENGTH, read_exactly

CONFIRMATIONS = 2
"""Children that an image must kill before it is rejected for it."""

CHILD_MEMORY_BYTES = 4 << 30
"""What a child may allocate: several times the largest decode (300 MP at 4 bytes)."""

_START_S = 120.0

_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from dataset_packaging.packing.verify_child import serve_policy
serve_policy(*sys.argv[2:])
"""
"""A worker may have been given its search path by its driver, not by its environment."""


@dataclass(frozen=True, slots=True)
class IsolateReport:
    """The culprits of one shard: (position, reason, detail); `verified` rows were tried."""

    poison: tuple[tuple[int, str, str], ...]
    verified: int


def isolate_rows(task: PackTask) -> IsolateReport:
    """Verifies the rows of one shard in child processes and returns those that kill or hang a decoder.

    Rows that cannot be fetched are passed over: packing judges them. Reads only.
    """
    stores = shared_stores(StorageConfig.of(task.dataset))
    rows = read_shard_rows(stores, task)
    known = {position for position, _, _ in task.poison}
    poison = list(task.poison)
    verified = 0
    with IsolatedVerifier.of(task.dataset) as verifier:
        for position, uri in zip(rows["position"].to_pylist(), rows["s3_image_path"].to_pylist(), strict=True):
            if position in known:
                continue
            try:
                data = stores.get(uri, task.dataset.images.max_bytes)
            except StoreError:
                continue
            verified += 1
            verdict = verifier.verify(data)
            if verdict.reason in DECODER_REASONS:
                poison.append((position, verdict.reason, verdict.detail))
    return IsolateReport(tuple(poison), verified)


class IsolatedVerifier:
    """A child process that verifies images, started when it is first needed and anew after each death.

    Thread-safe: one image at a time. Use as a context manager; leaving it ends the child.
    """

    def __init__(self, policy: ImagePolicy, timeout_s: float) -> None:
        self._policy = policy
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, dataset: DatasetConfig) -> "IsolatedVerifier":
        """Returns a verifier with the policy of a dataset."""
        return cls(image_policy(dataset), dataset.images.decode_timeout_s)

    def __enter__(self) -> "IsolatedVerifier":
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def verify(self, data: memoryview) -> Verdict:
        """Returns the verdict; `decoder_crashed` or `decoder_timeout` where two children in a row came to no other.

        Raises WorkerFailed where the child was killed from outside.
        """
        with self._lock:
            for _ in range(CONFIRMATIONS):
                verdict = self._attempt(data)
                if verdict.reason not in DECODER_REASONS:
                    break
            return verdict

    def _attempt(self, data: memoryview) -> Verdict:
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(LENGTH.pack(len(data)))
            child.stdin.write(data)
            child.stdin.flush()
        if not self._answers(child, self._timeout_s):
            self._kill()
            return Verdict("decoder_timeout", f"decoding took longer than {self._timeout_s:g} s")
        try:
            (length,) = LENGTH.unpack(read_exactly(child.stdout, LENGTH.size))
            return msgspec.json.decode(read_exactly(child.stdout, length), type=Verdict)
        except EOFError:
            code = child.wait()
            self._kill()
            if code == -signal.SIGKILL:
                # No decoder ends itself so: it comes from outside, and could have met any image.
                raise WorkerFailed(
                    "the process that verifies single images was killed, as the kernel does where memory runs out; "
                    "no image was rejected for it: give each worker more memory, and run again"
                ) from None
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            return Verdict("decoder_crashed", f"the decoder ended its process ({how})")

    def _start(self) -> subprocess.Popen[bytes]:
        policy = msgspec.json.encode(self._policy).decode()
        # Errors of the decoder's own go nowhere: the death is the finding, and the log belongs to the run.
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, json.dumps(sys.path), policy, str(CHILD_MEMORY_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._child.stdout is not None
        if not self._answers(self._child, _START_S) or len(self._child.stdout.read(LENGTH.size)) < LENGTH.size:
            self._kill()
            raise WorkerFailed("the process that verifies single images does not start")
        return self._child

    def _answers(self, child: subprocess.Popen[bytes], timeout_s: float) -> bool:
        assert child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            return bool(selector.select(timeout_s))

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
        self._child = None
