"""The ledger: counted from what landed, written as a table and a summary."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from dataset_packaging.core.bucketing import BUCKETS, Bucket
from dataset_packaging.core.ledger import UNBUCKETED, Ledger, LedgerLine
from dataset_packaging.errors import NotFound
from dataset_packaging.io.parquet import iter_batches, open_parquet, write_table
from dataset_packaging.packing.generation import Published
from dataset_packaging.packing.manifest_step import read_tombstones
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.shards_step import live_rejects
from dataset_packaging.packing.status import BucketStatus, read_bucket_status

LEDGER_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("packed", pa.int64(), nullable=False),
        pa.field("rejected", pa.int64(), nullable=False),
        pa.field("duplicates", pa.int64(), nullable=False),
        pa.field("pending", pa.int64(), nullable=False),
        pa.field("rejected_by_reason", pa.string(), nullable=False),
    ]
)


def read_ledger(run: Run, current: Published) -> Ledger:
    """Counts the balance from the generation, the receipts and the objects that stand. Reads only."""
    tombstones = read_tombstones(run, current)
    lines = [_unbucketed_line(run, current)]
    for record in current.summary.buckets:
        bucket = Bucket.parse(record.bucket)
        status = read_bucket_status(run, bucket, current.of_bucket(bucket))
        lines.append(_bucket_line(status, record.rows, record.duplicates, tombstones))
    order = {bucket.key: number for number, bucket in enumerate(BUCKETS)}
    kept = [line for line in lines if line.rows or line.packed or line.pending]
    return Ledger(tuple(sorted(kept, key=lambda line: order.get(line.bucket, len(order)))))


def write_ledger(run: Run, current: Published) -> Ledger:
    """Writes the ledger's table and summary. Derived from receipts: safe to repeat, and to lose."""
    ledger = read_ledger(run, current)
    rows = [
        {
            "bucket": line.bucket,
            "rows": line.rows,
            "packed": line.packed,
            "rejected": line.rejected_rows,
            "duplicates": line.duplicates,
            "pending": line.pending,
            "rejected_by_reason": msgspec.json.encode(dict(sorted(line.rejected.items()))).decode(),
        }
        for line in ledger.lines
    ]
    write_table(run.stores, run.layout.ledger_uri, pa.Table.from_pylist(rows, schema=LEDGER_SCHEMA))
    run.stores.put(run.layout.ledger_summary_uri, msgspec.json.encode(ledger_summary(run.dataset.name, ledger)))
    return ledger


def ledger_summary(name: str, ledger: Ledger) -> dict[str, object]:
    """Returns the balance of the dataset as plain data. Pure."""
    total = ledger.total
    return {
        "dataset": name,
        "rows": total.rows,
        "packed": total.packed,
        "rejected": dict(sorted(total.rejected.items())),
        "duplicates": total.duplicates,
        "pending": total.pending,
        "rejected_fraction": ledger.rejected_fraction,
        "balanced": not ledger.unbalanced,
    }


def _bucket_line(
    status: BucketStatus, rows: int, duplicates: int, tombstones: dict[tuple[str, int], frozenset[int]]
) -> LedgerLine:
    packed = pending = 0
    for state in status.shards:
        if state.problem or state.receipt is None:
            pending += state.shard.live_rows
            continue
        empty = tombstones.get((status.bucket.key, state.shard.number), frozenset())
        packed += state.receipt.packed_rows
        pending += sum(row.position not in empty for row in state.receipt.moved)
    rejected = Counter(row.reason for row in live_rejects(status, tombstones))
    return LedgerLine(status.bucket.key, rows, packed, dict(rejected), duplicates, pending)


def _unbucketed_line(run: Run, current: Published) -> LedgerLine:
    """Counts the rows without a bucket: rejects are counted in their list, not taken from the summary."""
    rejected: Counter[str] = Counter()
    for batch in _batches(run, current.layout.rejects_uri, ["reason"]):
        counts = batch.column(0).value_counts()
        rejected.update({entry["values"]: entry["counts"] for entry in counts.to_pylist()})
    del rejected["duplicate_key"]
    rows = current.summary.rows - sum(record.rows for record in current.summary.buckets)
    return LedgerLine(UNBUCKETED, rows, 0, dict(rejected), 0, current.summary.pending)


def _batches(run: Run, uri: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        yield from iter_batches(open_parquet(run.stores, uri), columns)
    except NotFound:
        return


def iter_rejects(run: Run) -> Iterator[dict[str, object]]:
    """Yields the rows of all public reject lists, duplicates included. Memory is bounded by a batch."""
    for info in run.stores.list(run.layout.rejects_prefix):
        for batch in iter_batches(open_parquet(run.stores, info.uri)):
            yield from batch.to_pylist()
