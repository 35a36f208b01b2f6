"""A real store that fails for some objects, as a server would: only answers are changed, nothing is imitated."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from dataset_packaging.errors import AccessDenied, TransientStoreError

READS = ("get", "get_range", "get_range_with_info", "get_with_info", "open")


@dataclass(slots=True)
class Faults:
    """Which reads fail: those whose URI holds one of the texts.

    Attributes:
        denied: texts of URIs that may not be read.
        failing: texts of URIs that cannot be read at the time.
        asked: URIs of all objects that were asked for below an images folder.
    """

    denied: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch, store: type) -> "Faults":
        """Makes all stores of a class look here before they read."""
        faults = cls()
        for name in READS:
            monkeypatch.setattr(store, name, faults._before(getattr(store, name)))
        return faults

    def deny(self, *texts: str) -> None:
        """Denies images whose path holds one of the texts."""
        self.denied = texts

    def fail(self, *texts: str) -> None:
        """Fails reads of images, or of other files where a text holds a folder."""
        self.failing = texts

    def clear(self) -> None:
        """Lets everything be read."""
        self.denied = self.failing = ()

    def _before(self, read: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(read)
        def guarded(store: object, uri: str, *args: Any, **named: Any) -> Any:
            is_image = "/images/" in uri
            if is_image:
                self.asked.append(uri)
            if is_image and any(text in uri for text in self.denied):
                raise AccessDenied(uri, "injected: denied")
            if any(text in uri for text in self.failing if is_image or "/" in text):
                raise TransientStoreError(uri, "injected: the store is down")
            return read(store, uri, *args, **named)

        return guarded
