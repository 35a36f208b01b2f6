"""Which row of a shard kills its worker: rows are verified one by one in a process that can be killed.

The rows are handed to a child one at a time over a pipe, so that the row at hand when the child dies, or does not
answer in time, is the culprit; a second child must confirm it. The task itself never decodes.
"""

import contextlib
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import msgspec

from dataset_packaging.errors import StoreError, WorkerFailed
from dataset_packaging.imaging.verify import ImagePolicy
from dataset_packaging.io.store import StorageConfig, shared_stores
from dataset_packaging.packing.fetch import image_policy
from dataset_packaging.packing.pack_shard import PackTask, read_shard_rows

CONFIRMATIONS = 2
"""Children that an image must kill before it is rejected for it."""

CHILD_MEMORY_BYTES = 4 << 30
"""What a child may allocate: several times the largest decode (300 MP at 4 bytes)."""

_LENGTH = struct.Struct("<Q")


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
    policy = image_policy(task.dataset)
    known = {position for position, _, _ in task.poison}
    poison = list(task.poison)
    verified = 0
    with _Verifier(policy, task.dataset.images.decode_timeout_s) as verifier:
        for position, uri in zip(rows["position"].to_pylist(), rows["s3_image_path"].to_pylist(), strict=True):
            if position in known:
                continue
            try:
                data = stores.get(uri)
            except StoreError:
                continue
            verified += 1
            failures = list(verifier.try_image(data))
            if len(failures) == CONFIRMATIONS:
                poison.append((position, *failures[-1]))
    return IsolateReport(tuple(poison), verified)


class _Verifier:
    """A child process that verifies images, started anew after each death."""

    def __init__(self, policy: ImagePolicy, timeout_s: float) -> None:
        self._policy = policy
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "_Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def try_image(self, data: memoryview) -> Iterator[tuple[str, str]]:
        """Yields reason and detail of each attempt that failed; stops at the first that does not."""
        for _ in range(CONFIRMATIONS):
            failure = self._attempt(data)
            if failure is None:
                return
            yield failure

    def _attempt(self, data: memoryview) -> tuple[str, str] | None:
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(_LENGTH.pack(len(data)))
            child.stdin.write(data)
            child.stdin.flush()
        answered, _, _ = select.select([child.stdout], [], [], self._timeout_s)
        if not answered:
            self._kill()
            return "decoder_timeout", f"decoding took longer than {self._timeout_s:g} s"
        if child.stdout.read(1) == b"\1":
            return None
        code = child.wait()
        self._kill()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return "decoder_crashed", f"the decoder ended its process ({how})"

    def _start(self) -> subprocess.Popen[bytes]:
        # Errors of the decoder's own go nowhere: the death is the finding, and the log belongs to the run.
        self._child = subprocess.Popen(
            [sys.executable, "-m", "dataset_packaging.packing.isolate", msgspec.json.encode(self._policy).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], 60)
        if not ready or self._child.stdout.read(1) != b"\0":
            self._kill()
            raise WorkerFailed("the process that verifies single images does not start")
        return self._child

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
        self._child = None


def _read_exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _verify_loop(policy: ImagePolicy) -> None:
    """The child: reads length and bytes, verifies, answers one byte; ends with its input."""
    import resource

    from dataset_packaging.imaging.verify import verify_image

    resource.setrlimit(resource.RLIMIT_DATA, (CHILD_MEMORY_BYTES, CHILD_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    answers.write(b"\0")
    with contextlib.suppress(EOFError):
        while True:
            (length,) = _LENGTH.unpack(_read_exactly(sys.stdin.buffer, _LENGTH.size))
            verify_image(_read_exactly(sys.stdin.buffer, length), policy)
            answers.write(b"\1")


if __name__ == "__main__":
    _verify_loop(msgspec.json.decode(sys.argv[1], type=ImagePolicy))
