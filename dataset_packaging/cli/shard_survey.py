"""What stands in a shard or below a prefix, from footers only, and a few of its pictures."""

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.schema import HEIGHT_COLUMN, IMAGE_COLUMN, WIDTH_COLUMN, schema_differences
from dataset_packaging.errors import ConfigError, NotFound
from dataset_packaging.io.store import ObjectInfo, Stores

FOOTER_THREAD_COUNT = 8
_PICTURE_BATCH_ROWS = 4


@dataclass(frozen=True, slots=True)
class ColumnFigures:
    """One top-level column, summed over the row groups of the files read.

    Attributes:
        name: The column.
        type: Its Arrow type.
        nullable: Whether it may be null.
        codecs: Compression of its chunks, sorted.
        encodings: Encodings of its pages, sorted.
        has_statistics: Whether any chunk carries minimum and maximum.
        compressed_bytes: Size in the files.
        uncompressed_bytes: Size after decompression.
    """

    name: str
    type: str
    nullable: bool
    codecs: tuple[str, ...]
    encodings: tuple[str, ...]
    has_statistics: bool
    compressed_bytes: int
    uncompressed_bytes: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What one Parquet file says of itself.

    Attributes:
        info: The object.
        schema: Its Arrow schema.
        row_group_rows: Rows of each row group, in order.
        row_group_bytes: Uncompressed bytes of each row group, in order.
        columns: Every top-level column, in order.
        created_by: The library that wrote it.
    """

    info: ObjectInfo
    schema: pa.Schema
    row_group_rows: tuple[int, ...]
    row_group_bytes: tuple[int, ...]
    columns: tuple[ColumnFigures, ...]
    created_by: str

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return sum(self.row_group_rows)


@dataclass(frozen=True, slots=True)
class ShardSurvey:
    """A file or a prefix.

    Attributes:
        target_uri: What was asked for.
        objects: Every Parquet file there, by key.
        footers: Of the files that were read, by key; all of `objects` unless there were too many.
        problems: One line for each file that is damaged or whose schema is not that of the first.
        strangers: Objects below the prefix that are no Parquet files, at most a few.
    """

    target_uri: str
    objects: tuple[ObjectInfo, ...]
    footers: tuple[Footer, ...]
    problems: tuple[str, ...]
    strangers: tuple[str, ...]

    @property
    def is_partial(self) -> bool:
        """Whether some files were not opened, so that rows are estimated."""
        return len(self.footers) + len(self.problems) < len(self.objects)

    @property
    def rows(self) -> int:
        """Rows of all files; where not every footer was read, scaled up by the bytes."""
        read_rows = sum(footer.rows for footer in self.footers)
        read_bytes = sum(footer.info.size_bytes for footer in self.footers)
        if not self.is_partial or not read_bytes:
            return read_rows
        return round(read_rows * self.size_bytes / read_bytes)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(info.size_bytes for info in self.objects)


def read_survey(stores: Stores, target_uri: str, max_footers: int) -> ShardSurvey:
    """Read the footers of a `.parquet` file or of those below a prefix; no page is read.

    Args:
        stores: Where the target stands.
        target_uri: Absolute, without a slash at its end.
        max_footers: Beyond this many files only so many, evenly spread, are opened.

    Raises:
        ConfigError: No Parquet file stands there.
    """
    objects, strangers = _find_shards(stores, target_uri)
    chosen = [objects[index] for index in spread_evenly(len(objects), max_footers)]
    footers: list[Footer] = []
    problems: list[str] = []
    with ThreadPoolExecutor(FOOTER_THREAD_COUNT, "footer") as threads:
        for footer in threads.map(lambda info: _read_footer(stores, info), chosen):
            if isinstance(footer, str):
                problems.append(footer)
                continue
            if footers and (differences := schema_differences(footers[0].schema, footer.schema)):
                problems.append(f"{footer.info.uri}: unlike {footers[0].info.uri}: {'; '.join(differences)}")
            footers.append(footer)
    return ShardSurvey(target_uri, tuple(objects), tuple(footers), tuple(problems), tuple(strangers))


def spread_evenly(count: int, wanted: int) -> list[int]:
    """Choose `wanted` of the numbers 0 to `count` - 1, the first among them, evenly spread and ascending; pure."""
    if count <= wanted:
        return list(range(count))
    return [index * count // wanted for index in range(wanted)]


def bucket_of_uri(uri: str) -> Bucket | None:
    """Read the bucket from the two folders above a shard; None where they are not a bucket's; pure."""
    parts = uri.rsplit("/", 3)
    try:
        return Bucket.parse("/".join(parts[1:3]))
    except ValueError:
        return None


def read_pictures(stores: Stores, footers: Sequence[Footer], wanted: int) -> Iterator[tuple[memoryview, str]]:
    """Read up to `wanted` pictures, evenly spread over files and rows, with bucket and size below each.

    Holds one row group's pages at a time. Page checksums are verified.

    Raises:
        ConfigError: The files have no image column.
    """
    if footers and IMAGE_COLUMN not in footers[0].schema.names:
        raise ConfigError(f"{footers[0].info.uri} has no column {IMAGE_COLUMN}: a sheet needs main shards, no sidecars")
    filled = [footer for footer in footers if footer.rows]
    total_rows = sum(footer.rows for footer in filled)
    chosen = spread_evenly(total_rows, wanted) if len(filled) < wanted else []
    if not chosen:
        for index in spread_evenly(len(filled), wanted):
            yield from _read_rows(stores, filled[index], [0])
        return
    first_row = 0
    for footer in filled:
        rows = [row - first_row for row in chosen if first_row <= row < first_row + footer.rows]
        yield from _read_rows(stores, footer, rows)
        first_row += footer.rows


def _find_shards(stores: Stores, target_uri: str) -> tuple[list[ObjectInfo], list[str]]:
    if target_uri.endswith(".parquet"):
        try:
            return [stores.head(target_uri)], []
        except NotFound:
            pass
    objects: list[ObjectInfo] = []
    strangers: list[str] = []
    for info in stores.list(target_uri + "/"):
        if info.uri.endswith(".parquet"):
            objects.append(info)
        elif len(strangers) < 5:
            strangers.append(info.uri)
    if not objects:
        raise ConfigError(f"{target_uri}: no .parquet file stands here or below")
    return objects, strangers


def _read_footer(stores: Stores, info: ObjectInfo) -> Footer | str:
    try:
        with stores.open(info.uri) as source, pq.ParquetFile(source, pre_buffer=False) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, struct.error) as error:
        return f"{info.uri}: not a readable Parquet file: {error}"
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return Footer(
        info=info,
        schema=schema,
        row_group_rows=tuple(group.num_rows for group in groups),
        row_group_bytes=tuple(group.total_byte_size for group in groups),
        columns=tuple(_column_figures(schema, groups)),
        created_by=metadata.created_by or "",
    )


def _column_figures(schema: pa.Schema, groups: Sequence[pq.RowGroupMetaData]) -> Iterator[ColumnFigures]:
    chunks: dict[str, list[pq.ColumnChunkMetaData]] = {name: [] for name in schema.names}
    for group in groups:
        for leaf in range(group.num_columns):
            chunk = group.column(leaf)
            chunks.setdefault(chunk.path_in_schema.split(".", 1)[0], []).append(chunk)
    for field in schema:
        own = chunks[field.name]
        yield ColumnFigures(
            name=field.name,
            type=str(field.type),
            nullable=field.nullable,
            codecs=tuple(sorted({chunk.compression for chunk in own})),
            encodings=tuple(sorted({encoding for chunk in own for encoding in chunk.encodings})),
            has_statistics=any(chunk.is_stats_set for chunk in own),
            compressed_bytes=sum(chunk.total_compressed_size for chunk in own),
            uncompressed_bytes=sum(chunk.total_uncompressed_size for chunk in own),
        )


def _read_rows(stores: Stores, footer: Footer, rows: Sequence[int]) -> Iterator[tuple[memoryview, str]]:
    """Yield the pictures of these rows (ascending, counted within the file)."""
    names = [name for name in (IMAGE_COLUMN, WIDTH_COLUMN, HEIGHT_COLUMN) if name in footer.schema.names]
    bucket = bucket_of_uri(footer.info.uri)
    first_row = 0
    with (
        stores.open(footer.info.uri) as source,
        pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True) as file,
    ):
        for number, group_rows in enumerate(footer.row_group_rows):
            wanted = [row - first_row for row in rows if first_row <= row < first_row + group_rows]
            first_row += group_rows
            if not wanted:
                continue
            batch_start = 0
            for batch in file.iter_batches(_PICTURE_BATCH_ROWS, row_groups=[number], columns=names):
                for row in [row - batch_start for row in wanted if batch_start <= row < batch_start + len(batch)]:
                    values = {name: batch.column(name)[row] for name in names}
                    yield _picture(values, bucket)
                batch_start += len(batch)
                if batch_start > wanted[-1]:
                    break


def _picture(values: "dict[str, pa.Scalar[pa.DataType]]", bucket: Bucket | None) -> tuple[memoryview, str]:
    size = "x".join(str(values[name].as_py()) for name in (WIDTH_COLUMN, HEIGHT_COLUMN) if name in values)
    data = values[IMAGE_COLUMN].as_py() or b""
    return memoryview(data), f"{bucket.key}\n{size}" if bucket else size
