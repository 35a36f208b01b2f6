"""Values of another source into a column: what counts as missing, who wins, and what is counted. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataset_packaging.core.casts import Caster, Json, caster_for
from dataset_packaging.core.reference import comparable_type
from dataset_packaging.core.schema import default_cast

MergeMode = Literal["fill_missing", "prefer_source"]
UnmatchedRule = Literal["error", "skip", "null"]

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """Where a merged column of one sidecar comes from, as it stands in the sidecar's footer and receipt.

    Attributes:
        column: name in the sidecar.
        source: URI of the source, several joined by a blank.
        source_columns: names in the source, the first that is not null counted.
        fingerprint: of the source as it was read.
        key: by which rows belong together.
        mode: who wins.
        unmatched_rule: what became of rows that the source lacks.
        matched: rows that the source knows.
        unmatched: rows that it does not; matched + unmatched are all rows of the sidecar.
        taken: rows whose value is the source's.
        bad_values: values of the source that the column cannot hold; they count as missing.
    """

    column: str
    source: str
    source_columns: tuple[str, ...]
    fingerprint: str
    key: str
    mode: MergeMode
    unmatched_rule: UnmatchedRule
    matched: int
    unmatched: int
    taken: int
    bad_values: int


def merge_values(
    existing: pa.Array, incoming: pa.Array, matched: BoolArray, mode: MergeMode, unmatched: UnmatchedRule
) -> tuple[pa.Array, int]:
    """Return the merged column and how many of its values are the source's.

    Args:
        existing: what the sidecar would hold without the merge.
        incoming: of the same type and length; null where the source has nothing.
        matched: rows that the source knows.
        mode: who wins where both have a value.
        unmatched: `null` empties the other rows; else they stay.
    """
    offered = matched & ~is_missing(incoming)
    taken = offered & is_missing(existing) if mode == "fill_missing" else offered
    merged = pc.if_else(pa.array(taken), incoming, existing)
    if unmatched == "null":
        merged = pc.if_else(pa.array(matched), merged, pa.scalar(None, existing.type))
    return merged, int(taken.sum())


def is_missing(values: pa.Array) -> BoolArray:
    """Return which values are null; a struct whose fields are all null counts as null."""
    missing: BoolArray = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(values.type) and values.type.num_fields:
        fields = [is_missing(field) for field in values.flatten()]
        missing = missing | np.logical_and.reduce(fields)
    return missing


@dataclass(frozen=True, slots=True)
class ValueReader:
    """Turns fields of a source into values of one column.

    Attributes:
        column: of the sidecar.
        type: of the column.
        cast: one of `schema.casts_for(type)`.
    """

    column: str
    type: pa.DataType
    cast: str

    @classmethod
    def of(cls, column: str, type_: pa.DataType, cast: str | None) -> "ValueReader":
        """Return the reader of a column; without a cast its default one."""
        return cls(column, type_, cast or default_cast(column, type_))

    def from_arrow(self, values: pa.Array) -> tuple[pa.Array, BoolArray]:
        """Return the values of an Arrow column of any type, and which of them cannot be held and became null."""
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        fast = _fast_conversion(values.type, self.type, self.cast)
        converted = self._one_by_one(values) if fast is None else fast(values)
        clean = _without_non_finite(converted)
        return clean, is_missing(clean) & ~is_missing(values)

    def from_json(self, raws: Sequence[Json | None]) -> tuple[pa.Array, BoolArray]:
        """Return the values of JSON texts (None: none), and which of them cannot be held and became null."""
        present = [None if raw is None or bytes(raw) == b"null" else raw for raw in raws]
        caster = caster_for(self.cast, self.type)
        try:
            values = caster.decode_all(present).values
        except msgspec.DecodeError:
            values = [_cast_one(caster, raw) for raw in present]
        clean = _without_non_finite(pa.array(values, self.type))
        given = np.array([raw is not None for raw in present], bool)
        return clean, given & clean.is_null().to_numpy(zero_copy_only=False)

    def _one_by_one(self, values: pa.Array) -> pa.Array:
        caster = caster_for(self.cast, self.type)
        return pa.array([_cast_one(caster, _json_of(value)) for value in values.to_pylist()], self.type)


def _json_of(value: object) -> bytes | None:
    return None if value is None or isinstance(value, bytes) else msgspec.json.encode(value)


def _cast_one(caster: Caster, raw: Json | None) -> Any:
    if raw is None:
        return None
    try:
        return caster.cast(bytes(raw)).value
    except msgspec.DecodeError:
        return None


def _fast_conversion(source: pa.DataType, target: pa.DataType, cast: str) -> Callable[[pa.Array], pa.Array] | None:
    """Return a conversion of whole arrays, or None where values have to be looked at one by one."""
    if comparable_type(source) == comparable_type(target):
        return lambda values: values.cast(target)
    if pa.types.is_floating(target) and (pa.types.is_floating(source) or pa.types.is_integer(source)):
        return lambda values: values.cast(target, safe=False)
    if target == pa.list_(pa.string()) and comparable_type(source) == "string":
        return _as_lists
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        return _struct_conversion(source, target)
    return None


def _as_lists(values: pa.Array) -> pa.Array:
    """Return each text as a list of one, null as null."""
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, values.cast(pa.string()), mask=values.is_null())


def _struct_conversion(source: pa.StructType, target: pa.StructType) -> Callable[[pa.Array], pa.Array] | None:
    """Return a conversion of structs by the names of their fields: what the source lacks is null."""
    conversions: list[tuple[int, Callable[[pa.Array], pa.Array]] | None] = []
    for field in (target.field(number) for number in range(target.num_fields)):
        place = source.get_field_index(field.name)
        if place < 0:
            conversions.append(None)
            continue
        convert = _fast_conversion(source.field(place).type, field.type, default_cast("", field.type))
        if convert is None:
            return None
        conversions.append((place, convert))

    def convert_struct(values: pa.Array) -> pa.Array:
        parts = values.flatten()
        children = [
            pa.nulls(len(values), target.field(number).type) if found is None else found[1](parts[found[0]])
            for number, found in enumerate(conversions)
        ]
        fields = [target.field(number) for number in range(target.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())

    return convert_struct


def _without_non_finite(values: pa.Array) -> pa.Array:
    """Return the values with null for NaN and the infinities, in structs too: JSON and most tools cannot say them."""
    type_ = values.type
    if pa.types.is_floating(type_):
        finite = pc.is_finite(values)
        return values if pc.all(finite).as_py() is not False else pc.if_else(finite, values, pa.scalar(None, type_))
    if pa.types.is_struct(type_):
        children = [_without_non_finite(child) for child in values.flatten()]
        fields = [type_.field(number) for number in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
    return values
