"""One try to read an object, by each of the two clients. Neither takes a short body for the whole."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store as ObjectClient

from dataset_packaging.io.s3_errors import Failure, Fate, RequestFailed, failure_of_boto, failure_of_obstore
from dataset_packaging.io.s3_keys import folded_key
from dataset_packaging.io.s3_session import BotoClient, is_aws

if TYPE_CHECKING:
    from obstore import GetOptions

Span = tuple[int, int]  # first byte, and the one after the last
LISTED_FOR_ONE = 10  # the first one suffices where listings are in the order of bytes


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes of an object, with the tag and size of the whole object that they are of."""

    data: memoryview
    tag: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be read.

    Attributes:
        span: Which bytes; None is all.
        tail_bytes: The last so many bytes instead, or all of a smaller object.
        tag: The object must have it.
        max_bytes: An object that is larger is not read.
    """

    span: Span | None = None
    tail_bytes: int | None = None
    tag: str | None = None
    max_bytes: int | None = None

    @property
    def is_part(self) -> bool:
        """Whether the request names a range, which an object may not have."""
        return self.span is not None or self.tail_bytes is not None


NOTHING = Body(memoryview(b""), "", -1)  # of a range that the object does not have: S3 does not say how long it is


def unquoted(etag: str) -> str:
    """Take the quotes off an ETag. Pure."""
    return etag.strip('"')


def tag_in(answer: Mapping[str, Any]) -> str:
    """Take the ETag of an answer of boto3. Pure.

    Raises:
        RequestFailed: there is none, so that it is not S3 that answers: a portal, say, with a page of its own.
    """
    etag = answer.get("ETag")
    if not etag:
        raise RequestFailed(Failure(Fate.TRANSIENT, "an answer without an ETag, which is not S3's"))
    return unquoted(etag)


def _require_whole(data: memoryview, announced_bytes: int) -> None:
    if len(data) != announced_bytes:
        raise RequestFailed(Failure(Fate.TRANSIENT, f"{len(data)} bytes came of {announced_bytes} announced"))


def _require_small(size_bytes: int, asked: Asked) -> None:
    if asked.max_bytes is not None and size_bytes > asked.max_bytes:
        raise RequestFailed(Failure(Fate.TOO_LARGE, f"{size_bytes} bytes, {asked.max_bytes} are allowed"))


def read_by_obstore(client: ObjectClient, key: str, asked: Asked) -> Body:
    """Read an object, or the part of a range that exists.

    Raises:
        RequestFailed: the try failed.
    """
    options: GetOptions = {}
    if asked.span is not None:
        options["range"] = asked.span
    elif asked.tail_bytes is not None:
        options["range"] = {"suffix": asked.tail_bytes}
    if asked.tag is not None:
        options["if_match"] = f'"{asked.tag}"'
    try:
        result = obstore.get(client, key, options=options)
        meta = result.meta
        first, end = result.range
        _require_small(meta["size"], asked)
        data = memoryview(result.bytes())
    except (BaseError, FileNotFoundError) as error:
        failure = failure_of_obstore(error)
        if failure.fate is Fate.OUT_OF_RANGE and asked.is_part:
            return NOTHING
        raise RequestFailed(failure) from error
    _require_whole(data, end - first)
    return Body(data, tag_in({"ETag": meta["e_tag"]}), meta["size"])


def read_by_boto(client: BotoClient, bucket: str, key: str, asked: Asked) -> Body:
    """Do what `read_by_obstore` does, for any key and with S3's error codes.

    Raises:
        RequestFailed: a short body.
        Exception: whatever boto3 raises.
    """
    request = {"Bucket": bucket, "Key": key}
    if asked.span is not None:
        request["Range"] = f"bytes={asked.span[0]}-{asked.span[1] - 1}"
    elif asked.tail_bytes is not None:
        request["Range"] = f"bytes=-{asked.tail_bytes}"
    if asked.tag is not None:
        request["IfMatch"] = f'"{asked.tag}"'
    try:
        answer = client.get_object(**request)
    except Exception as error:
        if asked.is_part and failure_of_boto(error).fate is Fate.OUT_OF_RANGE:
            return NOTHING
        raise
    tag = tag_in(answer)
    with contextlib.closing(answer["Body"]) as stream:
        size_bytes = int(answer.get("ContentRange", f"/{answer['ContentLength']}").rpartition("/")[2])
        _require_small(size_bytes, asked)
        data = memoryview(stream.read())
    _require_whole(data, answer["ContentLength"])
    return Body(data, tag, size_bytes)


def require_present(client: BotoClient, bucket: str, key: str) -> bool:
    """Find out whether an object that was refused is there at all, by one LIST; False where that may not be asked.

    S3 answers 403 instead of 404 to an identity whose ListBucket is missing or, as in least-privilege policies and in
    S3 Access Grants, bound to prefixes.

    Raises:
        RequestFailed: the identity may list, and there is no object of this key.
    """
    try:
        page = client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=LISTED_FOR_ONE)
    except Exception as error:
        failure_of_boto(error)
        return False
    if not page.get("IsTruncated") and all(each["Key"] != key for each in page.get("Contents", ())):
        raise RequestFailed(Failure(Fate.NOT_FOUND, "403 to this request, and a listing does not have the key"))
    return True


def require_own_key(client: BotoClient, bucket: str, key: str, tag: str) -> None:
    """Refuse an odd key that a compatible store takes for another one: then the folded key names the same object.

    Real S3 keeps every key as it is, and plain keys are safe everywhere: neither costs a request. An identity that may
    not look at the folded key is taken at its word.

    Args:
        tag: Of the object that the store answered with.

    Raises:
        RequestFailed: the store folds this key.
    """
    folded = folded_key(key)
    if folded in ("", key) or is_aws(client.meta.endpoint_url):
        return
    try:
        other = client.head_object(Bucket=bucket, Key=folded)
    except Exception as error:
        if failure_of_boto(error).fate in (Fate.DENIED, Fate.NOT_FOUND, Fate.PERMANENT):
            return
        raise
    if tag_in(other) == tag:
        raise RequestFailed(Failure(Fate.PERMANENT, f"this store takes the key for {folded!r}"))
