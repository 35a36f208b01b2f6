"""Objects on S3 and on compatible stores.

Reading goes through obstore: the least CPU per byte. Everything else, and keys that obstore cannot say, goes through
boto3, which tells error codes. Neither client retries by itself: one loop around both (`S3Requests`) decides.
"""

import contextlib
import io
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, TypeVar

from botocore.exceptions import ClientError

from dataset_packaging.errors import AccessDenied, NotFound
from dataset_packaging.io.access_grants import DENIAL_TRUST_S, GrantedAccess
from dataset_packaging.io.concurrency import ConcurrencyLimiter
from dataset_packaging.io.range_file import RangeFile
from dataset_packaging.io.s3_control import ControlClient
from dataset_packaging.io.s3_errors import Fate, RequestFailed, failure_of_boto
from dataset_packaging.io.s3_keys import SCHEME, folder_of, is_plain, split_object_uri, split_output_uri, split_s3_uri
from dataset_packaging.io.s3_reads import (
    NOTHING,
    Asked,
    Body,
    read_by_boto,
    read_by_obstore,
    require_own_key,
    require_present,
    tag_in,
    unquoted,
)
from dataset_packaging.io.s3_requests import S3Requests
from dataset_packaging.io.s3_session import S3Access, S3Server
from dataset_packaging.io.s3_sink import S3Sink
from dataset_packaging.io.s3_uploads import S3Uploads
from dataset_packaging.io.store import Data, ObjectInfo, Sink, StorageConfig, StoreCounts

_log = logging.getLogger(__name__)

T = TypeVar("T")

TAIL_BYTES = 64 * 2**10  # of an object that is opened, read at once: costs no more time than asking for its size
LARGEST_SINGLE_PUT_BYTES = 64 * 2**20  # above it a put goes in parts: a broken connection costs one part


class S3Store:
    """`Store` over `s3://` URIs with one identity: the read or the write identity of a dataset."""

    def __init__(self, config: StorageConfig, counts: StoreCounts | None = None, *, writable: bool) -> None:
        self._counts = counts if counts is not None else StoreCounts()
        self._writable = writable
        self._requests = S3Requests(config.s3, self._counts, "S3 (outputs)" if writable else "S3 (sources)")
        identity = config.s3.write if writable else config.s3.read
        server = S3Server(config.s3)
        access = S3Access.of(server, identity)
        self._grants: GrantedAccess | None = None
        self._access = access
        self._unlistable: dict[str, float] = {}  # folders, and when listing them was refused
        self._sweep_refused = False
        if config.access_grants is not None:
            self._grants = GrantedAccess(
                server,
                ControlClient(config.s3, config.access_grants, identity, self._counts),
                "READWRITE" if writable else config.access_grants.permission,
                config.output_prefixes if writable else (),
                access if config.access_grants.fallback else None,
            )

    @property
    def limiter(self) -> ConcurrencyLimiter:
        """Bounds the requests in flight; its limit falls while S3 throttles."""
        return self._requests.limiter

    def _access_of(self, bucket: str, key: str) -> S3Access:
        return self._access if self._grants is None else self._grants.access_of(bucket, key)

    def _send(self, uri: str, action: str, attempt: Callable[[S3Access, str, str], T], count: str) -> T:
        bucket, key = split_object_uri(uri)

        def counted(access: S3Access) -> T:
            self._count(count)
            return attempt(access, bucket, key)

        return self._requests.send(uri, action, lambda: self._access_of(bucket, key), counted)

    def _count(self, request: str) -> None:
        self._counts.add(request)
        if request == "get" and not self._writable:
            self._counts.add("source_get")

    # reading

    def get(self, uri: str, max_bytes: int | None = None) -> memoryview:
        """See `Store.get`."""
        return self._read(uri, Asked(max_bytes=max_bytes)).data

    def get_with_info(self, uri: str) -> tuple[memoryview, ObjectInfo]:
        """See `Store.get_with_info`."""
        body = self._read(uri, Asked())
        return body.data, ObjectInfo(uri, body.size_bytes, body.tag)

    def get_range(self, uri: str, start: int, length: int) -> memoryview:
        """See `Store.get_range`."""
        return self._read(uri, Asked((start, start + length))).data if length > 0 else memoryview(b"")

    def get_range_with_info(self, uri: str, start: int, length: int) -> tuple[memoryview, ObjectInfo]:
        """See `Store.get_range_with_info`. A range beyond the end does cost a further request."""
        body = self._read(uri, Asked((start, start + length))) if length > 0 else NOTHING
        info = self.head(uri) if body is NOTHING else ObjectInfo(uri, body.size_bytes, body.tag)
        return body.data, info

    def open(self, uri: str) -> BinaryIO:
        """See `Store.open`. Reads of an object that was replaced meanwhile raise `PreconditionFailed`.

        Size and tag come with the end of the object: of a small one that is all, of a Parquet file the footer.
        """
        end = self._read(uri, Asked(tail_bytes=TAIL_BYTES))
        if end is NOTHING:  # an empty object has no end
            info = self.head(uri)
            end = Body(memoryview(b""), info.tag, info.size_bytes)

        def read_range(start: int, length: int) -> memoryview:
            return self._read(uri, Asked((start, start + length), tag=end.tag)).data

        return io.BufferedReader(RangeFile(read_range, end.size_bytes, end.data))

    def _read(self, uri: str, asked: Asked) -> Body:
        def attempt(access: S3Access, bucket: str, key: str) -> Body:
            client = access.object_client(bucket) if is_plain(key) else None
            if client is not None:
                try:
                    return read_by_obstore(client, key, asked)
                except RequestFailed as error:
                    if error.failure.fate is not Fate.UNCLEAR:
                        raise
                self._count("get")
            with self._missing_told(access, bucket, key):
                found = read_by_boto(access.client(), bucket, key, asked)
            require_own_key(access.client(), bucket, key, found.tag)
            return found

        body = self._send(uri, "s3:GetObject", attempt, "get")
        self._counts.add("bytes_read", len(body.data))
        return body

    @contextlib.contextmanager
    def _missing_told(self, access: S3Access, bucket: str, key: str) -> Iterator[None]:
        """Tell a missing object from a denied one; a folder that may not be listed is not asked for again and again."""
        try:
            yield
        except ClientError as error:
            folder = f"{bucket}/{folder_of(key)}"
            asked_at = self._unlistable.get(folder, float("-inf"))
            if failure_of_boto(error).fate is Fate.DENIED and time.monotonic() - asked_at >= DENIAL_TRUST_S:
                self._counts.add("list")
                if not require_present(access.client(), bucket, key):
                    self._unlistable[folder] = time.monotonic()
            raise

    def head(self, uri: str) -> ObjectInfo:
        """See `Store.head`."""

        def attempt(access: S3Access, bucket: str, key: str) -> ObjectInfo:
            with self._missing_told(access, bucket, key):
                answer = access.client().head_object(Bucket=bucket, Key=key)
            info = ObjectInfo(uri, answer["ContentLength"], tag_in(answer))
            require_own_key(access.client(), bucket, key, info.tag)
            return info

        return self._send(uri, "s3:GetObject", attempt, "head")

    def list(self, prefix_uri: str) -> Iterator[ObjectInfo]:
        """See `Store.list`. Asks for all pages first: not every compatible store lists in the order of bytes."""
        bucket, prefix = split_s3_uri(prefix_uri)
        found: list[ObjectInfo] = []
        position: dict[str, str] = {}
        while True:

            def attempt(access: S3Access, position: dict[str, str] = position) -> Any:
                self._counts.add("list")
                return access.client().list_objects_v2(Bucket=bucket, Prefix=prefix, **position)

            page = self._requests.send(prefix_uri, "s3:ListBucket", lambda: self._access_of(bucket, prefix), attempt)
            for each in page.get("Contents", ()):
                if each["Key"] == prefix and prefix.endswith("/") and not each["Size"]:
                    continue  # the marker of the folder itself, as consoles make it
                found.append(ObjectInfo(f"{SCHEME}{bucket}/{each['Key']}", each["Size"], unquoted(each["ETag"])))
            if not page.get("IsTruncated"):
                break
            position = {"ContinuationToken": page["NextContinuationToken"]}
        yield from sorted(found, key=lambda info: info.uri.encode())

    # writing

    def put(self, uri: str, data: Data) -> ObjectInfo:
        """See `Store.put`."""
        if len(memoryview(data).cast("B")) > LARGEST_SINGLE_PUT_BYTES:
            with self.open_sink(uri) as sink:
                sink.write(data)
            return sink.info
        split_output_uri(uri)
        body = bytes(data)

        def attempt(access: S3Access, bucket: str, key: str) -> ObjectInfo:
            answer = access.client().put_object(Bucket=bucket, Key=key, Body=body)
            return ObjectInfo(uri, len(body), tag_in(answer))

        info = self._send(uri, "s3:PutObject", attempt, "put")
        self._counts.add("bytes_written", len(body))
        return info

    def put_if_absent(self, uri: str, data: Data) -> ObjectInfo | None:
        """See `Store.put_if_absent`."""
        return self._put_if(uri, data, {"IfNoneMatch": "*"})

    def put_if_match(self, uri: str, data: Data, tag: str) -> ObjectInfo | None:
        """See `Store.put_if_match`. The tag goes without quotes: S3 takes both, older Ceph only this."""
        return self._put_if(uri, data, {"IfMatch": tag})

    def _put_if(self, uri: str, data: Data, condition: dict[str, str]) -> ObjectInfo | None:
        """Write under a condition. After a try whose reply was lost, the object that is there may be this very one."""
        split_output_uri(uri)
        body = bytes(data)
        unsure = False

        def attempt(access: S3Access, bucket: str, key: str) -> ObjectInfo | None:
            nonlocal unsure
            client = access.client()
            try:
                answer = client.put_object(Bucket=bucket, Key=key, Body=body, **condition)
                return ObjectInfo(uri, len(body), tag_in(answer))
            except RequestFailed:
                unsure = True
                raise
            except Exception as error:
                failure = failure_of_boto(error)
                if failure.fate is not Fate.PRECONDITION and failure.code != "NoSuchKey":
                    unsure = unsure or failure.fate is Fate.TRANSIENT
                    raise
            if unsure:
                self._count("get")
                there = read_by_boto(client, bucket, key, Asked())
                if there.data == body:
                    return ObjectInfo(uri, len(body), there.tag)
            return None

        info = self._send(uri, "s3:PutObject", attempt, "put")
        if info is not None:
            self._counts.add("bytes_written", len(body))
        return info

    def delete(self, uri: str) -> None:
        """See `Store.delete`."""
        split_output_uri(uri)

        def attempt(access: S3Access, bucket: str, key: str) -> None:
            access.client().delete_object(Bucket=bucket, Key=key)

        with contextlib.suppress(NotFound):
            self._send(uri, "s3:DeleteObject", attempt, "delete")

    def open_sink(self, uri: str) -> AbstractContextManager[Sink]:
        """See `Store.open_sink`."""
        return S3Sink(S3Uploads(self._requests, self._access_of, uri), self.put)

    def abort_uploads(self, prefix_uri: str) -> int:
        """See `Store.abort_uploads`. An identity that may not list uploads leaves them to a lifecycle rule."""
        folder_uri = prefix_uri.rstrip("/") + "/"
        bucket, prefix = split_s3_uri(folder_uri)
        position: dict[str, str] = {}
        count = 0
        while True:

            def attempt(access: S3Access, position: dict[str, str] = position) -> Any:
                self._counts.add("list")
                return access.client().list_multipart_uploads(Bucket=bucket, Prefix=prefix, **position)

            try:
                page = self._requests.send(
                    folder_uri, "s3:ListBucketMultipartUploads", lambda: self._access_of(bucket, prefix), attempt
                )
            except AccessDenied as error:
                level = logging.DEBUG if self._sweep_refused else logging.WARNING
                self._sweep_refused = True
                _log.log(level, "uploads that killed runs left behind are left to a lifecycle rule: %s", error)
                return count
            for each in page.get("Uploads", ()):
                if each["Key"].startswith(prefix):
                    S3Uploads(self._requests, self._access_of, f"{SCHEME}{bucket}/{each['Key']}").abort(
                        each["UploadId"]
                    )
                    count += 1
            if not page.get("IsTruncated"):
                return count
            position = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
