"""Which files the sidecars take values from, and in which version: part of their fingerprints. Reads only."""

from dataclasses import dataclass, field

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import shard_name
from dataset_packaging.core.shard_plan import combined_fingerprint
from dataset_packaging.errors import PermanentStoreError
from dataset_packaging.io.jsonl import SourceFile, find_files
from dataset_packaging.io.store import Stores

ABSENT = "absent"
"""Stands for the version of an aligned source shard that is not there."""


@dataclass(frozen=True, slots=True)
class SourceVersions:
    """What one sidecar depends on beside its shard.

    Attributes:
        merges: the version of each merge source, as far as the shard depends on it.
        resized: the version of the shard in each resized set that crop fields follow.
    """

    merges: tuple[str, ...]
    resized: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyedFiles:
    """The files of a keyed source and the fingerprint of all; `problem` says why there are none."""

    files: tuple[SourceFile, ...]
    fingerprint: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SidecarSources:
    """The sources of a dataset's sidecars; what is listed is kept.

    Attributes:
        stores: of the dataset.
        dataset: its configuration.
    """

    stores: Stores
    dataset: DatasetConfig
    _keyed: dict[int, KeyedFiles] = field(default_factory=dict)
    _aligned: dict[tuple[str, Bucket], dict[str, str]] = field(default_factory=dict)
    _empty: dict[str, bool] = field(default_factory=dict)

    def keyed(self, number: int) -> KeyedFiles:
        """Return the files of keyed merge `number`."""
        if number not in self._keyed:
            self._keyed[number] = self._read_keyed(number)
        return self._keyed[number]

    def versions(self, bucket: Bucket, shard: int) -> SourceVersions:
        """Return what the sidecar of one shard depends on."""
        merges = tuple(
            self._aligned_version(merge.source_prefix or "", bucket, shard)
            if merge.source is None
            else self.keyed(number).fingerprint
            for number, merge in enumerate(self.dataset.sidecar.merge)
        )
        crops = self.dataset.sidecar.crops
        prefixes = [entry.prefix for entry in crops.resized] if crops else []
        return SourceVersions(merges, tuple(self._aligned_version(prefix, bucket, shard) for prefix in prefixes))

    def problem(self) -> str:
        """Return why a source cannot be used, or nothing."""
        for number, merge in enumerate(self.dataset.sidecar.merge):
            if merge.source is not None and (problem := self.keyed(number).problem):
                return problem
            if merge.source_prefix is not None and self._is_empty(merge.source_prefix):
                return f"sidecar.merge[{number}]: source_prefix: no .parquet file is found below {merge.source_prefix}"
        crops = self.dataset.sidecar.crops
        for number, entry in enumerate(crops.resized if crops else ()):
            if self._is_empty(entry.prefix):
                return f"sidecar.crops.resized[{number}]: no .parquet file is found below {entry.prefix}"
        return ""

    def _is_empty(self, prefix: str) -> bool:
        if prefix not in self._empty:
            found = (info for info in self.stores.list(f"{prefix}/") if info.uri.endswith(".parquet"))
            self._empty[prefix] = next(found, None) is None
        return self._empty[prefix]

    def _read_keyed(self, number: int) -> KeyedFiles:
        files: list[SourceFile] = []
        for pattern in self.dataset.sidecar.merge[number].source or ():
            try:
                found = find_files(self.stores, pattern)
            except PermanentStoreError as error:
                return KeyedFiles((), "", f"sidecar.merge[{number}]: source cannot be read: {error}")
            if not found:
                return KeyedFiles((), "", f"sidecar.merge[{number}]: source: nothing is found at {pattern}")
            files += found
        unique = tuple({file.uri: file for file in files}.values())
        return KeyedFiles(unique, combined_fingerprint(*(f"{f.uri}\0{f.size_bytes}\0{f.tag}" for f in unique)))

    def _aligned_version(self, prefix: str, bucket: Bucket, shard: int) -> str:
        if (prefix, bucket) not in self._aligned:
            folder = f"{prefix}/{bucket.key}/"
            self._aligned[prefix, bucket] = {
                info.uri.removeprefix(folder): combined_fingerprint(info.uri, str(info.size_bytes), info.tag)
                for info in self.stores.list(folder)
            }
        return self._aligned[prefix, bucket].get(f"{shard_name(shard)}.parquet", ABSENT)
