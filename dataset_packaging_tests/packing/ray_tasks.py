"""Task functions for the executor's tests: module-level, as Ray wants them."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from botocore.exceptions import ClientError

from dataset_packaging.errors import DecoderStuck, NotFound
from dataset_packaging.io.concurrency import ConcurrencyLimiter


class TwoArgumentError(Exception):
    """Cannot be rebuilt from its args, like many exceptions of libraries."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")


def double(number: int) -> int:
    return 2 * number


def throttle(name: str) -> int:
    limiter = ConcurrencyLimiter(64, name=name)
    limiter.acquire()
    limiter.release(throttled=True)
    return limiter.limit


def raise_foreign(number: int) -> int:
    raise TwoArgumentError("E42", f"task {number}")


def raise_denied(number: int) -> int:
    raise ClientError({"Error": {"Code": "AccessDenied", "Message": f"task {number}"}}, "GetObject")


def raise_own(number: int) -> int:
    raise NotFound(f"s3://bucket/{number}", "gone")


def die(number: int) -> int:
    if number % 2:
        os._exit(1)
    return number


def die_once(mark: str) -> str:
    if not Path(mark).exists():
        Path(mark).touch()
        os._exit(1)
    return mark


def starve(_: int) -> int:
    raise MemoryError("none left")


class Large:
    """Finds no memory where it is unpacked."""

    def __reduce__(self) -> tuple[Callable[[int], int], tuple[int]]:
        return starve, (1,)


def hang(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise DecoderStuck("an image has been decoding for ever")


def touch_and_wait(path: str) -> str:
    Path(path).touch()
    time.sleep(600)
    Path(path + ".late").touch()
    return path


def mark_running(folder: str) -> int:
    """Returns how many tasks were at work at once, this one among them."""
    mine = Path(folder) / str(os.getpid())
    mine.touch()
    time.sleep(0.05)
    running = len(list(Path(folder).iterdir()))
    mine.unlink()
    return running


def tell_task(number: int) -> int:
    if number == 7:
        raise NotFound(f"s3://bucket/{number}", "gone")
    return number


def die_of_seven(number: int) -> int:
    if number == 7:
        os._exit(1)
    return number
