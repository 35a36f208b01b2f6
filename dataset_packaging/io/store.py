"""One small interface to objects, wherever they stand: a local folder or S3.

A URI is `file:///absolute/path` or `s3://bucket/key`. What follows the scheme (and the bucket) is the key, verbatim:
nothing is decoded, normalized or stripped: `#`, `?`, `%20`, `+` and both Unicode forms name the object they spell.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self

from dataset_packaging.config import AccessGrantsConfig, DatasetConfig, S3Config
from dataset_packaging.errors import UnsupportedKey

if TYPE_CHECKING:
    from dataset_packaging.io.s3_store import S3Store

Data = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says of one object.

    Attributes:
        uri: Absolute, verbatim.
        size_bytes: Length of the body.
        tag: Changes whenever the object does. S3: the ETag without quotes. Local: `{mtime_ns}-{ctime_ns}`.
    """

    uri: str
    size_bytes: int
    tag: str


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """What a worker needs to reach the objects of one dataset. Plain data, cheap to pickle.

    Attributes:
        s3: Endpoint, credentials and limits.
        access_grants: None where the identity's own permissions are used.
        output_prefixes: Prefixes that are opened with the write identity; every other URI gets the read identity.
    """

    s3: S3Config
    access_grants: AccessGrantsConfig | None
    output_prefixes: tuple[str, ...]

    @classmethod
    def of(cls, dataset: DatasetConfig) -> Self:
        """Take the storage part of a dataset's configuration. Pure."""
        return cls(dataset.s3, dataset.access_grants, tuple(dataset.prefixes.values()))


class Sink(Protocol):
    """A write-only stream: its object appears whole when the `with` block ends, or not at all. Good for pyarrow."""

    def write(self, data: Data, /) -> int:
        """Take all of `data`; the caller may reuse the buffer at once."""
        ...

    def tell(self) -> int:
        """Count the bytes written so far."""
        ...

    def flush(self) -> None:
        """Do nothing: only the end of the `with` block publishes."""
        ...

    @property
    def closed(self) -> bool:
        """Tell whether the sink has been published or aborted."""
        ...

    @property
    def info(self) -> ObjectInfo:
        """Describe the published object. Only after the `with` block has ended without an exception."""
        ...


class Store(Protocol):
    """Objects by URI. Every method does I/O, retries the transient within bounds, and may be called by many threads.

    Errors, of every method: `NotFound`, `AccessDenied`, `Archived`, `UnsupportedKey` (the key cannot be said to this
    store; no other object is ever touched instead) and `TransientStoreError` (retries used up).
    """

    def get(self, uri: str, max_bytes: int | None = None) -> memoryview:
        """Read a whole object; the length is checked against what the store announced.

        Raises:
            ObjectTooLarge: it announced more than `max_bytes`; the body was not read.
        """
        ...

    def get_range(self, uri: str, start: int, length: int) -> memoryview:
        """Read bytes [start, start + length); shorter where the object ends, empty beyond its end."""
        ...

    def get_range_with_info(self, uri: str, start: int, length: int) -> tuple[memoryview, ObjectInfo]:
        """Read as `get_range`, together with the size and tag of the whole object: no further request for them."""
        ...

    def get_with_info(self, uri: str) -> tuple[memoryview, ObjectInfo]:
        """Read a whole object together with the tag of exactly these bytes."""
        ...

    def open(self, uri: str) -> BinaryIO:
        """Open an object for seekable reading, in ranges with read-ahead. If it changes meanwhile, that is an error."""
        ...

    def put(self, uri: str, data: Data) -> ObjectInfo:
        """Write a whole object, replacing what is there. Safe to repeat."""
        ...

    def put_if_absent(self, uri: str, data: Data) -> ObjectInfo | None:
        """Write a whole object unless one exists: then None. Of many writers at once exactly one gets an answer."""
        ...

    def put_if_match(self, uri: str, data: Data, tag: str) -> ObjectInfo | None:
        """Replace the object that has this tag; None where it has another one or is gone."""
        ...

    def open_sink(self, uri: str) -> AbstractContextManager[Sink]:
        """Stream a new object: published by a clean end of the `with` block, aborted without trace by any exception."""
        ...

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        """Walk every object whose URI starts with `prefix_uri` (not only a folder), in order of the keys' bytes."""
        ...

    def head(self, uri: str) -> ObjectInfo:
        """Describe an object without reading it."""
        ...

    def delete(self, uri: str) -> None:
        """Remove an object; one that is not there is fine."""
        ...

    def abort_uploads(self, prefix_uri: str) -> int:
        """Remove what killed writers left unpublished in a folder (multipart uploads, temporary files); their number.

        Only for a folder that nobody else writes to: an upload under way there is aborted too, and its writer fails.
        """
        ...


class StoreCounts:
    """Running totals of what a process did to its stores. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Add to one total."""
        with self._lock:
            self._counts[name] += count

    def read(self) -> dict[str, int]:
        """Copy the totals."""
        with self._lock:
            return dict(self._counts)


def is_below(uri: str, prefix: str) -> bool:
    """Tell whether `uri` is `prefix` or stands in that folder (`s3://b/ds-out` is not below `s3://b/ds`). Pure."""
    return uri == prefix or uri.startswith(prefix.rstrip("/") + "/")


class Stores:
    """Every store of a dataset behind one interface: dispatches by URI scheme and, on S3, by identity.

    URIs below the output prefixes are opened with the write identity (READWRITE grants), all others with the read
    identity (READ grants). Plain data until first used: pickling carries the configuration only, and a process that
    was forked off makes its own clients.
    """

    def __init__(self, config: StorageConfig, counts: StoreCounts | None = None) -> None:
        self.config = config
        self._reset(counts)

    def _reset(self, counts: StoreCounts | None = None) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._counts = counts or StoreCounts()
        self._opened: dict[str, Store] = {}

    def __getstate__(self) -> StorageConfig:
        return self.config

    def __setstate__(self, state: StorageConfig) -> None:
        self.config = state
        self._reset()

    def store_of(self, uri: str) -> Store:
        """Find the store that holds a URI, opening it on first use in this process.

        Raises:
            UnsupportedKey: neither `s3://bucket/…` nor `file:///…`.
        """
        if uri.startswith("s3://"):
            name = "s3-write" if any(is_below(uri, prefix) for prefix in self.config.output_prefixes) else "s3-read"
        elif uri.startswith("file:///"):
            name = "local"
        else:
            raise UnsupportedKey(uri, "a URI starts with s3://bucket/ or file:///")
        if self._pid != os.getpid():
            self._reset()
        store = self._opened.get(name)
        return store if store is not None else self._open(name)

    def _open(self, name: str) -> Store:
        with self._lock:
            if name not in self._opened:
                self._opened[name] = (
                    self._open_local() if name == "local" else self._open_s3(writable=name == "s3-write")
                )
            return self._opened[name]

    def _open_local(self) -> Store:
        from dataset_packaging.io.local_store import LocalStore

        return LocalStore(self._counts)

    def _open_s3(self, writable: bool) -> "S3Store":
        from dataset_packaging.io.s3_store import S3Store  # here, so that a run on local files never loads boto3

        return S3Store(self.config, self._counts, writable=writable)

    def stats(self) -> dict[str, int]:
        """Count what these stores have done so far in this process.

        Requests by kind (`get`, `head`, `put`, `list`, `delete`), the GETs of sources among them (`source_get`, on S3),
        `bytes_read`, `bytes_written`, `retries`, `throttled` answers, and `grant_calls`.
        """
        return self._counts.read()

    def concurrency_limits(self) -> dict[str, int]:
        """Tell how many requests may be in flight at present, for each S3 identity in use; fewer while S3 throttles."""
        return {name: store.limiter.limit for name, store in self._opened.items() if hasattr(store, "limiter")}

    def get(self, uri: str, max_bytes: int | None = None) -> memoryview:
        """See `Store.get`."""
        return self.store_of(uri).get(uri, max_bytes)

    def get_range(self, uri: str, start: int, length: int) -> memoryview:
        """See `Store.get_range`."""
        return self.store_of(uri).get_range(uri, start, length)

    def get_range_with_info(self, uri: str, start: int, length: int) -> tuple[memoryview, ObjectInfo]:
        """See `Store.get_range_with_info`."""
        return self.store_of(uri).get_range_with_info(uri, start, length)

    def get_with_info(self, uri: str) -> tuple[memoryview, ObjectInfo]:
        """See `Store.get_with_info`."""
        return self.store_of(uri).get_with_info(uri)

    def open(self, uri: str) -> BinaryIO:
        """See `Store.open`."""
        return self.store_of(uri).open(uri)

    def put(self, uri: str, data: Data) -> ObjectInfo:
        """See `Store.put`."""
        return self.store_of(uri).put(uri, data)

    def put_if_absent(self, uri: str, data: Data) -> ObjectInfo | None:
        """See `Store.put_if_absent`."""
        return self.store_of(uri).put_if_absent(uri, data)

    def put_if_match(self, uri: str, data: Data, tag: str) -> ObjectInfo | None:
        """See `Store.put_if_match`."""
        return self.store_of(uri).put_if_match(uri, data, tag)

    def open_sink(self, uri: str) -> AbstractContextManager[Sink]:
        """See `Store.open_sink`."""
        return self.store_of(uri).open_sink(uri)

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        """See `Store.list`."""
        return self.store_of(prefix_uri).list(prefix_uri)

    def head(self, uri: str) -> ObjectInfo:
        """See `Store.head`."""
        return self.store_of(uri).head(uri)

    def delete(self, uri: str) -> None:
        """See `Store.delete`."""
        self.store_of(uri).delete(uri)

    def abort_uploads(self, prefix_uri: str) -> int:
        """See `Store.abort_uploads`."""
        return self.store_of(prefix_uri).abort_uploads(prefix_uri)


@cache
def shared_counts() -> StoreCounts:
    """Give the totals of all stores that tasks of this process share."""
    return StoreCounts()


@cache
def shared_stores(config: StorageConfig) -> Stores:
    """Give every task of one process and one dataset the same stores, so that connections outlive a task."""
    return Stores(config, shared_counts())
