"""The meta_info object of a row: source fields that no column holds, joined from slices of the source's own text.

Values are never parsed and written again, so that digits, `1.0` against `1` and escapes stay as they are; names stand
in alphabetical order. Rows of one manifest have few different sets of names, so that everything that depends on names
alone is worked out once per set.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any

import msgspec

from dataset_packaging.core.casts import Json
from dataset_packaging.core.schema import PACKAGING_KEY

_MOST_SHAPES = 4096


@dataclass(frozen=True, slots=True)
class _Template:
    """How to write the fields that remain of one set of names."""

    openings: tuple[bytes, ...]
    pick: Callable[[Mapping[str, Json]], tuple[Json, ...]]

    def write(self, fields: Mapping[str, Json]) -> bytes:
        if not self.openings:
            return b"{}"
        return b"".join(chain.from_iterable(zip(self.openings, self.pick(fields), strict=True))) + b"}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What follows from the names of a row's fields, in their order.

    Attributes:
        names: the names.
        compact_bytes: length of an object of these names without its values, without blanks; one for names that are
            written as UTF-8 and one for names with escapes.
        spaced_bytes: the same with one blank after each `:` and `,`.
        spaced_openings: how such a spaced object begins.
    """

    names: tuple[str, ...]
    compact_bytes: frozenset[int]
    spaced_bytes: frozenset[int]
    spaced_openings: tuple[bytes, ...]
    templates: dict[frozenset[str], _Template] = field(default_factory=dict)

    def repeats_no_name(self, line: bytes, values_bytes: int) -> bool:
        """Return True if the line surely has each name once; False means that somebody has to look closer.

        A repeated name would make the line longer than its names and last values. Blanks do so as well, but writers put
        none or one after each separator, and the beginning tells which.
        """
        rest_bytes = len(line) - values_bytes
        if rest_bytes in self.spaced_bytes:
            return line.startswith(self.spaced_openings)
        return rest_bytes in self.compact_bytes


class MetaInfoWriter:
    """Writes meta_info objects.

    Args:
        survives: whether a field of this name may reach meta_info at all.
    """

    def __init__(self, survives: Callable[[str], bool]) -> None:
        self._survives = survives
        self._shapes: dict[tuple[str, ...], Shape] = {}

    def shape_of(self, fields: Mapping[str, Any]) -> Shape:
        """Return the shape of a row's names."""
        names = tuple(fields)
        return self._shapes.get(names) or self._learn(names)

    def write(self, shape: Shape, fields: Mapping[str, Json], held: frozenset[str]) -> bytes:
        """Return the object of the fields that survive and whose names are not in `held` (a column holds them).

        `_packaging` of the source becomes `_packaging_source`: its own name is reserved.
        """
        template = shape.templates.get(held) or self._template(shape, held)
        return template.write(fields)

    def opening(self, name: str) -> bytes:
        """Return how a field begins in an object, after a comma; only for names that `may_rename` lets pass."""
        return b"," + msgspec.json.encode(_free_name(name, ())) + b":"

    def may_rename(self, names: Collection[str]) -> bool:
        """Return whether the name that a field gets depends on the other names of its row."""
        return PACKAGING_KEY in names and any(name.startswith(f"{PACKAGING_KEY}_source") for name in names)

    def _learn(self, names: tuple[str, ...]) -> Shape:
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        escaped = tuple(json.dumps(name)[1:-1].encode() for name in names)
        spellings = {tuple(name.encode() for name in names), escaped}
        compact = frozenset(1 + sum(len(name) + 4 for name in spelling) + (not names) for spelling in spellings)
        spaced = frozenset(width + 2 * len(names) - 1 for width in compact) if names else frozenset()
        openings = tuple(b'{"' + spelling[0] + b'": ' for spelling in spellings) if names else ()
        shape = self._shapes[names] = Shape(names, compact, spaced, openings)
        return shape

    def _template(self, shape: Shape, held: frozenset[str]) -> _Template:
        if len(shape.templates) >= _MOST_SHAPES:
            shape.templates.clear()
        kept = sorted(name for name in shape.names if name not in held and self._survives(name))
        openings = [b"," + msgspec.json.encode(_free_name(name, shape.names)) + b":" for name in kept]
        openings[:1] = [b"{" + opening[1:] for opening in openings[:1]]
        pick = itemgetter(*kept) if len(kept) > 1 else _pick_one(kept[0]) if kept else _pick_none
        template = shape.templates[held] = _Template(tuple(openings), pick)
        return template


def merge_packaging(meta_info: str, packaging: Mapping[str, Any]) -> str:
    """Return a meta_info object with the reserved key `_packaging` added at its end.

    Pure. `meta_info` must be an object as `MetaInfoWriter` makes it, without that key; numbers that are not finite
    become null.
    """
    separator = "," if len(meta_info) > 2 else ""
    text = msgspec.json.encode(packaging).decode()
    return f'{meta_info[:-1]}{separator}"{PACKAGING_KEY}":{text}}}'


def _free_name(name: str, names: Collection[str]) -> str:
    if name == PACKAGING_KEY:
        name = f"{PACKAGING_KEY}_source"
        while name in names:
            name += "_"
    return name


def _pick_one(name: str) -> Callable[[Mapping[str, Json]], tuple[Json, ...]]:
    return lambda fields: (fields[name],)


def _pick_none(fields: Mapping[str, Json]) -> tuple[Json, ...]:
    return ()
