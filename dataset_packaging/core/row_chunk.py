"""A few dozen manifest lines at a time: their fields, the columns that are cast from them, and what columns hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dataset_packaging.core.casts import BAD_VALUE, Cast, Json
from dataset_packaging.core.mapping_plan import ColumnPlan, Source
from dataset_packaging.core.meta_info import Shape

_BAD = Cast(None, False, BAD_VALUE)


@dataclass(slots=True)
class RowChunk:
    """Lines that are JSON objects, and what is known of them; rows are counted from 0.

    Attributes:
        numbers: the line numbers.
        lines: the text of each line.
        fields: its top-level fields, as slices of it.
        shapes: what follows from their names.
        warnings: by row, where there are any.
        lenient: rows that a strict parser refused.
        repaired: by row, the fields in which characters had to be replaced.
        suspects: rows in which a strict parser would refuse something that was only skipped over.
    """

    numbers: list[int] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    fields: list[Mapping[str, Json]] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    warnings: dict[int, set[str]] = field(default_factory=dict)
    lenient: set[int] = field(default_factory=set)
    repaired: dict[int, set[str]] = field(default_factory=dict)
    suspects: set[int] = field(default_factory=set)

    def add(self, number: int, line: bytes, fields: Mapping[str, Json], shape: Shape) -> int:
        """Append a row and return its place."""
        self.numbers.append(number)
        self.lines.append(line)
        self.fields.append(fields)
        self.shapes.append(shape)
        return len(self.numbers) - 1

    def warn(self, row: int, warning: str) -> None:
        """Note that something about a row is odd."""
        self.warnings.setdefault(row, set()).add(warning)

    def names(self) -> frozenset[str]:
        """Return all names that any row has."""
        return frozenset().union(*{id(shape): shape.names for shape in self.shapes}.values())


class HeldNames:
    """Which source fields the columns hold, row by row, so that meta_info need not repeat them.

    Most rows agree: `first sources` of the columns, but for the rows where a cast changed the value.
    """

    def __init__(self, row_count: int) -> None:
        self._row_count = row_count
        self._lost_rows: dict[str, set[int]] = {}
        self._also: dict[int, set[str]] = {}

    def hold_first(self, name: str, lost_rows: set[int]) -> None:
        """Note the first source of a column, and the rows in which the column does not hold it.

        With several columns of one source it is enough that one of them holds it.
        """
        if name in self._lost_rows:
            lost_rows = self._lost_rows[name] & lost_rows
        self._lost_rows[name] = lost_rows

    def hold(self, name: str, row: int) -> None:
        """Note that a column holds another source in one row."""
        self._also.setdefault(row, set()).add(name)

    def of_rows(self) -> list[frozenset[str]]:
        """Return the held names of each row; rows that agree share one set."""
        lost_bits = [0] * self._row_count
        for bit, rows in enumerate(self._lost_rows.values()):
            for row in rows:
                lost_bits[row] |= 1 << bit
        sets = {bits: self._without(bits) for bits in set(lost_bits)}
        held = [sets[bits] for bits in lost_bits]
        for row, names in self._also.items():
            held[row] = held[row] | names
        return held

    def _without(self, lost_bits: int) -> frozenset[str]:
        return frozenset(name for bit, name in enumerate(self._lost_rows) if not lost_bits >> bit & 1)


def fill_column(
    plan: ColumnPlan, sources: Sequence[Source], chunk: RowChunk, names: Collection[str], held: HeldNames | None
) -> list[Any]:
    """Return the values of one column, and note warnings, suspects and held names on the way.

    Args:
        plan: of the column.
        sources: those of its sources that rows with these names can have.
        chunk: the rows.
        names: all names that any row has.
        held: None for columns that do not reach the output.
    """
    row_count = len(chunk.fields)
    if not sources:
        return [plan.constant] * row_count
    first = sources[0]
    try:
        if first.is_nested and first.name in names:
            raise msgspec.DecodeError("two places to look at")
        values, inexact_rows = plan.caster.decode_all(first.read_all(chunk.fields))
        lost_rows = set(inexact_rows)
        open_rows = [row for row, value in enumerate(values) if value is None] if len(sources) > 1 else []
    except (msgspec.DecodeError, RecursionError):
        values, lost_rows = [None] * row_count, set()
        open_rows = list(range(row_count))
    for row in open_rows:
        values[row] = _fill_row(plan, sources, chunk, row, held, lost_rows)
    if held is not None and not first.is_nested:
        held.hold_first(first.name, lost_rows)
    return values


def _fill_row(
    plan: ColumnPlan,
    sources: Sequence[Source],
    chunk: RowChunk,
    row: int,
    held: HeldNames | None,
    lost_rows: set[int],
) -> Any:
    """Return the value of one column in one row, from the first source that is not null."""
    fields, cast = chunk.fields[row], Cast(None, False)
    nulls: list[str] = []
    for source in sources:
        try:
            raw, is_top_level = source.read(fields)
            text = None if raw is None else bytes(raw)
            if text is None or text == b"null":
                if text is not None and is_top_level:
                    nulls.append(source.name)
                continue
            cast = plan.caster.cast(text)
        except (msgspec.DecodeError, RecursionError) as error:
            if row not in chunk.lenient and not isinstance(error, RecursionError):
                chunk.suspects.add(row)
            cast, is_top_level = _BAD, True
        if cast.warning is not None:
            chunk.warn(row, cast.warning)
        if source is sources[0] and not cast.exact:
            lost_rows.add(row)
        elif held is not None and is_top_level and cast.exact:
            held.hold(source.name, row)
        break
    if held is not None and cast.value is None:
        for name in nulls:
            held.hold(name, row)
    elif sources[0].name in nulls:
        lost_rows.add(row)
    return cast.value
