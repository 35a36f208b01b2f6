"""The requests of one multipart upload. Each retries by itself."""

from collections.abc import Callable
from typing import Any, TypeVar

from dataset_packaging.errors import NotFound, TransientStoreError
from dataset_packaging.io.s3_errors import Fate, failure_of_boto
from dataset_packaging.io.s3_keys import split_output_uri
from dataset_packaging.io.s3_reads import tag_in
from dataset_packaging.io.s3_requests import S3Requests
from dataset_packaging.io.s3_session import BotoClient, S3Access
from dataset_packaging.io.store import ObjectInfo

T = TypeVar("T")

Part = dict[str, Any]  # its number, ETag and checksums, as S3 wants them back


class S3Uploads:
    """Multipart uploads to one object."""

    def __init__(self, requests: S3Requests, access_of: Callable[[str, str], S3Access], uri: str) -> None:
        self.uri = uri
        self._requests = requests
        self._access_of = access_of
        self._bucket, self._key = split_output_uri(uri)

    def begin(self) -> str:
        """Open an upload; its id."""
        return self._send("s3:PutObject", lambda client, at: str(client.create_multipart_upload(**at)["UploadId"]))

    def send_part(self, upload_id: str, number: int, data: bytes) -> Part:
        """Send part `number`, from 1. Safe to repeat."""

        def attempt(client: BotoClient, at: dict[str, str]) -> Part:
            answer = client.upload_part(**at, UploadId=upload_id, PartNumber=number, Body=data)
            checksums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
            tag_in(answer)
            return {"PartNumber": number, "ETag": answer["ETag"], **checksums}

        part = self._send("s3:PutObject", attempt)
        self._requests.counts.add("bytes_written", len(data))
        return part

    def complete(self, upload_id: str, parts: list[Part], size_bytes: int) -> ObjectInfo:
        """Publish the object, and look at it. After a lost reply the upload may be gone because it was completed."""
        unsure = False

        def attempt(client: BotoClient, at: dict[str, str]) -> None:
            nonlocal unsure
            try:
                client.complete_multipart_upload(**at, UploadId=upload_id, MultipartUpload={"Parts": parts})
            except Exception as error:
                failure = failure_of_boto(error)
                if unsure and failure.code == "NoSuchUpload":
                    return
                unsure = unsure or failure.fate is Fate.TRANSIENT
                raise

        self._send("s3:PutObject", attempt)
        info = self._send("s3:GetObject", self._look, count="head")
        if info.size_bytes != size_bytes or not info.tag.endswith(f"-{len(parts)}"):
            raise TransientStoreError(
                self.uri, f"{size_bytes} bytes were uploaded, and another object is there: {info}"
            )
        return info

    def _look(self, client: BotoClient, at: dict[str, str]) -> ObjectInfo:
        there = client.head_object(**at)
        return ObjectInfo(self.uri, there["ContentLength"], tag_in(there))

    def abort(self, upload_id: str) -> None:
        """Throw the parts of an upload away; one that is gone is fine."""

        def attempt(client: BotoClient, at: dict[str, str]) -> None:
            try:
                client.abort_multipart_upload(**at, UploadId=upload_id)
            except Exception as error:
                if failure_of_boto(error).fate is not Fate.NOT_FOUND:
                    raise

        self._send("s3:AbortMultipartUpload", attempt, count="delete")

    def _send(self, action: str, attempt: Callable[[BotoClient, dict[str, str]], T], count: str = "put") -> T:
        def counted(access: S3Access) -> T:
            self._requests.counts.add(count)
            return attempt(access.client(), {"Bucket": self._bucket, "Key": self._key})

        try:
            return self._requests.send(self.uri, action, lambda: self._access_of(self._bucket, self._key), counted)
        except NotFound as error:
            raise TransientStoreError(self.uri, f"the upload was aborted by another: {error.detail}") from error
