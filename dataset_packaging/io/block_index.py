"""Where every row group of a packed dataset stands: read from footers once, kept as one small table."""

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.core.bucketing import BUCKETS, Bucket
from dataset_packaging.core.layout import shard_name
from dataset_packaging.errors import IndexDamaged, ManifestError
from dataset_packaging.io.parquet import open_parquet, read_table, write_table
from dataset_packaging.io.store import ObjectInfo, Stores

BLOCK_INDEX_SCHEMA = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("row_group", pa.int32(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("shard_bytes", pa.int64(), nullable=False),
    ]
)
"""One row per row group, by bucket, shard and row group; `first_row` counts within the shard."""

_READ_THREADS = 16
_SHARD = re.compile(r"(\w+)/(\d+)/shard-(\d{6})\.parquet")


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Every row group of a dataset: where it is and how many rows it has.

    Attributes:
        prefix: of the shards; without a slash at its end.
        table: as `BLOCK_INDEX_SCHEMA` says; row groups without rows are left out.
    """

    prefix: str
    table: pa.Table

    @property
    def rows(self) -> int:
        """Rows of the dataset."""
        return int(self.numbers("rows").sum())

    @property
    def buckets(self) -> tuple[str, ...]:
        """Keys of the buckets that have rows, in the order of all buckets."""
        present = set(self.table["bucket"].unique().to_pylist())
        return tuple(bucket.key for bucket in BUCKETS if bucket.key in present)

    def numbers(self, name: str) -> npt.NDArray[np.int64]:
        """Return a column of whole numbers."""
        values: npt.NDArray[np.int64] = self.table[name].to_numpy().astype(np.int64)
        return values

    def of_bucket(self, key: str) -> npt.NDArray[np.int64]:
        """Return the rows of the table that belong to a bucket, in order."""
        at: npt.NDArray[np.int64] = np.flatnonzero(np.array(self.table["bucket"].to_pylist()) == key)
        return at

    def shard_uri(self, block: int) -> str:
        """Return the shard in which a row group stands."""
        row = self.table.slice(block, 1).to_pylist()[0]
        return f"{self.prefix}/{row['bucket']}/{shard_name(row['shard'])}.parquet"


def read_block_index(stores: Stores, prefix: str) -> BlockIndex:
    """Read the footers of all shards below a prefix.

    Raises ManifestError where there is no shard, IndexDamaged where a footer cannot be read.
    """
    prefix = prefix.rstrip("/")
    infos = list(_shards(stores, prefix))
    if not infos:
        raise ManifestError(f"no shard is found below {prefix}/; expected SCALE/RATIO/shard-NNNNNN.parquet")
    with ThreadPoolExecutor(_READ_THREADS, "footers") as pool:
        groups = [row for rows in pool.map(lambda entry: _read_groups(stores, *entry), infos) for row in rows]
    return BlockIndex(prefix, pa.Table.from_pylist(groups, schema=BLOCK_INDEX_SCHEMA))


def write_block_index(stores: Stores, uri: str, index: BlockIndex) -> None:
    """Write an index as one Parquet file."""
    write_table(stores, uri, index.table)


def load_block_index(stores: Stores, uri: str, prefix: str) -> BlockIndex:
    """Read an index that was written before, and make sure that the shards are the ones it was made of.

    Raises IndexDamaged where shards were added, removed or have another size.
    """
    table = read_table(stores, uri, BLOCK_INDEX_SCHEMA.names).cast(BLOCK_INDEX_SCHEMA)
    index = BlockIndex(prefix.rstrip("/"), table)
    places = zip(*(table[name].to_pylist() for name in ("bucket", "shard", "shard_bytes")), strict=True)
    known = {f"{bucket}/{shard_name(shard)}.parquet": size for bucket, shard, size in places}
    found = {f"{bucket.key}/{shard_name(shard)}.parquet": info for bucket, shard, info in _shards(stores, index.prefix)}
    for key, size in known.items():
        if key not in found or found[key].size_bytes != size:
            raise IndexDamaged(f"{index.prefix}/{key} is not the shard that {uri} was made of; make the index again")
    for key in found.keys() - known.keys():
        if open_parquet(stores, found[key].uri).metadata.num_rows:
            raise IndexDamaged(f"{index.prefix}/{key} is not in {uri}; make the index again")
    return index


def _shards(stores: Stores, prefix: str) -> Iterable[tuple[Bucket, int, ObjectInfo]]:
    """Yields the shards below a prefix, by bucket (in the order of all buckets) and number."""
    found = []
    for info in stores.list(f"{prefix}/"):
        match = _SHARD.fullmatch(info.uri.removeprefix(f"{prefix}/"))
        if match is not None:
            bucket = Bucket.parse(f"{match.group(1)}/{match.group(2)}")
            found.append((bucket, int(match.group(3)), info))
    order = {bucket: number for number, bucket in enumerate(BUCKETS)}
    return sorted(found, key=lambda entry: (order[entry[0]], entry[1]))


def _read_groups(stores: Stores, bucket: Bucket, shard: int, info: ObjectInfo) -> list[dict[str, object]]:
    try:
        metadata = open_parquet(stores, info.uri).metadata
    except (pa.ArrowException, OSError) as error:
        raise IndexDamaged(f"{info.uri} cannot be read: {error}") from error
    rows: list[dict[str, object]] = []
    first_row = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows:
            start, end = byte_range(group)
            rows.append(
                {
                    "bucket": bucket.key,
                    "shard": shard,
                    "row_group": number,
                    "first_row": first_row,
                    "rows": group.num_rows,
                    "offset": start,
                    "bytes": end - start,
                    "shard_bytes": info.size_bytes,
                }
            )
        first_row += group.num_rows
    return rows


def byte_range(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """Return where the columns of a row group stand in their file: [start, end); pure."""
    spans = []
    for number in range(group.num_columns):
        chunk = group.column(number)
        start = min(offset for offset in (chunk.dictionary_page_offset, chunk.data_page_offset) if offset)
        spans.append((start, start + chunk.total_compressed_size))
    return min(start for start, _ in spans), max(end for _, end in spans)
