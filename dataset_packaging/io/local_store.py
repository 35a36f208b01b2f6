# ruff: noqa: PTH105, PTH108, PTH116, PTH123, PTH208  (pathlib normalizes `a//b` and `./a`; a key is verbatim)
"""Objects as files. A file appears whole under its name, by rename, after its bytes are durable."""

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from dataset_packaging.errors import AccessDenied, NotFound, ObjectTooLarge, TransientStoreError, UnsupportedKey
from dataset_packaging.io.store import Data, ObjectInfo, Sink, StoreCounts

SCHEME = "file://"
TEMPORARY_PREFIX = ".tmp-"  # names that start so are not objects: unpublished files, and the lock of conditional writes
LOCK_NAME = ".tmp-lock"

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def path_of(uri: str) -> str:
    """Take the path out of `file:///path`, verbatim. Pure."""
    return uri.removeprefix(SCHEME)


def tag_of(status: os.stat_result) -> str:
    """Make an object's tag from its times. Pure."""
    return f"{status.st_mtime_ns}-{status.st_ctime_ns}"


@contextmanager
def _store_errors(uri: str) -> Iterator[None]:
    """Turn the system's errors into the store's."""
    try:
        yield
    except _NOT_THERE as error:
        raise NotFound(uri, f"no such file ({error.strerror})") from error
    except PermissionError as error:
        raise AccessDenied(
            uri, f"{error.strerror}; check the permissions of {error.filename} for uid {os.geteuid()}"
        ) from error
    except ValueError as error:  # a NUL in the path, or a lone surrogate
        raise UnsupportedKey(uri, f"not a path of this system ({error})") from error
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ELOOP):
            raise UnsupportedKey(uri, f"not a path of this file system ({error.strerror})") from error
        raise TransientStoreError(uri, f"{error.strerror or error}") from error


def _writable_path(uri: str) -> str:
    """Find the path to write to.

    Raises:
        UnsupportedKey: the file would be listed under another name than this one.
    """
    path = path_of(uri)
    name = path.rpartition("/")[2]
    if any(part in ("", ".", "..") for part in path.split("/")[1:]):
        raise UnsupportedKey(uri, "a local object's path has no empty, `.` or `..` part")
    if name.startswith(TEMPORARY_PREFIX):
        raise UnsupportedKey(uri, f"names that start with {TEMPORARY_PREFIX} are those of unpublished files")
    return path


def require_writable_folder(uri: str) -> None:
    """Make sure that a folder can be written to, or made; looks only.

    Raises:
        AccessDenied: this user may not.
        UnsupportedKey: a file stands in its place or above it.
    """
    path = path_of(uri)
    with _store_errors(uri):
        while not os.path.lexists(path):
            path = path.rpartition("/")[0] or "/"
    if not Path(path).is_dir():
        raise UnsupportedKey(uri, f"{path} is no folder: choose another place, or move it away")
    if not os.access(path, os.W_OK | os.X_OK):
        raise AccessDenied(uri, f"Permission denied; check the permissions of {path} for uid {os.geteuid()}")


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Unpublished:
    """A file under a temporary name in its object's folder."""

    def __init__(self, path: str) -> None:
        folder, _, _ = path.rpartition("/")
        Path(folder or "/").mkdir(parents=True, exist_ok=True)
        self.path = path
        self.folder = folder or "/"
        self.temporary = f"{folder}/{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        self.file: BinaryIO = open(self.temporary, "xb", buffering=0)  # noqa: SIM115 - closed by discard()

    def write(self, data: Data) -> int:
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += self.file.write(view[written:])
        return written

    def seal(self) -> None:
        """Make the bytes durable.

        The modification time is set to the nanosecond: the kernel's is as coarse as its clock tick, and two writes
        within one tick would share a tag.
        """
        os.utime(self.file.fileno(), ns=(time.time_ns(), time.time_ns()))
        os.fsync(self.file.fileno())

    def publish(self) -> os.stat_result:
        """Give the file its name, replacing what has it."""
        os.replace(self.temporary, self.path)
        return self.published()

    def publish_if_absent(self) -> os.stat_result | None:
        """Give the file its name unless something has it."""
        try:
            os.link(self.temporary, self.path)
        except FileExistsError:
            return None
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            with _folder_lock(self.folder):
                return None if os.path.lexists(self.path) else self.publish()
        os.unlink(self.temporary)
        return self.published()

    def published(self) -> os.stat_result:
        """Make the new name durable; the state of exactly this file, whatever has its name by now."""
        _sync_folder(self.folder)
        return os.fstat(self.file.fileno())

    def discard(self) -> None:
        self.file.close()
        with suppress(FileNotFoundError):
            os.unlink(self.temporary)


def _open_file(path: str, buffering: int) -> BinaryIO:
    """Open a regular file; a pipe or a device under an object's name is refused, not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not _is_file(os.fstat(descriptor)):
            raise FileNotFoundError(errno.ENOENT, "not a file", path)
        return open(descriptor, "rb", buffering=buffering)
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def _unpublished(path: str) -> Iterator[_Unpublished]:
    file = _Unpublished(path)
    try:
        yield file
    finally:
        file.discard()


@contextmanager
def _folder_lock(folder: str) -> Iterator[None]:
    """Let one conditional writer at a time into a folder, across processes."""
    descriptor = os.open(f"{folder}/{LOCK_NAME}", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class LocalSink:
    """See `Sink`."""

    def __init__(self, uri: str, counts: StoreCounts) -> None:
        self._uri = uri
        self._counts = counts
        self._file: _Unpublished | None = None
        self._written_bytes = 0
        self._info: ObjectInfo | None = None

    def __enter__(self) -> Self:
        with _store_errors(self._uri):
            self._file = _Unpublished(_writable_path(self._uri))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._file is not None
        try:
            if kind is None:
                with _store_errors(self._uri):
                    self._file.seal()
                    status = self._file.publish()
                self._info = ObjectInfo(self._uri, status.st_size, tag_of(status))
                self._counts.add("put")
        finally:
            self._file.discard()
            self._file = None

    def write(self, data: Data, /) -> int:
        """See `Sink.write`."""
        if self._file is None:
            raise ValueError("the sink is closed")
        with _store_errors(self._uri):
            written = self._file.write(data)
        self._written_bytes += written
        self._counts.add("bytes_written", written)
        return written

    def tell(self) -> int:
        """See `Sink.tell`."""
        return self._written_bytes

    def flush(self) -> None:
        """See `Sink.flush`."""

    @property
    def closed(self) -> bool:
        """See `Sink.closed`."""
        return self._file is None

    @property
    def info(self) -> ObjectInfo:
        """See `Sink.info`."""
        if self._info is None:
            raise ValueError("nothing has been published")
        return self._info


class LocalStore:
    """`Store` over `file:///` URIs.

    Conditional writes hold between processes that all use this class, also on network file systems with locks.
    """

    def __init__(self, counts: StoreCounts | None = None) -> None:
        self._counts = counts if counts is not None else StoreCounts()

    def get(self, uri: str, max_bytes: int | None = None) -> memoryview:
        """See `Store.get`."""
        return self._read(uri, 0, None, max_bytes)[0]

    def get_with_info(self, uri: str) -> tuple[memoryview, ObjectInfo]:
        """See `Store.get_with_info`."""
        return self._read(uri, 0, None, None)

    def get_range(self, uri: str, start: int, length: int) -> memoryview:
        """See `Store.get_range`."""
        return self._read(uri, start, length, None)[0]

    def get_range_with_info(self, uri: str, start: int, length: int) -> tuple[memoryview, ObjectInfo]:
        """See `Store.get_range_with_info`."""
        return self._read(uri, start, length, None)

    def _read(self, uri: str, start: int, length: int | None, max_bytes: int | None) -> tuple[memoryview, ObjectInfo]:
        with _store_errors(uri), _open_file(path_of(uri), buffering=0) as file:
            status = os.fstat(file.fileno())
            if max_bytes is not None and status.st_size > max_bytes:
                raise ObjectTooLarge(uri, f"{status.st_size} bytes, {max_bytes} are allowed")
            file.seek(start)
            data = file.read(-1 if length is None else length)
        if length is None and len(data) != status.st_size:
            raise TransientStoreError(uri, f"{len(data)} bytes read of a file of {status.st_size}")
        self._count_read(len(data))
        return memoryview(data), ObjectInfo(uri, status.st_size, tag_of(status))

    def _count_read(self, size_bytes: int) -> None:
        self._counts.add("get")
        self._counts.add("bytes_read", size_bytes)

    def open(self, uri: str) -> BinaryIO:
        """See `Store.open`. A file that is replaced meanwhile goes on being read as it was."""
        self._counts.add("get")
        with _store_errors(uri):
            return _open_file(path_of(uri), buffering=1 << 20)

    def head(self, uri: str) -> ObjectInfo:
        """See `Store.head`."""
        self._counts.add("head")
        path = path_of(uri)
        with _store_errors(uri):
            status = os.stat(path)
        if not _is_file(status):
            raise NotFound(uri, "not a file")
        return ObjectInfo(uri, status.st_size, tag_of(status))

    def put(self, uri: str, data: Data) -> ObjectInfo:
        """See `Store.put`."""
        with _store_errors(uri), _unpublished(_writable_path(uri)) as file:
            file.write(data)
            file.seal()
            return self._count_put(uri, file.publish())

    def put_if_absent(self, uri: str, data: Data) -> ObjectInfo | None:
        """See `Store.put_if_absent`."""
        with _store_errors(uri), _unpublished(_writable_path(uri)) as file:
            file.write(data)
            file.seal()
            status = file.publish_if_absent()
            return None if status is None else self._count_put(uri, status)

    def put_if_match(self, uri: str, data: Data, tag: str) -> ObjectInfo | None:
        """See `Store.put_if_match`."""
        with _store_errors(uri), _unpublished(_writable_path(uri)) as file:
            file.write(data)
            file.seal()
            with _folder_lock(file.folder):
                try:
                    if tag_of(os.stat(file.path)) != tag:
                        return None
                except _NOT_THERE:
                    return None
                return self._count_put(uri, file.publish())

    def _count_put(self, uri: str, status: os.stat_result) -> ObjectInfo:
        self._counts.add("put")
        self._counts.add("bytes_written", status.st_size)
        return ObjectInfo(uri, status.st_size, tag_of(status))

    def open_sink(self, uri: str) -> AbstractContextManager[Sink]:
        """See `Store.open_sink`."""
        return LocalSink(uri, self._counts)

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        """See `Store.list`. A folder that cannot be read is an error, never an empty one."""
        self._counts.add("list")
        folder, _, start = path_of(prefix_uri).rpartition("/")
        with _store_errors(prefix_uri):
            for path, status in _walk(folder, start, ()):
                yield ObjectInfo(SCHEME + path, status.st_size, tag_of(status))

    def delete(self, uri: str) -> None:
        """See `Store.delete`. Folders stay."""
        self._counts.add("delete")
        with suppress(NotFound), _store_errors(uri):
            os.unlink(path_of(uri))

    def abort_uploads(self, prefix_uri: str) -> int:
        """See `Store.abort_uploads`."""
        count = 0
        with _store_errors(prefix_uri):
            for path, _ in list(_walk(path_of(prefix_uri).rstrip("/"), "", (), unpublished=True)):
                with suppress(FileNotFoundError):
                    os.unlink(path)
                    count += 1
        return count


def _is_file(status: os.stat_result) -> bool:
    return (status.st_mode & 0o170000) == 0o100000


def _walk(
    folder: str, start: str, above: tuple[tuple[int, int], ...], unpublished: bool = False
) -> Iterator[tuple[str, os.stat_result]]:
    """Walk the files below a folder whose first part starts with `start`, in order of the path's bytes.

    Links are followed, to folders once on each way down (`above` holds the folders gone through); what vanishes
    meanwhile is left out.
    """
    try:
        here = os.stat(folder + "/")
        names = os.listdir(folder + "/")
    except (FileNotFoundError, NotADirectoryError):
        return
    identity = (here.st_dev, here.st_ino)
    if identity in above:
        return
    found: list[tuple[bytes, str, os.stat_result]] = []
    for name in names:
        if not name.startswith(start):
            continue
        try:
            status = os.stat(f"{folder}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        is_folder = (status.st_mode & 0o170000) == 0o040000
        found.append((os.fsencode(name) + (b"/" if is_folder else b""), name, status))
    for key, name, status in sorted(found, key=lambda entry: entry[0]):
        if key.endswith(b"/"):
            yield from _walk(f"{folder}/{name}", "", (*above, identity), unpublished)
        elif _is_file(status) and name.startswith(TEMPORARY_PREFIX) == unpublished and name != LOCK_NAME:
            yield f"{folder}/{name}", status
