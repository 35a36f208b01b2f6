"""A process that verifies images one by one and may die of any of them. Started by `isolate`, and by nobody else.

Reads a length of 8 bytes and so many bytes of an image, answers with a length and the verdict as JSON; ends with its
input. Its first answer, of length 0, says that it is ready.
"""

import contextlib
import os
import resource
import struct
import sys
from typing import IO

import msgspec

from dataset_packaging.imaging.verify import ImagePolicy, verify_image

LENGTH = struct.Struct("<Q")


def serve(policy: ImagePolicy, memory_bytes: int) -> None:
    """Verifies until the input ends; an allocation above the limit fails. Whatever decoders print goes to stderr."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    answers.write(LENGTH.pack(0))
    with contextlib.suppress(EOFError):
        while True:
            (length,) = LENGTH.unpack(read_exactly(sys.stdin.buffer, LENGTH.size))
            answer = msgspec.json.encode(verify_image(read_exactly(sys.stdin.buffer, length), policy))
            answers.write(LENGTH.pack(len(answer)) + answer)


def read_exactly(stream: IO[bytes], count: int) -> bytes:
    """Returns `count` bytes. Raises EOFError where the stream ends before."""
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def serve_policy(policy: str, memory_bytes: str) -> None:
    """Does what `serve` does, with arguments as texts."""
    serve(msgspec.json.decode(policy, type=ImagePolicy), int(memory_bytes))
