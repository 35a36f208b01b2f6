"""Row groups of shards, each read by one request, with the rows of their sidecars beside them."""

import io
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.core.schema import IMAGE_COLUMN, KEY_COLUMN
from dataset_packaging.errors import IndexDamaged, NotFound
from dataset_packaging.io.block_index import BlockIndex
from dataset_packaging.io.store import Stores

_FOOTERS_KEPT = 256
_SIDECARS_KEPT = 16
_TAIL_BYTES = 64 << 10


class _LoadedRange(io.RawIOBase):
    """An object of which one range is in memory; anything else is asked for. Good for pyarrow."""

    def __init__(self, stores: Stores, uri: str, size_bytes: int, start: int, data: memoryview) -> None:
        self._stores = stores
        self._uri = uri
        self._size = size_bytes
        self._start = start
        self._data = data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> Any:
        length = self._size - self._at if size < 0 else min(size, self._size - self._at)
        inside = self._at - self._start
        if inside >= 0 and inside + length <= len(self._data):
            part = self._data[inside : inside + length]
        else:
            part = self._stores.get_range(self._uri, self._at, length)
        self._at += len(part)
        return part


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one row group: lists by column, images as views that cost no copy."""

    columns: dict[str, Sequence[Any]]


class BlockReader:
    """Reads row groups of a dataset. May be used by many threads; keeps some footers and sidecars.

    Args:
        stores: reach the dataset.
        index: of the shards.
        sidecar_prefix: of the sidecars, or None.
        columns: to take from the shards; None: all.
        sidecar_columns: to take from the sidecars.
    """

    def __init__(
        self,
        stores: Stores,
        index: BlockIndex,
        sidecar_prefix: str | None,
        columns: Sequence[str] | None,
        sidecar_columns: Sequence[str],
    ) -> None:
        self.stores = stores
        self.index = index
        self.sidecar_prefix = None if sidecar_prefix is None else sidecar_prefix.rstrip("/")
        self.columns = None if columns is None else list(dict.fromkeys([KEY_COLUMN, *columns]))
        self.sidecar_columns = list(sidecar_columns)
        self._lock = Lock()
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._sidecars: OrderedDict[str, pa.Table] = OrderedDict()

    def __getstate__(self) -> tuple[Any, ...]:
        return self.stores, self.index, self.sidecar_prefix, self.columns, self.sidecar_columns

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def read(self, number: int) -> Block:
        """Read row group `number` of the index.

        Raises IndexDamaged where shard, index and sidecar do not tell the same rows.
        """
        entry = self.index.table.slice(number, 1).to_pylist()[0]
        uri = self.index.shard_uri(number)
        whole = self.columns is None or IMAGE_COLUMN in self.columns
        data = self.stores.get_range(uri, entry["offset"], entry["bytes"]) if whole else memoryview(b"")
        metadata = self._footer(uri, entry["shard_bytes"])
        source = _LoadedRange(self.stores, uri, entry["shard_bytes"], entry["offset"], data)
        try:
            file = pq.ParquetFile(pa.PythonFile(source, mode="r"), metadata=metadata, page_checksum_verification=True)
            table = file.read_row_group(entry["row_group"], columns=self.columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise IndexDamaged(f"{uri}, row group {entry['row_group']}, cannot be read: {error}") from error
        if len(table) != entry["rows"]:
            raise IndexDamaged(f"{uri} has changed since its index was made; make the index again")
        columns = {name: _values(table[name]) for name in table.column_names}
        if self.sidecar_prefix is not None and self.sidecar_columns:
            side = self._sidecar(uri).slice(entry["first_row"], entry["rows"])
            if side[KEY_COLUMN].to_pylist() != columns[KEY_COLUMN]:
                raise IndexDamaged(f"the sidecar of {uri} has other rows, or another order: it cannot be joined by row")
            columns |= {name: side[name].to_pylist() for name in self.sidecar_columns}
        return Block(columns)

    def _footer(self, uri: str, size_bytes: int) -> pq.FileMetaData:
        with self._lock:
            known = self._footers.get(uri)
        if known is None:
            start = max(0, size_bytes - _TAIL_BYTES)
            tail = self.stores.get_range(uri, start, size_bytes - start)
            try:
                source = _LoadedRange(self.stores, uri, size_bytes, start, tail)
                known = pq.read_metadata(pa.PythonFile(source, mode="r"))
            except (pa.ArrowException, OSError) as error:
                raise IndexDamaged(f"{uri} has changed since its index was made ({error})") from error
        _keep(self._lock, self._footers, uri, known, _FOOTERS_KEPT)
        return known

    def _sidecar(self, shard_uri: str) -> pa.Table:
        uri = f"{self.sidecar_prefix}/{shard_uri.removeprefix(self.index.prefix + '/')}"
        with self._lock:
            known = self._sidecars.get(uri)
        if known is None:
            try:
                file = pq.ParquetFile(pa.BufferReader(self.stores.get(uri)), page_checksum_verification=True)
                lacking = [name for name in self.sidecar_columns if name not in file.schema_arrow.names]
                if lacking:
                    raise IndexDamaged(f"the sidecar {uri} has no column {', '.join(lacking)}")
                known = file.read(columns=list(dict.fromkeys([KEY_COLUMN, *self.sidecar_columns])), use_threads=False)
            except (NotFound, pa.ArrowException, OSError) as error:
                raise IndexDamaged(f"the sidecar {uri} cannot be read: {error}") from error
        _keep(self._lock, self._sidecars, uri, known, _SIDECARS_KEPT)
        return known


def _keep(lock: Lock, kept: OrderedDict[str, Any], name: str, value: Any, limit: int) -> None:
    with lock:
        kept[name] = value
        kept.move_to_end(name)
        while len(kept) > limit:
            kept.popitem(last=False)


def _values(column: pa.ChunkedArray) -> Sequence[Any]:
    """Returns the values of a column as a list; binary ones as views of the row group's memory."""
    if column.type != pa.binary() and column.type != pa.large_binary():
        values: list[Any] = column.to_pylist()
        return values
    return [memoryview(value.as_buffer()) if value.is_valid else None for chunk in column.chunks for value in chunk]
