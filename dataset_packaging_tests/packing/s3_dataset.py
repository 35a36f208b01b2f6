"""Datasets of real photographs on a real S3 server, and what stands there, seen past the code under test."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from dataset_packaging_tests.packing.photo_dataset import PhotoDataset

_PUTS_AT_ONCE = 8


class Bucket:
    """A bucket of a server."""

    def __init__(self, name: str, client: Any) -> None:
        self.name = name
        self.client = client

    def keys(self, prefix: str) -> list[str]:
        """Returns the keys below a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def read(self, key: str) -> bytes:
        """Returns an object's bytes."""
        body: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return body

    def contents(self, output: str) -> dict[str, str]:
        """Returns the hash of everything that readers see, the reject lists and the ledger."""
        parts = ("main/", "side/", "work/rejects/", "work/ledger")
        return {
            key.removeprefix(f"{output}/"): hashlib.sha256(self.read(key)).hexdigest()
            for key in self.keys(f"{output}/")
            if key.removeprefix(f"{output}/").startswith(parts)
        }

    def open_uploads(self) -> list[str]:
        """Returns the keys of multipart uploads that are neither completed nor aborted."""
        return [upload["Key"] for upload in self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())]


def uploaded(local: PhotoDataset, bucket: Bucket, name: str) -> PhotoDataset:
    """Puts images and manifest on S3 and returns the dataset that reads them there and writes to `{name}/clean`."""
    local.config()
    images = local.root / local.images

    def put(key: str, data: bytes) -> None:
        bucket.client.put_object(Bucket=bucket.name, Key=f"{name}/{key}", Body=data)

    paths = [path for path in images.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(_PUTS_AT_ONCE) as pool:
        list(pool.map(lambda path: put(f"images/{path.relative_to(images).as_posix()}", path.read_bytes()), paths))
    put("manifest.jsonl", (local.root / local.manifest).read_bytes())
    prefix = f"s3://{bucket.name}/{name}"
    return replace(local, output=f"{prefix}/clean", images=f"{prefix}/images", manifest=f"{prefix}/manifest.jsonl")


def output_key(dataset: PhotoDataset) -> str:
    """Returns the key prefix of a dataset's output."""
    return dataset.output.split("/", 3)[3]
