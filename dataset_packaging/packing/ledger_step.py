"""What is derived from the generation and the receipts: the ledger and the reject lists.

All of it can be lost and is made anew; a file is written only where it differs from what it should be.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dataset_packaging.core.bucketing import BUCKETS, Bucket
from dataset_packaging.core.ledger import DUPLICATE_REASON, UNBUCKETED, Ledger, LedgerLine
from dataset_packaging.core.receipts import MovedRow, RejectedRow
from dataset_packaging.errors import IndexDamaged, NotFound, ObjectDamaged
from dataset_packaging.io.parquet import encode_table, open_parquet, read_batches, read_matching
from dataset_packaging.io.store import Data
from dataset_packaging.packing.generation import Published, Tombstones
from dataset_packaging.packing.index_schema import REJECTS_SCHEMA
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import BucketStatus, ShardState

_THREADS = 16

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


def read_statuses(run: Run, current: Published) -> list[BucketStatus]:
    """Returns the states of all buckets, those without planned shards included. Reads only."""
    return run.status.read(current.shards, BUCKETS)


def read_ledger(run: Run, current: Published, statuses: Sequence[BucketStatus]) -> Ledger:
    """Counts the balance from the generation, the receipts and the objects that stand. Reads only."""
    tombstones = run.tombstones(current)
    status_of = {status.bucket.key: status for status in statuses}
    lines = [_unbucketed_line(run, current)]
    for record in current.summary.buckets:
        lines.append(_bucket_line(status_of[record.bucket], record.rows, record.duplicates, tombstones))
    order = {bucket.key: number for number, bucket in enumerate(BUCKETS)}
    kept = [line for line in lines if line.rows or line.packed or line.pending]
    return Ledger(tuple(sorted(kept, key=lambda line: order.get(line.bucket, len(order)))))


@dataclass(frozen=True, slots=True)
class DerivedFiles:
    """The files that should stand below the work prefix.

    Attributes:
        made: bytes by URI.
        copied: (target, source, sha256 of the source).
    """

    made: dict[str, memoryview]
    copied: tuple[tuple[str, str, str], ...]


def derive_files(run: Run, current: Published, statuses: Sequence[BucketStatus], ledger: Ledger) -> DerivedFiles:
    """Returns ledger and reject lists as they should be. Reads only."""
    made = {
        run.layout.ledger_uri: encode_table(_ledger_table(ledger)),
        run.layout.ledger_summary_uri: memoryview(msgspec.json.encode(ledger_summary(run.dataset.name, ledger))),
    }
    for status in statuses:
        rejects = _listed_rejects(run, current, status)
        if rejects:
            columns = {name: [getattr(row, name) for row in rejects] for name in REJECTS_SCHEMA.names}
            made[run.layout.rejects_uri(status.bucket)] = encode_table(pa.table(columns, schema=REJECTS_SCHEMA))
    source = current.layout.rejects_uri
    sha256 = next(file.object.sha256 for file in current.summary.files if file.uri == source)
    return DerivedFiles(made, ((run.layout.rejects_uri(None), source, sha256),))


def stale_files(run: Run, derived: DerivedFiles) -> tuple[list[str], list[str]]:
    """Returns which derived files are missing or differ, and which reject lists should not be there. Reads only."""
    expected = {uri: hashlib.sha256(data).hexdigest() for uri, data in derived.made.items()}
    expected |= {target: sha256 for target, _, sha256 in derived.copied}
    surplus = [info.uri for info in run.stores.list(run.layout.rejects_prefix) if info.uri not in expected]

    def differs(uri: str) -> bool:
        try:
            return hashlib.sha256(run.stores.get(uri)).hexdigest() != expected[uri]
        except NotFound:
            return True

    with ThreadPoolExecutor(_THREADS, "derived") as pool:
        return [uri for uri, stale in zip(expected, pool.map(differs, expected), strict=True) if stale], surplus


def write_derived(run: Run, current: Published, statuses: Sequence[BucketStatus]) -> Ledger:
    """Brings ledger and reject lists up to date; what is right already is not written. Safe to repeat, and to lose."""
    ledger = read_ledger(run, current, statuses)
    derived = derive_files(run, current, statuses, ledger)
    stale, surplus = stale_files(run, derived)
    sources = {target: source for target, source, _ in derived.copied}
    run.require_lease()
    for uri in stale:
        data: Data = derived.made[uri] if uri in derived.made else run.stores.get(sources[uri])
        run.stores.put(uri, data)
    for uri in surplus:
        run.stores.delete(uri)
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


def live_rejects(status: BucketStatus, tombstones: Tombstones) -> Iterator[RejectedRow]:
    """Yields the rejected rows of durable shards that have not been given another place since. Pure."""
    return (row for _, row in _with_states(status, tombstones))


def _with_states(status: BucketStatus, tombstones: Tombstones) -> Iterator[tuple[ShardState, RejectedRow]]:
    for state, receipt in status.done:
        empty = tombstones.get((status.bucket.key, state.shard.number), frozenset())
        yield from ((state, row) for row in receipt.rejected if row.position not in empty)


def iter_rejects(run: Run) -> Iterator[dict[str, object]]:
    """Yields the rows of all public reject lists, duplicates included. Memory is bounded by a batch."""
    for info in run.stores.list(run.layout.rejects_prefix):
        for batch in read_batches(open_parquet(run.stores, info.uri), info.uri):
            yield from batch.to_pylist()


def _listed_rejects(run: Run, current: Published, status: BucketStatus) -> list[RejectedRow]:
    """Returns the live rejects of a bucket with their lines in the manifest of today."""
    tombstones = run.tombstones(current)
    old = {receipt.number for _, receipt in status.done if receipt.generation != current.summary.number}
    rejects: list[RejectedRow] = []
    moved: list[tuple[int, int]] = []
    for state, row in _with_states(status, tombstones):
        if state.shard.number in old:
            moved.append((len(rejects), state.shard.number))
        rejects.append(row)
    if moved:
        lines = _read_lines(run, current, status.bucket, {number for _, number in moved})
        for at, number in moved:
            source, line = lines[number, rejects[at].position]
            rejects[at] = replace(rejects[at], manifest_uri=current.summary.sources[source].uri, line=line)
    return rejects


def _read_lines(
    run: Run, current: Published, bucket: Bucket, numbers: set[int]
) -> dict[tuple[int, int], tuple[int, int]]:
    """Returns (source, line) by (shard, position) of the rows of some shards."""
    uri = current.layout.index_uri(bucket)
    columns = ["shard", "position", "source", "line"]
    lines: dict[tuple[int, int], tuple[int, int]] = {}
    try:
        groups = read_matching(
            run.stores, uri, "shard", lambda least, most: any(least <= number <= most for number in numbers), columns
        )
        for group in groups:
            chosen = group.filter(pc.is_in(group["shard"], value_set=pa.array(sorted(numbers), pa.int32())))
            for shard, position, source, line in zip(*(chosen[name].to_pylist() for name in columns), strict=True):
                lines[shard, position] = source, line
    except (NotFound, ObjectDamaged) as error:
        raise IndexDamaged(f"{error}; run pack again: it is rebuilt") from error
    return lines


def _ledger_table(ledger: Ledger) -> pa.Table:
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
    return pa.Table.from_pylist(rows, schema=LEDGER_SCHEMA)


def _bucket_line(status: BucketStatus, rows: int, duplicates: int, tombstones: Tombstones) -> LedgerLine:
    packed = pending = 0
    for state in status.shards:
        if state.problem or state.receipt is None:
            pending += state.shard.live_rows
            continue
        packed += state.receipt.packed_rows
        pending += waiting_moves(status.bucket, state.shard.number, state.receipt.moved, tombstones)
    rejected = Counter(row.reason for row in live_rejects(status, tombstones))
    return LedgerLine(status.bucket.key, rows, packed, dict(rejected), duplicates, pending)


def waiting_moves(bucket: Bucket, number: int, moved: Iterable[MovedRow], tombstones: Tombstones) -> int:
    """Returns how many moved rows of a shard have no other place yet. Pure."""
    empty = tombstones.get((bucket.key, number), frozenset())
    return sum(row.position not in empty for row in moved)


def _unbucketed_line(run: Run, current: Published) -> LedgerLine:
    """Counts the rows without a bucket: rejects are counted in their list, not taken from the summary."""
    summary = current.summary
    uri = current.layout.rejects_uri
    rejected: Counter[str] = Counter()
    try:
        for batch in read_batches(open_parquet(run.stores, uri), uri, ["reason"]):
            counts = batch.column(0).value_counts()
            rejected.update({entry["values"]: entry["counts"] for entry in counts.to_pylist()})
    except (NotFound, ObjectDamaged) as error:
        raise IndexDamaged(f"{error}; run pack again: it is rebuilt") from error
    rejected.pop(DUPLICATE_REASON, None)
    rows = summary.rows - sum(record.rows for record in summary.buckets)
    return LedgerLine(UNBUCKETED, rows, 0, dict(rejected), summary.unplaced_duplicates, summary.pending)
