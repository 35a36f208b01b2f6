"""Parquet files in a store: small tables at once, shards as a stream of row groups.

Damage and outage are told apart: what Arrow cannot make sense of is `ObjectDamaged`, what the store could not deliver
keeps its own class.
"""

import hashlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.core.receipts import StoredObject
from dataset_packaging.errors import ObjectDamaged, TransientStoreError
from dataset_packaging.io.store import Data, ObjectInfo, Sink, Stores

ZSTD_LEVEL = 3
"""For everything but image bytes; measured as the usual best balance for text."""

IMAGE_ZSTD_LEVEL = -5
"""For image bytes, which are compressed already: the level changes their size by 0.1 %, and the time threefold."""

READ_BYTES = 1 << 20
"""What is read of a column of large values at once; a row group may hold many times as much."""

PAGE_ROWS = 1
"""Rows that the writer weighs at once against the page size: more puts a whole row group of images into one page."""


@contextmanager
def damage_told(uri: str) -> Iterator[None]:
    """Turns what Arrow raises about the bytes of a file, within the block, into ObjectDamaged.

    An error of the system while a local file is read is TransientStoreError; errors of stores pass as they are.
    """
    try:
        yield
    except EOFError as error:
        raise TransientStoreError(uri, f"a read came short: {error}") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # Arrow's own complaints about a file are OSErrors too, but carry no number of a system error.
        if isinstance(error, OSError) and error.errno is not None:
            raise TransientStoreError(uri, str(error)) from error
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ObjectDamaged(uri, f"it cannot be read as Parquet: {text}") from error


_DIRECT_BYTES = 128 << 10
"""What a write must have to be passed on as it is; less is gathered: most writes of Arrow are a few dozen bytes."""


class HashingSink:
    """Passes bytes on to a sink and hashes them; good for `pa.PythonFile`, whose closing does not close the sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._sha256 = hashlib.sha256()
        self._gathered = bytearray()

    @property
    def closed(self) -> bool:
        """Whether the sink is published or aborted."""
        return self._sink.closed

    def write(self, data: Data) -> int:
        """See `Sink.write`."""
        if len(data) < _DIRECT_BYTES:
            self._gathered += data
            if len(self._gathered) >= _DIRECT_BYTES:
                self.flush()
            return len(data)
        self.flush()
        self._sha256.update(data)
        return self._sink.write(data)

    def tell(self) -> int:
        """See `Sink.tell`."""
        return self._sink.tell() + len(self._gathered)

    def flush(self) -> None:
        """Passes on what was gathered."""
        if self._gathered:
            gathered, self._gathered = self._gathered, bytearray()
            self._sha256.update(gathered)
            self._sink.write(gathered)

    def close(self) -> None:
        """Does nothing: the end of the sink's own block publishes."""

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return False

    def writable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.IOBase`."""
        return False

    def stored(self) -> StoredObject:
        """Returns the published object with its hash. Only after the sink's block has ended."""
        return stored_object(self._sink.info, self._sha256.hexdigest())


@contextmanager
def open_hashing_sink(stores: Stores, uri: str) -> Iterator[HashingSink]:
    """Opens an object for writing: whole and hashed at the end of the block, nothing where an exception leaves it."""
    with stores.open_sink(uri) as sink:
        hashing = HashingSink(sink)
        yield hashing
        hashing.flush()


def stored_object(info: ObjectInfo, sha256: str) -> StoredObject:
    """Returns what receipts keep of an object. Pure."""
    return StoredObject(info.size_bytes, info.tag, sha256)


def encode_table(table: pa.Table, row_group_rows: int = 1 << 16) -> memoryview:
    """Returns a small table as the bytes of a Parquet file. Equal tables give equal bytes. Pure."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=ZSTD_LEVEL, row_group_size=row_group_rows)
    return memoryview(sink.getvalue())


def write_table(stores: Stores, uri: str, table: pa.Table, row_group_rows: int = 1 << 16) -> StoredObject:
    """Writes a small table as one object, whole or not at all. Equal tables give equal bytes."""
    data = encode_table(table, row_group_rows)
    return stored_object(stores.put(uri, data), hashlib.sha256(data).hexdigest())


def read_table(stores: Stores, uri: str, columns: list[str] | None = None) -> pa.Table:
    """Reads a small table. Raises NotFound where the object is missing, ObjectDamaged where it is no whole file."""
    data = stores.get(uri)
    with damage_told(uri):
        return pq.read_table(pa.BufferReader(data), columns=columns)


def open_parquet(stores: Stores, uri: str, *, verify_checksums: bool = False, buffer_bytes: int = 0) -> pq.ParquetFile:
    """Opens a file for reading by row groups: the footer is read now, pages when they are asked for.

    With `buffer_bytes`, columns are read in pieces of that size, so that a few rows do not cost a whole row group.

    The object is closed when nothing refers to the returned file any more. Raises NotFound, and ObjectDamaged where
    there is no whole footer; read pages within `damage_told`.
    """
    source = stores.open(uri)
    try:
        with damage_told(uri):
            file = pq.ParquetFile(
                source, page_checksum_verification=verify_checksums, pre_buffer=False, buffer_size=buffer_bytes
            )
    except BaseException:
        source.close()
        raise
    weakref.finalize(file, source.close)
    return file


def read_row_count(stores: Stores, uri: str) -> int:
    """Returns the number of rows that the footer of a file tells."""
    return int(open_parquet(stores, uri).metadata.num_rows)


def read_batches(
    file: pq.ParquetFile, uri: str, columns: list[str] | None = None, batch_rows: int = 1 << 16
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of an open file in pieces; none for a file without row groups, where Arrow itself raises.

    Raises ObjectDamaged where a page cannot be read.
    """
    if not file.metadata.num_row_groups:
        return
    batches = file.iter_batches(batch_rows, columns=columns)
    while True:
        with damage_told(uri):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def read_values(file: pq.ParquetFile, uri: str, column: str) -> Iterator[Any]:
    """Yields the values of one column of an open file, as Arrow scalars, in order.

    A batch lies within one row group and holds about READ_BYTES, at least a row. For a file that was opened with
    `buffer_bytes=READ_BYTES`, memory is one such batch where values are of one size, and one row group where they are
    not. Raises ObjectDamaged where a page cannot be read.
    """
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        rows = max(1, READ_BYTES * group.num_rows // max(1, group.total_byte_size))
        batches = file.iter_batches(rows, row_groups=[number], columns=[column])
        while True:
            with damage_told(uri):
                batch = next(batches, None)
            if batch is None:
                break
            yield from batch.column(0)


def read_matching(
    stores: Stores,
    uri: str,
    column: str,
    matches: Callable[[Any, Any], bool],
    columns: list[str],
) -> Iterator[pa.Table]:
    """Yields the row groups whose minimum and maximum of `column` pass `matches(minimum, maximum)`.

    Args:
        stores: hold the file.
        uri: of a file; a row group without statistics of the column passes.
        column: its name; not nested.
        matches: whether rows of interest may be between two bounds, both inclusive.
        columns: what to read.
    """
    yield from matching_groups(open_parquet(stores, uri), uri, column, matches, columns)


def matching_groups(
    file: pq.ParquetFile, uri: str, column: str, matches: Callable[[Any, Any], bool], columns: list[str]
) -> Iterator[pa.Table]:
    """Does what `read_matching` does, on an open file."""
    metadata = file.metadata
    if not metadata.num_row_groups:
        return
    leaf = [metadata.schema.column(number).path for number in range(metadata.num_columns)].index(column)
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(leaf).statistics
        if statistics is None or not statistics.has_min_max or matches(statistics.min, statistics.max):
            with damage_told(uri):
                table = file.read_row_group(number, columns=columns)
            yield table


def shard_writer(sink: Any, schema: pa.Schema, image_column: str | None) -> pq.ParquetWriter:
    """Returns a writer of shards or sidecars with the project's settings. Same input, same bytes.

    Every column chunk is zstd, pages carry checksums, no column has a dictionary but booleans and short enumerations
    profit from none; the image column has no statistics.
    """
    levels = {name: IMAGE_ZSTD_LEVEL if name == image_column else ZSTD_LEVEL for name in _leaf_paths(schema)}
    statistics = [name for name in _leaf_paths(schema) if name != image_column]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=levels,
        use_dictionary=False,
        write_statistics=statistics,
        write_page_checksum=True,
        write_batch_size=PAGE_ROWS if image_column else 1024,
        data_page_version="1.0",
        version="2.6",
        store_schema=True,
    )


def _leaf_paths(schema: pa.Schema) -> list[str]:
    """Returns Parquet's dotted path of each leaf column."""
    paths: list[str] = []

    def walk(prefix: str, kind: pa.DataType) -> None:
        if pa.types.is_struct(kind):
            for number in range(kind.num_fields):
                child = kind.field(number)
                walk(f"{prefix}.{child.name}", child.type)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            walk(f"{prefix}.list.element", kind.value_type)
        else:
            paths.append(prefix)

    for field in schema:
        walk(field.name, field.type)
    return paths
