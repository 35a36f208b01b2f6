"""The rows of merge sources, as key and values. Reads only.

Memory: one batch of rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging.config import DatasetConfig, MergeConfig
from dataset_packaging.core.casts import Json, cast_text
from dataset_packaging.core.lenient_json import LenientJsonError, parse_leniently
from dataset_packaging.core.merging import BoolArray, ValueReader
from dataset_packaging.core.reference import nearest_name
from dataset_packaging.core.schema import PATH_COLUMN, mergeable_columns
from dataset_packaging.core.uris import normalize_path
from dataset_packaging.errors import MergeSourceUnusable, ObjectDamaged, PermanentStoreError
from dataset_packaging.io.jsonl import Block, BlockReader, SourceFile, plan_blocks
from dataset_packaging.io.parquet import damage_told, open_parquet
from dataset_packaging.io.store import Stores

_PIECE_BYTES = 128 << 20
_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 1 << 15
_LINES_AT_ONCE = 4096

_NAN = b"NaN"

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Some row groups of a Parquet file: [start, end)."""

    source_uri: str
    start: int
    end: int


JsonFields: TypeAlias = dict[str, msgspec.Raw] | dict[str, bytes]
"""Fields of a line as JSON texts; `NaN` where a number is none that JSON has."""

Piece: TypeAlias = RowGroups | Block
"""What one task reads of a keyed source."""


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of a source.

    Attributes:
        keys: as the dataset writes them; null where the source has none.
        columns: by sidecar column, in its type.
        bad: by sidecar column, which values it cannot hold.
    """

    keys: pa.Array
    columns: dict[str, pa.Array]
    bad: dict[str, BoolArray]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class MergeReader:
    """Reads what one merge wants of a source.

    Attributes:
        config: the merge.
        key: name of the key column in the source.
        base_uri: for keys that are relative paths.
        readers: by sidecar column.
    """

    config: MergeConfig
    key: str
    base_uri: str | None
    readers: dict[str, ValueReader]

    @classmethod
    def of(cls, dataset: DatasetConfig, number: int) -> "MergeReader":
        """Return the reader of merge `number`; pure."""
        config = dataset.sidecar.merge[number]
        types = mergeable_columns(dataset.sidecar.extension_columns())
        readers = {name: ValueReader.of(name, types[name], column.cast) for name, column in config.columns.items()}
        return cls(config, config.source_key or config.key, dataset.mapping.base_uri, readers)

    def read(self, stores: Stores, piece: Piece) -> Iterator[tuple[SourceRows, int]]:
        """Yield the rows of a piece in batches, each with the number of lines that hold no object (JSONL).

        Raises MergeSourceUnusable where the piece cannot be read or lacks a field.
        """
        try:
            yield from (
                self._read_groups(stores, piece) if isinstance(piece, RowGroups) else self._read_block(stores, piece)
            )
        except (pa.ArrowException, PermanentStoreError) as error:
            raise MergeSourceUnusable(f"merge source {piece.source_uri} cannot be read: {error}") from error

    def read_file(self, stores: Stores, uri: str) -> SourceRows:
        """Read all rows of one Parquet file; see `read`. Raises NotFound where there is none."""
        file = open_parquet(stores, uri)
        wanted = self._fields(file.schema_arrow, uri)
        with damage_told(uri):
            table = file.read(columns=wanted)
        return self._rows(table.combine_chunks())

    def _read_groups(self, stores: Stores, piece: RowGroups) -> Iterator[tuple[SourceRows, int]]:
        file = open_parquet(stores, piece.source_uri)
        wanted = self._fields(file.schema_arrow, piece.source_uri)
        groups = range(piece.start, piece.end)
        sizes = [file.metadata.row_group(group) for group in groups]
        row_bytes = sum(group.total_byte_size for group in sizes) / max(1, sum(group.num_rows for group in sizes))
        batch_rows = max(64, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1.0, row_bytes))))
        for batch in file.iter_batches(batch_rows, row_groups=list(groups), columns=wanted):
            yield self._rows(pa.Table.from_batches([batch])), 0

    def _fields(self, schema: pa.Schema, uri: str) -> list[str]:
        """Return the top-level columns to read; raises MergeSourceUnusable where a field is not there."""
        names = self.config.columns
        wanted = [_top_level(schema, self.key)]
        if wanted == [None]:
            raise _lacking(uri, "the key", (self.key,), schema)
        for column, mapping in names.items():
            found = [top for name in mapping.from_ if (top := _top_level(schema, name)) is not None]
            if not found:
                raise _lacking(uri, column, mapping.from_, schema)
            wanted += found
        return list(dict.fromkeys(name for name in wanted if name is not None))

    def _rows(self, table: pa.Table) -> SourceRows:
        keys = _arrow_field(table, self.key)
        assert keys is not None
        columns: dict[str, pa.Array] = {}
        bad: dict[str, BoolArray] = {}
        for column, mapping in self.config.columns.items():
            reader = self.readers[column]
            parts = [part for name in mapping.from_ if (part := _arrow_field(table, name)) is not None]
            values = [reader.from_arrow(part) for part in parts]
            columns[column], bad[column] = _first_present(values)
        return SourceRows(self._keys(keys), columns, bad)

    def _keys(self, keys: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(keys.type):
            keys = keys.dictionary_decode()
        if self.config.key != PATH_COLUMN:
            return keys.cast(pa.string())
        texts = keys.cast(pa.string()).to_pylist()
        return pa.array([None if text is None else normalize_path(text, self.base_uri) for text in texts], pa.string())

    def _read_block(self, stores: Stores, block: Block) -> Iterator[tuple[SourceRows, int]]:
        lines: list[bytes] = []
        size = 0
        for _, line in BlockReader(stores, block):
            lines.append(line)
            size += len(line)
            if len(lines) == _LINES_AT_ONCE or size >= _BATCH_BYTES:
                yield self._rows_of_lines(lines)
                lines, size = [], 0
        if lines:
            yield self._rows_of_lines(lines)

    def _rows_of_lines(self, lines: Sequence[bytes]) -> tuple[SourceRows, int]:
        parsed = [fields for line in lines if (fields := _parse(line)) is not None]
        keys = [_key_text(_json_field(fields, self.key)) for fields in parsed]
        columns: dict[str, pa.Array] = {}
        bad: dict[str, BoolArray] = {}
        for column, mapping in self.config.columns.items():
            reader = self.readers[column]
            values = [_read_json_field(reader, parsed, name) for name in mapping.from_]
            columns[column], bad[column] = _first_present(values)
        rows = SourceRows(self._keys(pa.array(keys, pa.string())), columns, bad)
        return rows, len(lines) - len(parsed)


def _read_json_field(reader: ValueReader, parsed: Sequence[JsonFields], name: str) -> tuple[pa.Array, BoolArray]:
    raws = [_json_field(fields, name) for fields in parsed]
    numbers = [None if raw is not None and bytes(raw) == _NAN else raw for raw in raws]
    values, bad = reader.from_json(numbers)
    none = np.array([raw is not number for raw, number in zip(raws, numbers, strict=True)], bool)
    return values, bad | none


def _first_present(values: list[tuple[pa.Array, BoolArray]]) -> tuple[pa.Array, BoolArray]:
    """Return, row by row, the first of several arrays that is not null, and which rows have only bad values."""
    merged, bad = values[0]
    for more, more_bad in values[1:]:
        null = merged.is_null()
        bad = np.where(null.to_numpy(zero_copy_only=False) & ~more.is_null().to_numpy(zero_copy_only=False), False,
                       bad | (more_bad & null.to_numpy(zero_copy_only=False)))  # fmt: skip
        merged = pa.compute.if_else(null, more, merged)
    return merged, bad


def _top_level(schema: pa.Schema, name: str) -> str | None:
    """Return the first-level column in which a field stands: itself, or the start of a dotted name."""
    if schema.get_field_index(name) >= 0:
        return name
    top, dot, _ = name.partition(".")
    return top if dot and schema.get_field_index(top) >= 0 and pa.types.is_struct(schema.field(top).type) else None


def _arrow_field(table: pa.Table, name: str) -> pa.Array | None:
    if name in table.column_names:
        return _one_array(table[name])
    top, *path = name.split(".")
    if top not in table.column_names:
        return None
    values = _one_array(table[top])
    for step in path:
        if not pa.types.is_struct(values.type) or values.type.get_field_index(step) < 0:
            return None
        values = pa.compute.struct_field(values, step)
    return values


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _lacking(uri: str, what: str, names: Sequence[str], schema: pa.Schema) -> MergeSourceUnusable:
    if names[0] in schema.names:
        return MergeSourceUnusable(f"merge source {uri} has several columns {names[0]} for {what}: rename them")
    near = nearest_name(names[0], schema.names)
    hint = f"; did you mean `{near}`?" if near else f"; it has {', '.join(schema.names[:20])}"
    return MergeSourceUnusable(f"merge source {uri} has no column {' or '.join(names)} for {what}{hint}")


def _parse(line: bytes) -> JsonFields | None:
    try:
        return _decode_fields(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            fields = parse_leniently(line).items()
        except LenientJsonError:
            return None
    return {
        name: _NAN if field.raw == b"null" and "non_finite" in field.warnings else field.raw
        for name, field in fields
        if field.problem is None
    }


def _json_field(fields: JsonFields, name: str) -> Json | None:
    if (raw := fields.get(name)) is not None:
        return raw
    top, dot, rest = name.partition(".")
    if not dot or (raw := fields.get(top)) is None:
        return None
    try:
        return _json_field(_decode_fields(bytes(raw)), rest)
    except msgspec.DecodeError:
        return None


def _key_text(raw: Json | None) -> str | None:
    if raw is None or bytes(raw) in (b"null", _NAN):
        return None
    value = cast_text(bytes(raw)).value
    return value if isinstance(value, str) else None


def plan_pieces(stores: Stores, files: Sequence[SourceFile]) -> tuple[list[Piece], int]:
    """Return the pieces of a keyed source and about how many bytes its rows have in memory; reads heads and footers.

    Raises MergeSourceUnusable where a footer is damaged.
    """
    pieces: list[Piece] = []
    total = 0
    for file in files:
        if bytes(stores.get_range(file.uri, 0, 4)) == b"PAR1":
            try:
                groups, size = _plan_groups(file.uri, open_parquet(stores, file.uri).metadata)
            except ObjectDamaged as error:
                raise MergeSourceUnusable(f"merge source {file.uri} cannot be read: {error}") from error
            pieces += groups
            total += size
        else:
            blocks = plan_blocks(stores, file)
            pieces += blocks
            total += file.size_bytes * (1 if all(block.compression == "none" for block in blocks) else 6)
    return pieces, total


def _plan_groups(uri: str, metadata: pq.FileMetaData) -> tuple[list[RowGroups], int]:
    pieces: list[RowGroups] = []
    start = size = total = 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= _PIECE_BYTES or group == metadata.num_row_groups - 1:
            pieces.append(RowGroups(uri, start, group + 1))
            start, total, size = group + 1, total + size, 0
    return pieces, total
