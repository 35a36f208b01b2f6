"""Rejected rows of one shard, tried again: fetched and verified, nothing written. Runs in a task."""

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.layout import GenerationLayout
from dataset_packaging.core.shard_plan import PlannedShard
from dataset_packaging.io.store import StorageConfig, shared_stores
from dataset_packaging.packing.fetch import ImageChecker, image_policy
from dataset_packaging.packing.pack_shard import read_planned_rows, wanted_images


@dataclass(frozen=True, slots=True)
class RetryTask:
    """Rows of one shard to try again, by position."""

    dataset: DatasetConfig
    generation: GenerationLayout
    shard: PlannedShard
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RetryOutcome:
    """What became of them: (key, path, width, height) of those that are whole now, the others by reason."""

    succeeded: tuple[tuple[str, str, int, int], ...]
    failed: dict[str, int]


def retry_rows(task: RetryTask) -> RetryOutcome:
    """Fetches and verifies the rows. Reads only."""
    stores = shared_stores(StorageConfig.of(task.dataset))
    columns = [
        "shard",
        "position",
        "image_key",
        "s3_image_path",
        "estimated_bytes",
        "expected_bytes",
        "expected_sha256",
        "expected_md5",
    ]
    rows = read_planned_rows(stores, task.generation, task.shard, columns)
    rows = rows.filter(pc.is_in(rows["position"], value_set=pa.array(task.positions, pa.int32())))
    checker = ImageChecker(stores, image_policy(task.dataset), task.dataset.images.decode_timeout_s)
    succeeded: list[tuple[str, str, int, int]] = []
    failed: Counter[str] = Counter()
    names = zip(rows["image_key"].to_pylist(), rows["s3_image_path"].to_pylist(), strict=True)
    for (key, path), checked in zip(names, checker.check(wanted_images(rows)), strict=True):
        verdict = checked.verdict
        if verdict.reason is None:
            succeeded.append((key, path, verdict.width_px, verdict.height_px))
        else:
            failed[verdict.reason] += 1
    return RetryOutcome(tuple(succeeded), dict(failed))
