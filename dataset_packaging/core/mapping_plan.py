"""The mapping of a dataset, worked out: for each column its sources in order, and its cast."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from dataset_packaging.config import MappingConfig
from dataset_packaging.core.bucketing import MAX_SIDE_PX
from dataset_packaging.core.casts import BAD_VALUE, OUT_OF_RANGE, Cast, Caster, Column, Json, cast_text, caster_for
from dataset_packaging.core.schema import (
    EXPECTED_COLUMNS,
    HEIGHT_COLUMN,
    KEY_COLUMN,
    PATH_COLUMN,
    WIDTH_COLUMN,
    ExtensionColumn,
    default_cast,
    mappable_columns,
)
from dataset_packaging.core.uris import is_normal_s3_uri, normalize_path

PATH_ALIASES: tuple[str, ...] = ("s3_image_path", "s3_path", "image_s3_uri", "image_uri", "url")
"""Source fields that the path is looked for in after the ones that the dataset names."""

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Source:
    """Where a column's value may come from: a top-level field, or a way into nested objects.

    Attributes:
        name: as the dataset writes it; a top-level field of exactly this name comes first.
        way: the names from the outermost to the innermost, one for a plain top-level field.
    """

    name: str
    way: tuple[str, ...]

    @classmethod
    def parse(cls, name: str) -> Source:
        """Return the source that a dotted name means."""
        return cls(name, tuple(name.split(".")))

    @property
    def is_nested(self) -> bool:
        """Whether the name leads into an object, unless there is a top-level field of the whole name."""
        return len(self.way) > 1

    def may_stand_in(self, names: Collection[str]) -> bool:
        """Return whether rows with these top-level names can have it."""
        return self.name in names or self.way[0] in names

    def read_all(self, rows: Sequence[Mapping[str, Json]]) -> list[Json | None]:
        """Return the values of many rows, None where there is none; see `read`."""
        if not self.is_nested:
            return [fields.get(self.name) for fields in rows]
        return [self.read(fields)[0] for fields in rows]

    def read(self, fields: Mapping[str, Json]) -> tuple[Json | None, bool]:
        """Return the value, None where there is none, and whether it is a top-level field.

        Raises:
            msgspec.DecodeError: the object on the way is no strict JSON.
        """
        value = fields.get(self.name)
        if value is not None or len(self.way) == 1:
            return value, True
        value = fields.get(self.way[0])
        return None if value is None else self.read_inside(value), False

    def read_inside(self, outermost: Json) -> Json | None:
        """Return the value inside the outermost object, None where there is none; see `read`.

        A list on the way gives the list of what its elements have there, in order, without those that have nothing.
        """
        return _read_inside(outermost, self.way[1:])


def _read_inside(value: Json | None, way: tuple[str, ...]) -> Json | None:
    for number, name in enumerate(way):
        if value is None:
            return None
        if bytes(value).lstrip()[:1] == b"[":
            found = [_read_inside(element, way[number:]) for element in _decode_elements(value)]
            present = [text for element in found if element is not None and (text := bytes(element)) != b"null"]
            return b"[" + b",".join(present) + b"]" if present else None
        try:
            value = _decode_fields(value).get(name)
        except msgspec.ValidationError:  # no object
            return None
    return value


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column: what fills it.

    Attributes:
        name: of the column.
        sources: in order, the first that is not null counts; none for a constant.
        caster: the conversion.
        constant: value of every row, where there are no sources.
    """

    name: str
    sources: tuple[Source, ...]
    caster: Caster
    constant: Any = None


@dataclass(frozen=True, slots=True)
class MappingPlan:
    """All columns that a manifest can fill, in the order of the sidecar, and what of the source counts.

    Attributes:
        columns: by name.
        survives: whether a top-level field may reach meta_info.
        read_names: top-level fields that some column looks at.
    """

    columns: Mapping[str, ColumnPlan]
    survives: Callable[[str], bool]
    read_names: frozenset[str]

    def sources_in(self, names: Collection[str]) -> dict[str, list[Source]]:
        """Return for each column those of its sources that rows with these top-level names can have."""
        return {
            name: [source for source in plan.sources if source.may_stand_in(names)]
            for name, plan in self.columns.items()
        }


def plan_mapping(mapping: MappingConfig, extensions: Sequence[ExtensionColumn]) -> MappingPlan:
    """Return the plan of a dataset's mapping; pure."""
    expected = {name: EXPECTED_COLUMNS[name] for name in EXPECTED_COLUMNS if name in mapping.direct}
    types = mappable_columns(extensions) | expected
    columns = {name: _plan_column(name, type_, mapping) for name, type_ in types.items()}
    sources = [source for plan in columns.values() for source in plan.sources]
    read_names = frozenset(name for source in sources for name in (source.name, source.way[0]))
    dropped = frozenset(mapping.drop)
    if mapping.keep is None:
        return MappingPlan(columns, lambda name: name not in dropped, read_names)
    kept = frozenset(mapping.keep) | {source.name for source in sources}
    return MappingPlan(columns, lambda name: name in kept, read_names)


def _plan_column(name: str, type_: pa.DataType, mapping: MappingConfig) -> ColumnPlan:
    direct = mapping.direct.get(name)
    cast = (direct.cast if direct else None) or default_cast(name, type_)
    caster = _path_caster(mapping.base_uri) if name == PATH_COLUMN else _caster_of(name, type_, cast)
    if name in mapping.constants:
        return ColumnPlan(name, (), caster, _constant(mapping.constants[name], type_))
    explicit = direct.from_ if direct else ()
    implicit = PATH_ALIASES if name == PATH_COLUMN else (name,)
    names = dict.fromkeys((*explicit, *(alias for alias in implicit if alias not in mapping.drop)))
    return ColumnPlan(name, tuple(map(Source.parse, names)), caster)


def _constant(value: object, type_: pa.DataType) -> object:
    if pa.types.is_list(type_):
        return [value]
    if pa.types.is_floating(type_):
        return float(np.float32(value))  # type: ignore[arg-type]
    return value


def _caster_of(name: str, type_: pa.DataType, cast: str) -> Caster:
    if name == KEY_COLUMN:
        return Caster(_cast_key, str, _as_keys)
    if name in (WIDTH_COLUMN, HEIGHT_COLUMN):
        return _size_caster(type_)
    if name in EXPECTED_COLUMNS:
        return _expected_caster(name, type_)
    return caster_for(cast, type_)


class RefusedPath(str):
    """A path that names no place that can be read, as it stands in the source."""

    __slots__ = ()


def _path_caster(base_uri: str | None) -> Caster:
    def cast_path(raw: bytes) -> Cast:
        if raw[:1] != b'"':
            return Cast(RefusedPath(raw.decode()), False)
        text = cast_text(raw).value
        path = normalize_path(text, base_uri)
        return Cast(RefusedPath(text) if path is None else path, path == text)

    def as_paths(texts: Sequence[str | None]) -> Column:
        if all(text is not None and is_normal_s3_uri(text) for text in texts):
            return Column(list(texts), ())
        paths = [None if text is None else normalize_path(text, base_uri) or RefusedPath(text) for text in texts]
        changed_rows = [
            row
            for row, (text, path) in enumerate(zip(texts, paths, strict=True))
            if path is not text and (path != text or type(path) is RefusedPath)
        ]
        return Column(paths, changed_rows)

    return Caster(cast_path, str, as_paths, False)


def _cast_key(raw: bytes) -> Cast:
    cast = cast_text(raw)
    return Cast(None, False, BAD_VALUE) if cast.value == "" else cast


def _as_keys(texts: Sequence[str | None]) -> Column:
    if "" in texts:
        raise msgspec.DecodeError("an empty key")
    return Column(list(texts), ())


def _size_caster(type_: pa.DataType) -> Caster:
    """Return the conversion of a side in pixels: what is no positive integer is unknown, and no fault of the row."""
    plain = caster_for("int", type_)

    def cast_size(raw: bytes) -> Cast:
        cast = plain.cast(raw)
        if cast.value is None:
            return cast if cast.warning == OUT_OF_RANGE else Cast(None, False)
        return cast if cast.value > 0 else Cast(None, False)

    return Caster(cast_size, Annotated[int, msgspec.Meta(ge=1, le=MAX_SIDE_PX)])


def _expected_caster(name: str, type_: pa.DataType) -> Caster:
    """Return the conversion of what a manifest says of the file: a byte count, or a checksum in hexadecimal digits."""
    if name == "bytes":
        count = caster_for("int", type_)

        def cast_count(raw: bytes) -> Cast:
            cast = count.cast(raw)
            return cast if cast.value is None or cast.value >= 0 else Cast(None, False, OUT_OF_RANGE)

        return Caster.one_by_one(cast_count)
    digits = re.compile(r"[0-9a-f]{64}" if name == "sha256" else r"[0-9a-f]{32}")

    def cast_checksum(raw: bytes) -> Cast:
        text = json.loads(raw) if raw[:1] == b'"' else ""
        fits = digits.fullmatch(text.strip().lower())
        return Cast(fits.group(), False) if fits else Cast(None, False, BAD_VALUE)

    return Caster.one_by_one(cast_checksum)
