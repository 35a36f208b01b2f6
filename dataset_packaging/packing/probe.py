"""Sizes of images that the manifest does not tell: from the first bytes of each object, in the task of its block."""

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataset_packaging.config import DatasetConfig
from dataset_packaging.errors import NotFound, ObjectDamaged, PermanentStoreError, TransientStoreError
from dataset_packaging.imaging.verify import probe_header
from dataset_packaging.io.parquet import read_table
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.fetch import image_policy, reject_reason
from dataset_packaging.packing.index_schema import PENDING
from dataset_packaging.packing.isolate import IsolatedVerifier

PROBE_BYTES = 64 << 10
"""The header of nearly every image, and the whole of many small ones."""

PROBE_THREADS = 32
"""Requests in flight per task: with 80 ms of latency 32 were 1.7 times as fast as 4."""


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A row without a size: its number in the part, its object, the hash of its key and path."""

    row: int
    uri: str
    place_hash: int


@dataclass(frozen=True, slots=True)
class ProbedSize:
    """Pixels as shown, and the object's length where it is known, else -1."""

    width_px: int
    height_px: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """What became of the rows, by row number; each row stands in exactly one of the three."""

    sizes: dict[int, ProbedSize] = field(default_factory=dict)
    rejected: dict[int, tuple[str, str]] = field(default_factory=dict)
    pending: dict[int, str] = field(default_factory=dict)
    probed: int = 0


@dataclass(frozen=True, slots=True)
class ProbeCache:
    """What the generation before found out about the rows of the same block.

    Attributes:
        hashes: of key and path, sorted.
        sizes: of shape (n, 2): width and height in pixels.
        rejected: reason and detail by hash, of permanent rejects that nobody asked to try again.
    """

    hashes: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.int32]
    rejected: dict[int, tuple[str, str]]

    @classmethod
    def read(
        cls, stores: Stores, parts: Iterable[tuple[str, str | None]], retry_reasons: frozenset[str]
    ) -> "ProbeCache":
        """Reads the keys and rejects of earlier parts; what is missing or damaged is found out once more."""
        tables: list[pa.Table] = []
        rejected: dict[int, tuple[str, str]] = {}
        again = retry_reasons | {PENDING}
        for keys_uri, rejects_uri in parts:
            with contextlib.suppress(NotFound, ObjectDamaged):
                tables.append(read_table(stores, keys_uri, ["place_hash", "width", "height"]))
            with contextlib.suppress(NotFound, ObjectDamaged):
                if rejects_uri is not None:
                    table = read_table(stores, rejects_uri, ["place_hash", "reason", "detail"])
                    table = table.filter(pc.is_valid(table["place_hash"]))
                    for row in table.to_pylist():
                        if row["reason"] not in again:
                            rejected[row["place_hash"]] = (row["reason"], row["detail"])
        if not tables:
            return cls(np.zeros(0, np.uint64), np.zeros((0, 2), np.int32), rejected)
        table = pa.concat_tables(tables)
        hashes = table["place_hash"].to_numpy()
        order = np.argsort(hashes, kind="stable")
        sizes = np.stack([table["width"].to_numpy(), table["height"].to_numpy()], axis=1)
        return cls(hashes[order], sizes[order], rejected)


def probe_sizes(stores: Stores, dataset: DatasetConfig, rows: list[PendingRow], cache: ProbeCache) -> ProbeResults:
    """Reads the size of each row's object: a range read of its first bytes, more only where those do not tell.

    An object that cannot be an image is verified whole, in a process of its own, and rejected here; it never gets a
    bucket. A transient failure leaves its row pending (or rejects it as `fetch_failed`, as `images.on_fetch_failure`
    says).
    """
    results = ProbeResults()
    ask: list[PendingRow] = []
    for row in rows:
        known = cache.rejected.get(row.place_hash)
        if known is not None:
            results.rejected[row.row] = known
        elif dataset.images.dimensions == "manifest":
            results.rejected[row.row] = ("bad_row", "no width and height, and images.dimensions is `manifest`")
        else:
            ask.append(row)
    with IsolatedVerifier.of(dataset) as verifier, ThreadPoolExecutor(PROBE_THREADS, "probe") as pool:
        for row, answer in zip(ask, pool.map(lambda row: _probe(stores, row.uri, dataset, verifier), ask), strict=True):
            if isinstance(answer, ProbedSize):
                results.sizes[row.row] = answer
            elif answer[0] == "fetch_failed" and dataset.images.on_fetch_failure == "fail":
                results.pending[row.row] = answer[1]
            else:
                results.rejected[row.row] = answer
    return ProbeResults(results.sizes, results.rejected, results.pending, len(ask))


def _probe(
    stores: Stores, uri: str, dataset: DatasetConfig, verifier: IsolatedVerifier
) -> ProbedSize | tuple[str, str]:
    try:
        head = stores.get_range(uri, 0, PROBE_BYTES)
        whole = len(head) < PROBE_BYTES
        size = probe_header(head, image_policy(dataset))
        if size is not None:
            return ProbedSize(size.width_px, size.height_px, len(head) if whole else -1)
        data = head if whole else stores.get(uri, dataset.images.max_bytes)
    except (PermanentStoreError, TransientStoreError) as error:
        return reject_reason(error)
    verdict = verifier.verify(data)
    if verdict.reason is not None:
        return verdict.reason, verdict.detail
    return ProbedSize(verdict.width_px, verdict.height_px, len(data))
