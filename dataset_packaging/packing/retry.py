"""Rejected rows of one shard, tried again: fetched and verified, nothing written. Runs in a task."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.layout import GenerationLayout
from dataset_packaging.core.shard_plan import PlannedShard
from dataset_packaging.errors import StoreError
from dataset_packaging.imaging.verify import Verdict
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.decoder import WantedImage, checksum_mismatch
from dataset_packaging.packing.fetch import reject_reason
from dataset_packaging.packing.isolate import IsolatedVerifier
from dataset_packaging.packing.planned_rows import WANTED_COLUMNS, read_planned_rows, wanted_images

_FETCHES = 4
"""Objects in memory at once: there are few of these rows, and any of them may be of the largest size."""


@dataclass(frozen=True, slots=True)
class RetryTask:
    """Rows of one shard to try again, by position."""

    dataset: DatasetConfig
    generation: GenerationLayout
    shard: PlannedShard
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RetryOutcome:
    """What became of them.

    Attributes:
        succeeded: (position, image_key, s3_image_path, width, height) of those that are whole now.
        failed: (position, reason, detail) of the others.
    """

    succeeded: tuple[tuple[int, str, str, int, int], ...]
    failed: tuple[tuple[int, str, str], ...]


def retry_rows(task: RetryTask) -> RetryOutcome:
    """Fetches the rows and verifies them in a process of its own: some of them may be rejected for killing one."""
    stores = shared_stores(StorageConfig.of(task.dataset))
    columns = ["shard", "position", "image_key", *WANTED_COLUMNS]
    rows = read_planned_rows(stores, task.generation, task.shard, columns)
    rows = rows.filter(pc.is_in(rows["position"], value_set=pa.array(task.positions, pa.int32())))
    succeeded: list[tuple[int, str, str, int, int]] = []
    failed: list[tuple[int, str, str]] = []
    wanted = wanted_images(rows)
    with IsolatedVerifier.of(task.dataset) as verifier, ThreadPoolExecutor(_FETCHES, "retry") as pool:
        verdicts = pool.map(lambda image: _judge(stores, task.dataset, verifier, image), wanted)
        names = zip(rows["position"].to_pylist(), rows["image_key"].to_pylist(), wanted, strict=True)
        for (position, key, image), verdict in zip(names, verdicts, strict=True):
            if verdict.reason is None:
                succeeded.append((position, key, image.uri, verdict.width_px, verdict.height_px))
            else:
                failed.append((position, verdict.reason, verdict.detail))
    return RetryOutcome(tuple(succeeded), tuple(failed))


def _judge(stores: Stores, dataset: DatasetConfig, verifier: IsolatedVerifier, image: WantedImage) -> Verdict:
    try:
        data = stores.get(image.uri, dataset.images.max_bytes)
    except StoreError as error:
        return Verdict(*reject_reason(error))
    mismatch = checksum_mismatch(data, hashlib.sha256(data).hexdigest(), image)
    return Verdict("checksum_mismatch", mismatch) if mismatch else verifier.verify(data)
