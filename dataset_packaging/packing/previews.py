"""What a person sees of a bucket: a sheet of thumbnails from its shards, a few rows of its sidecars.

For the eye only: whatever cannot be shown is left out, and nothing depends on it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import Layout
from dataset_packaging.core.schema import IMAGE_COLUMN, KEY_COLUMN
from dataset_packaging.errors import PackagingError, PermanentStoreError
from dataset_packaging.io.parquet import open_parquet, read_batches
from dataset_packaging.io.store import StorageConfig, Stores, shared_stores
from dataset_packaging.packing.contact_sheet import TILE_COUNT_MAX, draw_contact_sheet
from dataset_packaging.packing.run import Run

SHEET_QUALITY = 60
"""JPEG quality of a sheet: about 2 kB for a picture, since sheets stand in event logs as well."""

PREVIEW_ROWS = 5
PREVIEW_CHARACTERS = 120

_READ_AHEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PreviewTask:
    """One bucket to look at: the numbers of its first and last shard, as far as they hold pictures."""

    dataset: DatasetConfig
    bucket: Bucket
    shards: tuple[int, ...]


def draw_contact_sheets(run: Run, keys: Sequence[str], changed: Collection[str]) -> dict[str, bytes]:
    """Draw the sheets of the buckets that changed or have none, store them beside the work files, and read all.

    Args:
        run: The run.
        keys: Buckets whose sheets are wanted.
        changed: Buckets whose shards were written since their sheets were drawn.

    Returns:
        JPEG bytes by bucket key; buckets without pictures are left out, and all that could not be drawn.
    """
    tasks = _tasks(run, keys)
    there = {info.uri for info in run.stores.list(run.layout.contact_sheets_prefix)}
    due = [task for task in tasks if task.bucket.key in changed or _sheet_uri(run, task.bucket) not in there]
    for _ in run.executor.map(draw_bucket_sheet, due) if due else ():
        pass
    sheets: dict[str, bytes] = {}
    for task in tasks:
        try:
            sheets[task.bucket.key] = bytes(run.stores.get(_sheet_uri(run, task.bucket)))
        except PackagingError:
            continue
    return sheets


def read_sidecar_previews(run: Run, keys: Sequence[str]) -> dict[str, list[dict[str, str]]]:
    """Read the first rows of each bucket's sidecars, as short texts by column; empty buckets are left out."""
    tasks = _tasks(run, keys)
    results = list(run.executor.map(read_bucket_preview, tasks)) if tasks else []
    return {result.item.bucket.key: result.value for result in results if result.value}


def draw_bucket_sheet(task: PreviewTask) -> None:
    """Draw and store the sheet of one bucket; runs in a task. One picture at a time is held."""
    stores, layout = _open(task.dataset)
    each = TILE_COUNT_MAX // max(1, len(task.shards))
    sheet = draw_contact_sheet(_pictures(stores, layout, task, each), quality=SHEET_QUALITY)
    stores.put(layout.contact_sheet_uri(task.bucket), sheet)


def read_bucket_preview(task: PreviewTask) -> list[dict[str, str]]:
    """Read the first rows of one bucket's sidecars; runs in a task. Nulls are left out."""
    stores, layout = _open(task.dataset)
    uri = layout.sidecar_uri(task.bucket, task.shards[0])
    try:
        file = open_parquet(stores, uri, buffer_bytes=_READ_AHEAD_BYTES)
        batch = next(read_batches(file, uri, batch_rows=PREVIEW_ROWS), None)
    except PermanentStoreError:
        return []
    rows = batch.to_pylist() if batch is not None else []
    return [{name: _short(value) for name, value in row.items() if value is not None} for row in rows]


def _pictures(stores: Stores, layout: Layout, task: PreviewTask, each: int) -> Iterator[tuple[bytes, str]]:
    for number in task.shards:
        uri = layout.shard_uri(task.bucket, number)
        try:
            file = open_parquet(stores, uri, buffer_bytes=_READ_AHEAD_BYTES)
            for batch in islice(read_batches(file, uri, [IMAGE_COLUMN, KEY_COLUMN], batch_rows=1), each):
                yield batch.column(IMAGE_COLUMN)[0].as_py(), batch.column(KEY_COLUMN)[0].as_py().rpartition("/")[2]
        except PermanentStoreError:
            continue


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= PREVIEW_CHARACTERS else text[: PREVIEW_CHARACTERS - 1] + "…"


def _open(dataset: DatasetConfig) -> tuple[Stores, Layout]:
    layout = Layout(dataset.output_prefix, dataset.sidecar_prefix, dataset.work_prefix)
    return shared_stores(StorageConfig.of(dataset)), layout


def _sheet_uri(run: Run, bucket: Bucket) -> str:
    return run.layout.contact_sheet_uri(bucket)


def _tasks(run: Run, keys: Sequence[str]) -> list[PreviewTask]:
    """Return a task for each bucket whose first or last shard holds pictures."""
    current = run.require_current()
    chosen = [
        shard
        for key in keys
        for planned in [current.of_bucket(Bucket.parse(key))]
        for shard in dict.fromkeys([*planned[:1], *planned[-1:]])
    ]
    filled: dict[Bucket, list[int]] = {}
    for shard, receipt in zip(chosen, run.status.read_receipts(chosen), strict=True):
        if receipt is not None and receipt.packed_rows:
            filled.setdefault(shard.bucket, []).append(shard.number)
    return [PreviewTask(run.dataset, bucket, tuple(numbers)) for bucket, numbers in filled.items()]
