"""The state of a dataset's manifest files, as one digest."""

import hashlib
from dataclasses import dataclass

from dataset_packaging.config import DatasetConfig
from dataset_packaging.io.jsonl import expand_sources
from dataset_packaging.io.store import StorageConfig, Stores


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """Files as they were listed; `digest` changes when a file is added, removed or written again."""

    digest: str
    file_count: int
    size_bytes: int


def read_source_version(dataset: DatasetConfig) -> SourceVersion:
    """List the manifest files; reads no content.

    Raises:
        ManifestError: a pattern names nothing.
        StoreError: the store cannot be listed.
    """
    files = expand_sources(Stores(StorageConfig.of(dataset)), dataset.manifest)
    state = hashlib.sha256()
    for file in files:
        state.update(f"{file.uri}\0{file.size_bytes}\0{file.tag}\n".encode("utf-8", "surrogatepass"))
    return SourceVersion(state.hexdigest()[:32], len(files), sum(file.size_bytes for file in files))
