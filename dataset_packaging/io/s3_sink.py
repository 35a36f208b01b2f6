"""A multipart upload as a file to write to: published whole, or aborted."""

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from dataset_packaging.errors import StoreError
from dataset_packaging.io.s3_uploads import Part, S3Uploads
from dataset_packaging.io.store import Data, ObjectInfo

_log = logging.getLogger(__name__)

PART_BYTES = 16 * 2**20  # of every part but the last; 10,000 parts make objects of up to 160 GB
PARTS_IN_FLIGHT = 2


class S3Sink:
    """See `Sink`. Holds at most `PARTS_IN_FLIGHT` + 1 parts in memory; up to one part becomes a plain put."""

    def __init__(self, uploads: S3Uploads, put: Callable[[str, Data], ObjectInfo]) -> None:
        self._uploads = uploads
        self._put = put
        self._buffer = bytearray()
        self._written_bytes = 0
        self._upload_id: str | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[Future[Part]] = deque()
        self._parts: list[Part] = []
        self._closed = True
        self._info: ObjectInfo | None = None

    def __enter__(self) -> Self:
        self._closed = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        published = False
        try:
            if kind is None:
                self._info = self._publish()
                published = True
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
            if self._upload_id is not None and not published:
                self._abort(self._upload_id)
            self._buffer = bytearray()

    def write(self, data: Data, /) -> int:
        """See `Sink.write`."""
        if self._closed:
            raise ValueError("the sink is closed")
        view = memoryview(data).cast("B")
        start = 0
        while start < len(view):
            taken = min(PART_BYTES - len(self._buffer), len(view) - start)
            if len(self._buffer) == PART_BYTES:  # full, and more is to come: it is not the last part
                self._send_part()
                continue
            self._buffer += view[start : start + taken]
            start += taken
        self._written_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        """See `Sink.tell`."""
        return self._written_bytes

    def flush(self) -> None:
        """See `Sink.flush`."""

    @property
    def closed(self) -> bool:
        """See `Sink.closed`."""
        return self._closed

    @property
    def info(self) -> ObjectInfo:
        """See `Sink.info`."""
        if self._info is None:
            raise ValueError("nothing has been published")
        return self._info

    def _send_part(self) -> None:
        """Hand the buffer to the pool; waits while enough parts are under way, and raises what one of them raised."""
        if self._upload_id is None:
            self._upload_id = self._uploads.begin()
            self._pool = ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="s3-part")
        assert self._pool is not None
        while len(self._pending) >= PARTS_IN_FLIGHT:
            self._parts.append(self._pending.popleft().result())
        number = len(self._parts) + len(self._pending) + 1
        body, self._buffer = bytes(self._buffer), bytearray()
        self._pending.append(self._pool.submit(self._uploads.send_part, self._upload_id, number, body))

    def _publish(self) -> ObjectInfo:
        if self._upload_id is None:
            return self._put(self._uploads.uri, self._buffer)
        self._send_part()
        while self._pending:
            self._parts.append(self._pending.popleft().result())
        return self._uploads.complete(self._upload_id, self._parts, self._written_bytes)

    def _abort(self, upload_id: str) -> None:
        try:
            self._uploads.abort(upload_id)
        except StoreError as error:
            _log.warning("the parts of an upload stay behind until the next run sweeps them: %s", error)
