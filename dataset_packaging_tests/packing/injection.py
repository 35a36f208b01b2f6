"""Deaths on cue: the durable steps of a run as named events, and processes that are killed at one of them.

Nothing in the product knows of it. Inside this process, `watch` wraps the stores for the time of a block; processes
that are started anew, Ray's workers among them, load `injected_site/sitecustomize.py` by their PYTHONPATH.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

Victim = Literal["self", "driver", "everything"]
OnEvent = Callable[[str], None]

PLAIN = ("put", "put_if_absent", "put_if_match", "delete")


@dataclass(frozen=True, slots=True)
class Kill:
    """One death.

    Attributes:
        event: a regular expression that the event's name must match as a whole.
        hits: a folder that counts matches over all processes.
        occurrence: which match is the one, from 1.
        victim: who dies: the process of the event, the run's driver, or the driver with all its descendants.
        driver_pid: of the run; 0 where the event is in the driver itself.
    """

    event: str
    hits: Path
    occurrence: int = 1
    victim: Victim = "self"
    driver_pid: int = 0

    def __call__(self, event: str) -> None:
        """Counts the event where it matches, and kills at the right one."""
        if re.fullmatch(self.event, event) and self._count() == self.occurrence:
            self.kill()

    def _count(self) -> int:
        number = 1
        while True:
            try:
                os.close(os.open(self.hits / str(number), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                number += 1
            else:
                return number

    def kill(self) -> None:
        """Kills the victim, at once and without notice."""
        driver_pid = self.driver_pid or os.getpid()
        if self.victim == "everything":
            import psutil

            for child in psutil.Process(driver_pid).children(recursive=True):
                if child.pid != os.getpid():
                    child.kill()
        if self.victim != "self":
            os.kill(driver_pid, signal.SIGKILL)
        if self.victim != "driver":
            os.kill(os.getpid(), signal.SIGKILL)


def event_name(when: str, what: str, uri: str, root: str) -> str:
    """Returns the name of an event: when, what, and the file with its numbers and buckets left out. Pure."""
    key = uri.removeprefix(root).strip("/")
    key = re.sub(r"\d+_(\d+|inf)/\d+", "BUCKET", key)
    return f"{when} {what} {re.sub(r'[0-9]+', 'N', key)}"


@contextmanager
def watch(stores: type, root: str, on_event: OnEvent) -> Iterator[None]:
    """Tells of every durable step that stores of a class take below `root` while the block lasts."""
    restore = instrument(stores, root, on_event)
    try:
        yield
    finally:
        restore()


def instrument(stores: type, root: str, on_event: OnEvent) -> Callable[[], None]:
    """Wraps the writing methods of a class of stores; returns what takes the wrapping off."""
    originals = {name: getattr(stores, name) for name in (*PLAIN, "open_sink")}

    def tell(when: str, what: str, uri: str) -> None:
        if uri.startswith(root):
            on_event(event_name(when, what, uri, root))

    def wrapped(name: str) -> Callable[..., Any]:
        def call(store: object, uri: str, *args: Any) -> Any:
            tell("before", name, uri)
            result = originals[name](store, uri, *args)
            tell("after", name, uri)
            return result

        return call

    for name in PLAIN:
        setattr(stores, name, wrapped(name))
    stores.open_sink = lambda store, uri: _ToldSink(originals["open_sink"](store, uri), uri, tell)  # type: ignore[attr-defined]

    def restore() -> None:
        for name, original in originals.items():
            setattr(stores, name, original)

    return restore


class _ToldSink:
    """A sink that tells when it is opened, written to and published."""

    def __init__(self, sink: Any, uri: str, tell: Callable[[str, str, str], None]) -> None:
        self._sink = sink
        self._uri = uri
        self._tell = tell

    def __enter__(self) -> "_ToldSink":
        self._sink.__enter__()
        self._tell("after", "open", self._uri)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._tell("before", "publish", self._uri)
        self._sink.__exit__(kind, error, traceback)
        if kind is None:
            self._tell("after", "publish", self._uri)

    def write(self, data: Any) -> int:
        count: int = self._sink.write(data)
        self._tell("after", "write", self._uri)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)
