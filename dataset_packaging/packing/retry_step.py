"""Rejected rows, tried again: those that are whole now wait for a place, the others get their reason of today."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.receipts import ShardReceipt, encode_receipt
from dataset_packaging.io.parquet import write_table
from dataset_packaging.packing.executor import map_surviving
from dataset_packaging.packing.generation import Published
from dataset_packaging.packing.index_schema import RELOCATIONS_SCHEMA
from dataset_packaging.packing.manifest_step import read_retries
from dataset_packaging.packing.reports import RetryReport
from dataset_packaging.packing.retry import RetryOutcome, RetryTask, retry_rows
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import BucketStatus

_NO_NEWS = frozenset({"fetch_failed"})
"""A new attempt that ends so says nothing about the row: its reason stays."""


def retry_rejected(
    run: Run, current: Published, statuses: Sequence[BucketStatus], reasons: frozenset[str]
) -> RetryReport:
    """Fetches and verifies rejected rows anew; those that succeed get a place in the next generation.

    Shards stay as they are. Of a row that fails for another reason than before, the receipt is written anew. The list
    of successful rows is written once, at the end: repeating all of it is safe.
    """
    waiting = read_retries(run, current)
    due = _due(run, current, statuses, reasons, waiting)
    if not due:
        return RetryReport(0, 0, {})
    receipt_of = {_place(task): receipt for task, receipt in due}
    failed: Counter[str] = Counter()
    repaired: list[dict[str, object]] = []
    for result in map_surviving(run.executor, retry_rows, [task for task, _ in due]):
        outcome = result.require_value()
        failed.update(reason for _, reason, _ in outcome.failed)
        repaired += [
            {
                "bucket": BUCKETS.index(result.item.shard.bucket),
                "shard": result.item.shard.number,
                "position": position,
                "image_key": key,
                "s3_image_path": path,
                "width": width,
                "height": height,
            }
            for position, key, path, width, height in outcome.succeeded
        ]
        _correct_reasons(run, result.item, receipt_of[_place(result.item)], outcome)
    if repaired:
        table = pa.concat_tables([waiting, pa.Table.from_pylist(repaired, schema=RELOCATIONS_SCHEMA)])
        order = [(name, "ascending") for name in ("bucket", "shard", "position")]
        run.require_lease()
        write_table(run.stores, run.layout.retries_uri(current.summary.number), table.sort_by(order))
    return RetryReport(sum(len(task.positions) for task, _ in due), len(repaired), dict(failed))


def _due(
    run: Run, current: Published, statuses: Sequence[BucketStatus], reasons: frozenset[str], waiting: pa.Table
) -> list[tuple[RetryTask, ShardReceipt]]:
    tombstones = run.tombstones(current)
    columns = (waiting[name].to_pylist() for name in ("bucket", "shard", "position"))
    repaired = {(BUCKETS[bucket].key, *place) for bucket, *place in zip(*columns, strict=True)}
    due: list[tuple[RetryTask, ShardReceipt]] = []
    for status in statuses:
        for state, receipt in status.done:
            key, number = status.bucket.key, state.shard.number
            empty = tombstones.get((key, number), frozenset())
            positions = tuple(
                row.position
                for row in receipt.rejected
                if row.reason in reasons and row.position not in empty and (key, number, row.position) not in repaired
            )
            if positions:
                due.append((RetryTask(run.dataset, current.layout, state.shard, positions), receipt))
    return due


def _correct_reasons(run: Run, task: RetryTask, receipt: ShardReceipt, outcome: RetryOutcome) -> None:
    news = {position: (reason, detail) for position, reason, detail in outcome.failed if reason not in _NO_NEWS}
    rejected = tuple(
        replace(row, reason=news[row.position][0], detail=news[row.position][1])
        if row.position in news and news[row.position][0] != row.reason
        else row
        for row in receipt.rejected
    )
    if rejected != receipt.rejected:
        run.require_lease()
        uri = run.layout.receipt_uri(task.shard.bucket, task.shard.number)
        run.stores.put(uri, encode_receipt(replace(receipt, rejected=rejected)))


def _place(task: RetryTask) -> tuple[str, int]:
    return task.shard.bucket.key, task.shard.number
