"""The short way for ordinary rows: known names, each once, and values that need no closer look.

Most rows of most manifests are of this kind. They are decoded straight into columns; only what may have to stand in
meta_info is kept as text. Whatever is not ordinary is left to `records`, whose general way gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, NamedTuple

import msgspec
import orjson

from dataset_packaging.core.byte_scan import NameCounter, may_hold_huge_number
from dataset_packaging.core.mapping_plan import ColumnPlan, MappingPlan, Source
from dataset_packaging.core.meta_info import MetaInfoWriter
from dataset_packaging.core.schema import EXPECTED_COLUMNS, PATH_COLUMN

MOST_NAMES = 512
"""With more names than this the general way is faster."""

_astuple = msgspec.structs.astuple
_Values = Sequence[Any]


class TypedRows(NamedTuple):
    """The columns of some rows, and their meta_info objects."""

    columns: dict[str, list[Any]]
    meta_info: list[str]


@dataclass(frozen=True, slots=True)
class _Read:
    """How a column is read: from one field, and only where the other sources have nothing to say."""

    plan: ColumnPlan
    field: str
    source: Source
    is_typed: bool
    other_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """What follows from the names that are known.

    Attributes:
        decode: one line to a struct of one attribute per name.
        names: in the order of the attributes.
        optional: names that a row may lack.
        texts: names whose values are kept as text.
        reads: columns with a source among the names.
        openings: names that may reach meta_info, in its order, with how they stand there.
        held: names of `openings` that stand there only where their columns do not hold them.
    """

    decode: Callable[[bytes], Any]
    names: tuple[str, ...]
    optional: tuple[str, ...]
    texts: tuple[str, ...]
    reads: tuple[_Read, ...]
    openings: Mapping[str, bytes]
    held: frozenset[str]


class TypedReader:
    """Reads chunks of ordinary rows of one dataset, once it has learned their names."""

    def __init__(self, plan: MappingPlan, writer: MetaInfoWriter) -> None:
        self._plan = plan
        self._writer = writer
        self._count = NameCounter().count
        self._layout: _Layout | None = None
        self._seen: dict[str, bool] = {}

    def learn(self, rows: Iterable[Collection[str]]) -> None:
        """Note the names of rows that went the general way; names that not all of them have become optional.

        Names stay in the order of the rows, in which they are found fastest.
        """
        if len(self._seen) > MOST_NAMES:
            return
        before = dict(self._seen)
        is_first = not before
        for names in rows:
            for name in names:
                self._seen.setdefault(name, is_first)
            for name in self._seen.keys() - names:
                self._seen[name] = False
            is_first = False
        if self._seen != before:
            self._layout = _lay_out(self._seen, self._plan, self._writer)

    def read(self, lines: Sequence[bytes]) -> TypedRows | None:
        """Return the rows of some lines, None if any of them is not ordinary."""
        if self._layout is None:
            return None
        try:
            return self._read(self._layout, lines)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, orjson.JSONDecodeError):
            return None

    def _read(self, layout: _Layout, lines: Sequence[bytes]) -> TypedRows | None:
        rows = [_astuple(layout.decode(line)) for line in lines]
        fields: dict[str, _Values] = dict(zip(layout.names, zip(*rows, strict=True), strict=True))
        absent = {name: [value is msgspec.UNSET for value in fields[name]] for name in layout.optional}
        absent = {name: flags for name, flags in absent.items() if True in flags}
        for name, flags in absent.items():
            fields[name] = [None if is_absent else value for value, is_absent in zip(fields[name], flags, strict=True)]
        name_count = len(rows) * len(layout.names) - sum(map(sum, absent.values()))
        if not self._names_stand_once(layout, lines, fields, name_count):
            return None
        columns = {name: [plan.constant] * len(rows) for name, plan in self._plan.columns.items()}
        lost: dict[str, set[int]] = {}
        for read in layout.reads:
            values, inexact_rows = _fill(read, fields)
            if read.other_fields and not _others_are_silent(read, values, fields):
                return None
            columns[read.plan.name] = values
            if read.plan.name not in EXPECTED_COLUMNS and not read.source.is_nested:
                lost_rows = set(inexact_rows)
                lost[read.field] = lost[read.field] & lost_rows if read.field in lost else lost_rows
        if any(type(path) is not str for path in columns[PATH_COLUMN]):
            return None
        return TypedRows(columns, _write_meta_info(layout, fields, absent, lost))

    def _names_stand_once(
        self, layout: _Layout, lines: Sequence[bytes], fields: Mapping[str, _Values], name_count: int
    ) -> bool:
        """Return whether the lines surely hold no more names than were found."""
        count = self._count(b"\n".join(lines))
        texts = b"\n".join([value for name in layout.texts for value in fields[name] if value is not None])
        inner_count = self._count(texts)
        if count is None or inner_count is None:
            return False
        surplus = count - inner_count - name_count
        if surplus > 0:
            surplus -= sum(map(_count_in_texts, (fields[name] for name in layout.names if name not in layout.texts)))
        return surplus == 0


def _fill(read: _Read, fields: Mapping[str, _Values]) -> tuple[list[Any], Sequence[int]]:
    values, caster = fields[read.field], read.plan.caster
    if read.is_typed:
        return caster.finish(values)
    if read.source.is_nested:
        values = [None if value is None else read.source.read_inside(value) for value in values]
    return caster.decode_all(values)


def _others_are_silent(read: _Read, values: _Values, fields: Mapping[str, _Values]) -> bool:
    """Return whether no row without a value has another field that might give one."""
    empty_rows = [row for row, value in enumerate(values) if value is None]
    return all(fields[name][row] is None for row in empty_rows for name in read.other_fields)


def _count_in_texts(values: _Values) -> int:
    """Return how often a quote and a colon stand in texts, or in lists of texts."""
    count = 0
    for value in values:
        if type(value) is list:
            count += _count_in_texts(value)
        elif type(value) is str and '"' in value:
            count += value.count('":')
    return count


def _write_meta_info(
    layout: _Layout, fields: Mapping[str, _Values], absent: Mapping[str, list[bool]], lost: Mapping[str, set[int]]
) -> list[str]:
    """Return the meta_info objects of a chunk.

    Raises:
        UnicodeDecodeError, orjson.JSONDecodeError: a strict parser would refuse one of them.
    """
    row_count = len(fields[layout.names[0]])
    openings: list[bytes] = []
    values: list[_Values] = []
    stands: list[Sequence[bool]] = []
    is_uniform = True
    for name, opening in layout.openings.items():
        flags: Sequence[bool] = [True] * row_count
        if name in layout.held:
            if not lost[name]:
                continue
            flags = [row in lost[name] for row in range(row_count)]
        elif name in absent:
            flags = [not is_absent for is_absent in absent[name]]
        is_uniform = is_uniform and False not in flags
        openings.append(opening)
        values.append(fields[name])
        stands.append(flags)
    if not openings:
        return ["{}"] * row_count
    join, flatten = b"".join, chain.from_iterable
    if is_uniform:
        openings[0] = b"{" + openings[0][1:]
        texts = [join(flatten(zip(openings, row, strict=True))) + b"}" for row in zip(*values, strict=True)]
    else:
        parts = [
            join(flatten(zip(compress(openings, flags), compress(row, flags), strict=True)))
            for row, flags in zip(zip(*values, strict=True), zip(*stands, strict=True), strict=True)
        ]
        texts = [b"{%b}" % part[1:] for part in parts]
    if may_hold_huge_number(b"\n".join(texts)):
        for text in texts:
            orjson.loads(text)
    return [text.decode() for text in texts]


def _lay_out(seen: Mapping[str, bool], plan: MappingPlan, writer: MetaInfoWriter) -> _Layout | None:
    """Return the layout of known names, each with whether every row has it; None if rows are better read generally."""
    names = tuple(seen)
    if not 0 < len(names) <= MOST_NAMES or not all(map(_can_be_attribute, names)) or writer.may_rename(names):
        return None
    reads: list[_Read] = []
    for column_name, sources in plan.sources_in(seen).items():
        column = plan.columns[column_name]
        if not sources:
            continue
        if any(source.is_nested and source.name in seen for source in sources):
            return None
        first, *others = sources
        is_typed = column.caster.type is not None and column.caster.is_exact and not first.is_nested
        reads.append(_Read(column, first.way[0], first, is_typed, tuple(source.way[0] for source in others)))
    types = _types_of(names, reads)
    reads = [_Read(r.plan, r.field, r.source, types[r.field] is not msgspec.Raw, r.other_fields) for r in reads]
    held = {r.field for r in reads if not r.source.is_nested and r.plan.name not in EXPECTED_COLUMNS}
    texts = tuple(name for name in names if types[name] is msgspec.Raw)
    openings = {name: writer.opening(name) for name in sorted(texts) if plan.survives(name)}
    optional = tuple(name for name in names if not seen[name])
    return _Layout(_decoder(types, seen), names, optional, texts, tuple(reads), openings, frozenset(held))


def _types_of(names: Iterable[str], reads: Sequence[_Read]) -> dict[str, Any]:
    """Return what each field is decoded to: the type of its column where one is enough, else its text."""
    types: dict[str, Any] = dict.fromkeys(names, msgspec.Raw)
    doubtful = {name for read in reads for name in read.other_fields}
    doubtful |= {read.field for read in reads if not read.is_typed}
    for read in reads:
        wanted = read.plan.caster.type
        if read.field not in doubtful and types[read.field] in (msgspec.Raw, wanted):
            types[read.field] = wanted
        else:
            types[read.field] = msgspec.Raw
            doubtful.add(read.field)
    return types


def _decoder(types: Mapping[str, Any], seen: Mapping[str, bool]) -> Callable[[bytes], Any]:
    attributes: list[tuple[Any, ...]] = []
    for place, (name, type_) in enumerate(types.items()):
        value_type = type_ if type_ is msgspec.Raw else type_ | None
        if seen[name]:
            attributes.append((f"f{place}", value_type))
        else:
            attributes.append((f"f{place}", value_type | msgspec.UnsetType, msgspec.UNSET))
    rename = {f"f{place}": name for place, name in enumerate(types)}
    row_type = msgspec.defstruct("Row", attributes, rename=rename, kw_only=True, gc=False, forbid_unknown_fields=True)
    return msgspec.json.Decoder(row_type).decode


def _can_be_attribute(name: str) -> bool:
    return not any(character in '"\\' or character < " " for character in name)
