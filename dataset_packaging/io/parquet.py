"""Parquet files in a store: small tables at once, shards as a stream of row groups."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.io.store import ObjectInfo, Stores

ZSTD_LEVEL = 3
"""For everything but image bytes; measured as the usual best balance for text."""

IMAGE_ZSTD_LEVEL = -5
"""For image bytes, which are compressed already: the level changes their size by 0.1 %, and the time threefold."""

PAGE_ROWS = 1
"""Rows that the writer weighs at once against the page size: more puts a whole row group of images into one page."""


def write_table(stores: Stores, uri: str, table: pa.Table, row_group_rows: int = 1 << 16) -> ObjectInfo:
    """Writes a small table as one object, whole or not at all. Equal tables give equal bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=ZSTD_LEVEL, row_group_size=row_group_rows)
    return stores.put(uri, memoryview(sink.getvalue()))


def read_table(stores: Stores, uri: str, columns: list[str] | None = None) -> pa.Table:
    """Reads a small table. Raises NotFound where the object is missing, and what Arrow raises where it is damaged."""
    return pq.read_table(pa.BufferReader(stores.get(uri)), columns=columns)


def open_parquet(stores: Stores, uri: str, *, verify_checksums: bool = False) -> pq.ParquetFile:
    """Opens a file for reading by row groups: the footer is read now, pages when they are asked for.

    The object is closed when nothing refers to the returned file any more.
    """
    source = stores.open(uri)
    try:
        file = pq.ParquetFile(source, page_checksum_verification=verify_checksums, pre_buffer=False)
    except BaseException:
        source.close()
        raise
    weakref.finalize(file, source.close)
    return file


def read_matching(
    file: pq.ParquetFile,
    column: str,
    matches: Callable[[Any, Any], bool],
    columns: list[str],
) -> Iterator[pa.Table]:
    """Yields the row groups whose minimum and maximum of `column` pass `matches(minimum, maximum)`.

    Args:
        file: has statistics of `column`, which is not nested.
        column: its name.
        matches: whether rows of interest may be between two bounds, both inclusive.
        columns: what to read.
    """
    metadata = file.metadata
    if not metadata.num_row_groups:
        return
    position = file.schema_arrow.get_field_index(column)
    leaf = _leaf_position(file, position)
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(leaf).statistics
        if statistics is None or not statistics.has_min_max or matches(statistics.min, statistics.max):
            yield file.read_row_group(number, columns=columns)


def iter_batches(
    file: pq.ParquetFile, columns: list[str] | None = None, rows: int = 1 << 16
) -> Iterator[pa.RecordBatch]:
    """Yields batches of at most `rows` rows; none for a file without row groups, where Arrow itself raises."""
    if file.metadata.num_row_groups:
        yield from file.iter_batches(rows, columns=columns)


def _leaf_position(file: pq.ParquetFile, field_position: int) -> int:
    name = file.schema_arrow.field(field_position).name
    paths = [file.metadata.schema.column(leaf).path for leaf in range(file.metadata.num_columns)]
    return paths.index(name)


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
