"""From manifest lines to rows: canonical columns, everything else in meta_info, broken lines as rejects.

The loop over all lines of a manifest. A line is split once into its top-level fields, as slices of its own text; columns
are cast a few dozen rows at a time, and what no column holds is joined from the slices. Lines that a strict parser
refuses, and casts that need a closer look, take slower ways to the same result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Literal

import msgspec
import orjson

from dataset_packaging.config import MappingConfig
from dataset_packaging.core.casts import Json
from dataset_packaging.core.lenient_json import LenientJsonError, parse_leniently
from dataset_packaging.core.mapping_plan import plan_mapping
from dataset_packaging.core.meta_info import MetaInfoWriter, merge_packaging
from dataset_packaging.core.row_chunk import HeldNames, RowChunk, fill_column
from dataset_packaging.core.schema import (
    EXPECTED_COLUMNS,
    HEIGHT_COLUMN,
    KEY_COLUMN,
    MAIN_COLUMNS,
    PATH_COLUMN,
    WIDTH_COLUMN,
    ExtensionColumn,
)
from dataset_packaging.core.uris import normalize_path

__all__ = ["MappedRows", "RecordMapper", "RowReject", "merge_packaging", "normalize_path"]

BAD_UNICODE = "bad_unicode"
DUPLICATE_JSON_KEY = "duplicate_json_key"
HASH_BYTES = 16

MAX_LINE_BYTES = 64 << 20
"""Lines that are longer, or cut at this length, are not looked at a second time."""

_CHUNK_ROWS = 64
_CHUNK_BYTES = 2**20
_PLACED = frozenset({KEY_COLUMN, PATH_COLUMN, WIDTH_COLUMN, HEIGHT_COLUMN, *EXPECTED_COLUMNS})

_split_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode_values = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class RowReject:
    """A row without a place among the shards; `reason` is one of the contract's section 4."""

    line: int
    reason: str
    detail: str
    image_key: str | None = None
    s3_image_path: str | None = None


@dataclass(slots=True)
class MappedRows:
    """The rows of some lines, column by column; all lists but `rejects` have one item per row, in the order of lines.

    Attributes:
        manifest_uri: where the lines come from.
        columns: values of the canonical columns that are neither listed here nor measured, ready for `pa.array`.
        line: as given with the line.
        width_px: of the manifest, None if unknown; so is `height_px`, both or none.
        expected_sha256: what the manifest says of the file, None if nothing; so are the other `expected_*`.
        meta_info: JSON objects, without `_packaging`.
        warnings: sorted names of what was odd.
        main_hash: 16 bytes of everything here that decides about the row of the main shard; stable across versions.
        side_hash: the same of what only the sidecar holds.
        rejects: lines that give no row, in their order.
        rows: lines that are not blank, rejects included.
    """

    manifest_uri: str
    columns: dict[str, list[Any]]
    image_key: list[str] = field(default_factory=list)
    s3_image_path: list[str] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    width_px: list[int | None] = field(default_factory=list)
    height_px: list[int | None] = field(default_factory=list)
    expected_sha256: list[str | None] = field(default_factory=list)
    expected_md5: list[str | None] = field(default_factory=list)
    expected_bytes: list[int | None] = field(default_factory=list)
    meta_info: list[str] = field(default_factory=list)
    warnings: list[tuple[str, ...]] = field(default_factory=list)
    main_hash: list[bytes] = field(default_factory=list)
    side_hash: list[bytes] = field(default_factory=list)
    rejects: list[RowReject] = field(default_factory=list)
    rows: int = 0


class RecordMapper:
    """Maps the lines of one dataset's manifest.

    Args:
        mapping: of the dataset.
        extensions: its filter_* columns.
        dimensions: `probe` ignores the sizes that the manifest gives.
    """

    def __init__(
        self,
        mapping: MappingConfig,
        extensions: Sequence[ExtensionColumn] = (),
        dimensions: Literal["auto", "probe", "manifest"] = "auto",
    ) -> None:
        self._plan = plan_mapping(mapping, extensions)
        self._base_uri = mapping.base_uri
        self._reads_sizes = dimensions != "probe"
        self._meta_info = MetaInfoWriter(self._plan.survives)
        self._column_names = tuple(name for name in self._plan.columns if name not in _PLACED)
        self._main_names = tuple(name for name in self._column_names if name in MAIN_COLUMNS)
        self._side_names = tuple(name for name in self._column_names if name not in MAIN_COLUMNS)

    def map_lines(self, lines: Iterable[tuple[int, bytes]], manifest_uri: str) -> MappedRows:
        """Return the rows of some lines.

        Pure: a row depends on its line alone, not on its neighbours. Never raises for anything that a line holds.

        Args:
            lines: pairs of a line number, which is only carried along, and the line without its end.
            manifest_uri: is only carried along.
        """
        mapped = MappedRows(manifest_uri, {name: [] for name in self._column_names})
        for chunk in _chunks(lines):
            self._map_chunk(self._parse(chunk, mapped), mapped)
        mapped.rejects.sort(key=lambda reject: reject.line)
        return mapped

    def _parse(self, lines: Sequence[tuple[int, bytes]], mapped: MappedRows) -> RowChunk:
        """Split lines into fields; what is no JSON object becomes a reject."""
        chunk = RowChunk()
        shape_of = self._meta_info.shape_of
        for number, line in lines:
            try:
                fields = _split_fields(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                if line.strip():
                    mapped.rows += 1
                    self._add_leniently(chunk, number, line, mapped)
                continue
            mapped.rows += 1
            shape = shape_of(fields)
            if shape.repeats_no_name(line, len(b"".join(fields.values()))) or not _repeats_a_name(line, fields):
                chunk.add(number, line, fields, shape)
            else:
                self._add_leniently(chunk, number, line, mapped)
        return chunk

    def _add_leniently(self, chunk: RowChunk, number: int, line: bytes, mapped: MappedRows) -> None:
        if len(line) >= MAX_LINE_BYTES:
            detail = f"not one JSON object within the first {MAX_LINE_BYTES} bytes"
            mapped.rejects.append(RowReject(number, "bad_row", detail))
            return
        try:
            found = parse_leniently(line)
        except LenientJsonError as error:
            mapped.rejects.append(RowReject(number, "bad_row", str(error)))
            return
        fields = {name: value for name, value in found.items() if self._is_read(name)}
        if problem := next((f"{name}: {value.problem}" for name, value in fields.items() if value.problem), None):
            mapped.rejects.append(RowReject(number, "bad_row", f"a value that cannot be kept: {problem}"))
            return
        raws = {name: value.raw for name, value in fields.items()}
        row = chunk.add(number, line, raws, self._meta_info.shape_of(raws))
        chunk.lenient.add(row)
        for name, value in fields.items():
            for warning in value.warnings:
                chunk.warn(row, warning)
            if BAD_UNICODE in value.warnings:
                chunk.repaired.setdefault(row, set()).add(name)

    def _is_read(self, name: str) -> bool:
        return self._plan.survives(name) or name in self._plan.read_names

    def _map_chunk(self, chunk: RowChunk, mapped: MappedRows) -> None:
        columns, meta_info = self._fill(chunk)
        if chunk.suspects:
            again = RowChunk()
            for row, (number, line) in enumerate(zip(chunk.numbers, chunk.lines, strict=True)):
                if row in chunk.suspects or row in chunk.lenient:
                    self._add_leniently(again, number, line, mapped)
                else:
                    again.add(number, line, chunk.fields[row], chunk.shapes[row])
            chunk = again
            columns, meta_info = self._fill(chunk)
        self._append(chunk, columns, meta_info, mapped)

    def _fill(self, chunk: RowChunk) -> tuple[dict[str, list[Any]], list[bytes]]:
        """Return all columns of some rows, and the meta_info objects of what they do not hold."""
        names, held = chunk.names(), HeldNames(len(chunk.fields))
        columns = {
            name: fill_column(plan, chunk, names, None if name in EXPECTED_COLUMNS else held)
            for name, plan in self._plan.columns.items()
        }
        write = self._meta_info.write
        meta_info = [write(*row) for row in zip(chunk.shapes, chunk.fields, held.of_rows(), strict=True)]
        for row, text in enumerate(meta_info):
            try:
                orjson.loads(text)
            except orjson.JSONDecodeError:
                chunk.suspects.add(row)
        return columns, meta_info

    def _append(
        self, chunk: RowChunk, columns: Mapping[str, list[Any]], meta_info: Sequence[bytes], mapped: MappedRows
    ) -> None:
        warnings = [tuple(sorted(chunk.warnings.get(row, ()))) for row in range(len(chunk.numbers))]
        numbers: Sequence[int] = chunk.numbers
        kept = self._reject(chunk, columns, mapped)
        if kept is not None:
            columns = {name: list(compress(values, kept)) for name, values in columns.items()}
            meta_info = list(compress(meta_info, kept))
            warnings = list(compress(warnings, kept))
            numbers = list(compress(numbers, kept))
        paths = columns[PATH_COLUMN]
        keys = [key or path for key, path in zip(columns[KEY_COLUMN], paths, strict=True)]
        texts = [text.decode() for text in meta_info]
        nothing = [None] * len(keys)
        sha256, md5, size_bytes = (columns.get(name, nothing) for name in EXPECTED_COLUMNS)
        main_values = [columns[name] for name in self._main_names]
        mapped.main_hash += _hash_rows(keys, paths, *main_values, sha256, md5, size_bytes)
        mapped.side_hash += _hash_rows(texts, warnings, *(columns[name] for name in self._side_names))
        mapped.image_key += keys
        mapped.s3_image_path += paths
        mapped.line += numbers
        widths, heights = _known_sizes(columns) if self._reads_sizes else (nothing, nothing)
        mapped.width_px += widths
        mapped.height_px += heights
        mapped.expected_sha256 += sha256
        mapped.expected_md5 += md5
        mapped.expected_bytes += size_bytes
        mapped.meta_info += texts
        mapped.warnings += warnings
        for name in self._column_names:
            mapped.columns[name] += columns[name]

    def _reject(
        self, chunk: RowChunk, columns: Mapping[str, list[Any]], mapped: MappedRows
    ) -> list[bool] | None:
        """Add rejects for rows without a place to read from; return which rows are kept, None for all."""
        paths, keys = columns[PATH_COLUMN], columns[KEY_COLUMN]
        kept: list[bool] | None = None
        for row, path in enumerate(paths):
            if type(path) is str and row not in chunk.repaired and row not in chunk.suspects:
                continue
            if (reason := self._reason(chunk, row, path)) is not None:
                kept = kept or [True] * len(paths)
                kept[row] = False
                mapped.rejects.append(RowReject(chunk.numbers[row], *reason, keys[row], path and str(path)))
        return kept

    def _reason(
        self, chunk: RowChunk, row: int, path: str | None
    ) -> tuple[str, str] | None:
        if row in chunk.suspects:
            return "bad_row", "a value that cannot be kept"
        if path is None:
            names = ", ".join(source.name for source in self._plan.columns[PATH_COLUMN].sources)
            return "missing_path", f"none of {names}"
        if type(path) is not str:
            return "bad_path", "names no s3 or file address"
        heads = {source.way[0] for source in self._plan.columns[PATH_COLUMN].sources}
        if "\ufffd" in path and heads & chunk.repaired[row]:
            return "bad_path", "holds characters that are no Unicode"
        return None


def _known_sizes(columns: Mapping[str, Sequence[Any]]) -> tuple[list[int | None], list[int | None]]:
    """Return widths and heights; a side without the other is unknown."""
    widths, heights = columns[WIDTH_COLUMN], columns[HEIGHT_COLUMN]
    if None not in widths and None not in heights:
        return list(widths), list(heights)
    both = [(w, h) if w is not None and h is not None else (None, None) for w, h in zip(widths, heights, strict=True)]
    return [width for width, _ in both], [height for _, height in both]


def _hash_rows(*columns: Sequence[Any]) -> list[bytes]:
    """Return 16 bytes for each row: BLAKE2b of its values in MessagePack, whose encoding of each is unique here."""
    hash_of, encode = hashlib.blake2b, _encode_values
    return [hash_of(encode(row), digest_size=HASH_BYTES).digest() for row in zip(*columns, strict=True)]


def _repeats_a_name(line: bytes, fields: Mapping[str, Json]) -> bool:
    """Return whether a line, which a strict parser took, has a top-level name twice."""
    try:
        text = line.decode("utf-8", "replace")
        pairs = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
    except RecursionError:
        return True
    return len(pairs) != len(fields)


def _chunks(lines: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lines a few at a time, bounded in number and bytes."""
    chunk: list[tuple[int, bytes]] = []
    size_bytes = 0
    for line in lines:
        chunk.append(line)
        size_bytes += len(line[1])
        if len(chunk) >= _CHUNK_ROWS or size_bytes >= _CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk
