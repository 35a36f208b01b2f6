"""The general way from lines to rows: any names, any values, and what a strict parser refuses.

Columns are cast a few dozen rows at a time where values need no closer look, else one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple

import msgspec
import orjson

from dataset_packaging.core.lenient_json import LenientJsonError, parse_leniently
from dataset_packaging.core.mapping_plan import MappingPlan
from dataset_packaging.core.meta_info import MetaInfoWriter
from dataset_packaging.core.row_chunk import HeldNames, RowChunk, fill_column
from dataset_packaging.core.schema import EXPECTED_COLUMNS, KEY_COLUMN, PATH_COLUMN

BAD_UNICODE = "bad_unicode"
DUPLICATE_JSON_KEY = "duplicate_json_key"

MAX_LINE_BYTES = 64 << 20
"""Lines that are longer, or cut at this length, are not looked at a second time."""

_split_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class RowReject:
    """A row without a place among the shards; `reason` is one of the contract's section 4."""

    line: int
    reason: str
    detail: str
    image_key: str | None = None
    s3_image_path: str | None = None


class GeneralRows(NamedTuple):
    """The rows of some lines.

    Attributes:
        numbers: of the lines that gave a row.
        columns: by name; every path is normalized.
        meta_info: JSON objects.
        warnings: sorted names of what was odd.
        rejects: lines that gave none, in no order.
        names: top-level names of the lines that are JSON objects.
    """

    numbers: Sequence[int]
    columns: dict[str, list[Any]]
    meta_info: list[str]
    warnings: list[tuple[str, ...]]
    rejects: list[RowReject]
    names: list[tuple[str, ...]]


class GeneralReader:
    """Reads any lines of one dataset's manifest."""

    def __init__(self, plan: MappingPlan, writer: MetaInfoWriter) -> None:
        self._plan = plan
        self._writer = writer
        self._sources_in = lru_cache(maxsize=1024)(plan.sources_in)

    def read(self, lines: Sequence[tuple[int, bytes]]) -> GeneralRows:
        """Return the rows of some lines; blank ones give neither row nor reject."""
        rejects: list[RowReject] = []
        chunk = self._parse(lines, rejects)
        columns, meta_info = self._fill(chunk)
        if chunk.suspects:
            chunk = self._parse_suspects(chunk, rejects)
            columns, meta_info = self._fill(chunk)
        names = [shape.names for shape in chunk.shapes]
        warnings = [tuple(sorted(chunk.warnings.get(row, ()))) for row in range(len(chunk.numbers))]
        numbers: Sequence[int] = chunk.numbers
        kept = self._reject(chunk, columns, rejects)
        if kept is not None:
            columns = {name: list(compress(values, kept)) for name, values in columns.items()}
            meta_info = list(compress(meta_info, kept))
            warnings = list(compress(warnings, kept))
            numbers = list(compress(numbers, kept))
        return GeneralRows(numbers, columns, [text.decode() for text in meta_info], warnings, rejects, names)

    def _parse(self, lines: Sequence[tuple[int, bytes]], rejects: list[RowReject]) -> RowChunk:
        """Split lines into fields; what is no JSON object becomes a reject."""
        chunk = RowChunk()
        shape_of = self._writer.shape_of
        for number, line in lines:
            try:
                fields = _split_fields(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                if line.strip():
                    self._add_leniently(chunk, number, line, rejects)
                continue
            shape = shape_of(fields)
            row = chunk.add(number, line, fields, shape)
            if not shape.repeats_no_name(line, len(b"".join(fields.values()))) and self._repeats_a_name(line):
                chunk.warn(row, DUPLICATE_JSON_KEY)
        return chunk

    def _add_leniently(self, chunk: RowChunk, number: int, line: bytes, rejects: list[RowReject]) -> None:
        if len(line) >= MAX_LINE_BYTES:
            detail = f"not one JSON object within the first {MAX_LINE_BYTES} bytes"
            rejects.append(RowReject(number, "bad_row", detail))
            return
        try:
            found = parse_leniently(line)
        except LenientJsonError as error:
            rejects.append(RowReject(number, "bad_row", str(error)))
            return
        fields = {name: value for name, value in found.items() if self._is_read(name)}
        if problem := next((f"{name}: {value.problem}" for name, value in fields.items() if value.problem), None):
            rejects.append(RowReject(number, "bad_row", f"a value that cannot be kept: {problem}"))
            return
        raws = {name: value.raw for name, value in fields.items()}
        row = chunk.add(number, line, raws, self._writer.shape_of(raws))
        chunk.lenient.add(row)
        for name, value in fields.items():
            for warning in value.warnings:
                chunk.warn(row, warning)
            if BAD_UNICODE in value.warnings:
                chunk.repaired.setdefault(row, set()).add(name)

    def _repeats_a_name(self, line: bytes) -> bool:
        """Return whether a line, which a strict parser took, has the name of a field that counts twice."""
        try:
            text = line.decode("utf-8", "replace")
            pairs = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
        except RecursionError:
            found = parse_leniently(line)
            return any(DUPLICATE_JSON_KEY in value.warnings for name, value in found.items() if self._is_read(name))
        names = [name for name, _ in pairs if self._is_read(name)]
        return len(names) != len(set(names))

    def _is_read(self, name: str) -> bool:
        return self._plan.survives(name) or name in self._plan.read_names

    def _fill(self, chunk: RowChunk) -> tuple[dict[str, list[Any]], list[bytes]]:
        """Return all columns of some rows, and the meta_info objects of what they do not hold."""
        names, held = chunk.names() & self._plan.read_names, HeldNames(len(chunk.fields))
        sources = self._sources_in(names)
        columns = {
            name: fill_column(plan, sources[name], chunk, names, None if name in EXPECTED_COLUMNS else held)
            for name, plan in self._plan.columns.items()
        }
        write = self._writer.write
        meta_info = [write(*row) for row in zip(chunk.shapes, chunk.fields, held.of_rows(), strict=True)]
        for row, text in enumerate(meta_info):
            try:
                orjson.loads(text)
            except orjson.JSONDecodeError:
                chunk.suspects.add(row)
        return columns, meta_info

    def _parse_suspects(self, chunk: RowChunk, rejects: list[RowReject]) -> RowChunk:
        """Return the same rows, those that a strict parser would refuse parsed leniently."""
        again = RowChunk()
        for row, (number, line) in enumerate(zip(chunk.numbers, chunk.lines, strict=True)):
            if row in chunk.suspects or row in chunk.lenient:
                self._add_leniently(again, number, line, rejects)
            else:
                place = again.add(number, line, chunk.fields[row], chunk.shapes[row])
                for warning in chunk.warnings.get(row, ()):
                    again.warn(place, warning)
        return again

    def _reject(self, chunk: RowChunk, columns: Mapping[str, list[Any]], rejects: list[RowReject]) -> list[bool] | None:
        """Add rejects for rows without a place to read from; return which rows are kept, None for all."""
        paths, keys = columns[PATH_COLUMN], columns[KEY_COLUMN]
        kept: list[bool] | None = None
        for row, path in enumerate(paths):
            if type(path) is str and row not in chunk.repaired and row not in chunk.suspects:
                continue
            if (reason := self._reason(chunk, row, path)) is not None:
                kept = kept or [True] * len(paths)
                kept[row] = False
                rejects.append(RowReject(chunk.numbers[row], *reason, keys[row], path and str(path)))
        return kept

    def _reason(self, chunk: RowChunk, row: int, path: str | None) -> tuple[str, str] | None:
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
