"""From the JSON text of one source value to the value of a column.

Every cast exists twice: `cast` takes one value and says everything about it; `decode_all` takes a column of values at
once and is only for those that need no conversion, or one that can be done to all. Both agree wherever `decode_all`
does not give up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from dataset_packaging.core.schema import casts_for

Json = bytes | msgspec.Raw
"""The text of one JSON value, without blanks around it."""

BAD_VALUE = "bad_value"
OUT_OF_RANGE = "out_of_range"
NON_FINITE = "non_finite"

_LARGEST_EXACT_INT = 2**53
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][-+]?[0-9]++)?")
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


class Cast(NamedTuple):
    """What a source value became.

    Attributes:
        value: the column's value, None where there is none.
        exact: whether the source value can be told from it, so that meta_info need not repeat it.
        warning: `bad_value`, `out_of_range`, `non_finite` or None.
    """

    value: Any
    exact: bool
    warning: str | None = None


_BAD = Cast(None, False, BAD_VALUE)


class Column(NamedTuple):
    """What a column of source values became: its values, and the rows whose source is not exact."""

    values: list[Any]
    inexact_rows: Sequence[int]


def _exactly(values: Sequence[Any]) -> Column:
    return Column(list(values), ())


@dataclass(frozen=True, slots=True)
class Caster:
    """The conversion of one column.

    Attributes:
        cast: one value; `null` must not be given. Raises msgspec.DecodeError for what only a lenient parser takes.
        type: what msgspec decodes a value that needs no closer look to; None: `finish` takes the text itself.
        finish: makes a column of such values, None among them. Raises msgspec.DecodeError when one needs `cast`.
        is_exact: whether every column that `finish` makes is exact.
    """

    cast: Callable[[bytes], Cast]
    type: Any = None
    finish: Callable[[Sequence[Any]], Column] = _exactly
    is_exact: bool = True

    def decode_all(self, raws: Sequence[Json | None]) -> Column:
        """Return the column of many values, None or `null` where there is none.

        Raises:
            msgspec.DecodeError: any of them needs `cast`.
        """
        if self.type is None:
            return self.finish(raws)
        decode = _decoder_of(self.type)
        return self.finish([None if raw is None else decode(raw) for raw in raws])

    @classmethod
    def one_by_one(cls, cast: Callable[[bytes], Cast]) -> Caster:
        """Return the conversion that casts each value by itself."""

        def cast_all(raws: Sequence[Json | None]) -> Column:
            values: list[Any] = [None] * len(raws)
            inexact_rows = []
            for row, raw in enumerate(raws):
                if raw is None or (text := bytes(raw)) == b"null":
                    continue
                values[row], exact, warning = cast(text)
                if warning is not None:
                    raise msgspec.DecodeError(warning)
                if not exact:
                    inexact_rows.append(row)
            return Column(values, inexact_rows)

        return cls(cast, None, cast_all, False)


@cache
def _decoder_of(type_: Any) -> Callable[[Json], Any]:
    return msgspec.json.Decoder(type_ | None).decode


def caster_for(cast: str, type_: pa.DataType) -> Caster:
    """Return the conversion to a column of a type.

    Pure.

    Args:
        cast: one of `schema.casts_for(type_)`.
        type_: of the column.
    """
    if cast == "json":
        return Caster.one_by_one(cast_json)
    if cast == "list_string":
        return Caster(cast_texts, str | list[str | None], _as_lists)
    if cast == "struct":
        return Caster.one_by_one(_struct_cast(type_))
    if cast == "bool":
        return Caster(cast_bool, bool)
    if cast == "float" and type_ == pa.float32():
        return Caster(_float_cast(type_), float, _as_float32s, False)
    if cast == "float":
        return Caster.one_by_one(_float_cast(type_))
    if cast == "int":
        smallest, largest = _int_range(type_)
        return Caster(_int_cast(type_), Annotated[int, msgspec.Meta(ge=smallest, le=largest)])
    return Caster(cast_text, str)


def cast_text(raw: bytes) -> Cast:
    """Cast to string: a text as it is, a number or bool as its JSON text; pure."""
    if raw[:1] == b'"':
        return Cast(_decode_text(raw), True)
    if raw[:1] in (b"{", b"["):
        return _BAD
    return Cast(raw.decode(), False)


def cast_json(raw: bytes) -> Cast:
    """Cast to JSON text: a text is taken for one and stays as it is, any other value as it is written; pure."""
    if raw[:1] == b'"':
        return Cast(_decode_text(raw), True)
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise msgspec.DecodeError("JSON that strict parsers refuse") from error
    return Cast(raw.decode(), True)


def cast_texts(raw: bytes) -> Cast:
    """Cast to a list of strings: what is no list becomes a list of one, what is no text its JSON text; pure."""
    items = _decode_items(raw) if raw[:1] == b"[" else [raw]
    casts = [_cast_item(bytes(item)) for item in items]
    return Cast([cast.value for cast in casts], all(cast.exact for cast in casts))


def _cast_item(raw: bytes) -> Cast:
    if raw[:1] == b'"':
        return Cast(_decode_text(raw), True)
    return Cast(None, True) if raw == b"null" else Cast(raw.decode(), False)


def cast_bool(raw: bytes) -> Cast:
    """Cast to bool: true and false as they are, also as text, and 0 and 1; pure."""
    known = {b"true": True, b"false": False, b"1": True, b"0": False}
    if (value := known.get(raw)) is not None:
        return Cast(value, raw in (b"true", b"false"))
    if raw[:1] == b'"' and (value := known.get(_decode_text(raw).strip().lower().encode())) is not None:
        return Cast(value, False)
    return _BAD


def _number_text(raw: bytes) -> tuple[bytes, re.Match[bytes] | None]:
    """Return a number's text, that of a number in quotes too, and its match, None for anything else."""
    text = _decode_text(raw).strip().encode() if raw[:1] == b'"' else raw
    return text, _NUMBER.fullmatch(text)


def _float_cast(type_: pa.DataType) -> Callable[[bytes], Cast]:
    narrow = np.float32 if type_ == pa.float32() else np.float64

    def cast_float(raw: bytes) -> Cast:
        text, match = _number_text(raw)
        if match is None:
            return _BAD
        is_int = match.group(1) is None and match.group(2) is None
        number = float(text)
        if np.isinf(number):
            return Cast(None, False, OUT_OF_RANGE if is_int else NON_FINITE)
        with np.errstate(over="ignore"):
            value = float(narrow(number))
        if np.isinf(value):
            return Cast(None, False, OUT_OF_RANGE)
        exact = value == (int(text) if is_int else number)
        return Cast(value, exact and raw[:1] != b'"')

    return cast_float


def _int_range(type_: pa.DataType) -> tuple[int, int]:
    bits = type_.bit_width
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _int_cast(type_: pa.DataType) -> Callable[[bytes], Cast]:
    smallest, largest = _int_range(type_)

    def cast_int(raw: bytes) -> Cast:
        text, match = _number_text(raw)
        if match is None:
            return _BAD
        if match.group(1) is not None or match.group(2) is not None:
            number = float(text)
            if not number.is_integer():
                return _BAD if np.isfinite(number) else Cast(None, False, NON_FINITE)
            value = int(number)
        else:
            value = int(text) if len(text) <= 20 else largest + 1
        if not smallest <= value <= largest:
            return Cast(None, False, OUT_OF_RANGE)
        return Cast(value, raw == text and match.group(1) is None and match.group(2) is None)

    return cast_int


def _struct_cast(type_: pa.DataType) -> Callable[[bytes], Cast]:
    """Return a cast from objects: a part that does not fit becomes null, an unknown name makes it inexact."""
    casts = {field.name: _nested_cast(field.type) for field in _fields_of(type_)}

    def cast_struct(raw: bytes) -> Cast:
        if raw[:1] != b"{":
            return _BAD
        parts = _decode_fields(raw)
        value: dict[str, Any] = dict.fromkeys(casts)
        exact = parts.keys() <= casts.keys()
        warning: str | None = None
        for name, part in parts.items():
            if name in casts and (text := bytes(part)) != b"null":
                cast = casts[name](text)
                value[name] = cast.value
                exact = exact and cast.exact
                warning = warning or cast.warning
        return Cast(value, exact, warning)

    return cast_struct


def _fields_of(type_: pa.DataType) -> list[pa.Field[Any]]:
    assert isinstance(type_, pa.StructType)
    return [type_.field(i) for i in range(type_.num_fields)]


def _nested_cast(type_: pa.DataType) -> Callable[[bytes], Cast]:
    if pa.types.is_list(type_) and type_.value_type != pa.string():
        return _list_cast(_nested_cast(type_.value_type))
    return caster_for(casts_for(type_)[0], type_).cast


def _list_cast(cast_item: Callable[[bytes], Cast]) -> Callable[[bytes], Cast]:
    def cast_list(raw: bytes) -> Cast:
        if raw[:1] != b"[":
            return _BAD
        items = [Cast(None, True) if bytes(item) == b"null" else cast_item(bytes(item)) for item in _decode_items(raw)]
        warning = next((item.warning for item in items if item.warning), None)
        return Cast([item.value for item in items], all(item.exact for item in items), warning)

    return cast_list


def _as_lists(values: Sequence[Any]) -> Column:
    return Column([[value] if type(value) is str else value for value in values], ())


def _as_float32s(numbers: Sequence[float | None]) -> Column:
    wide = np.array(numbers, dtype=np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32).astype(np.float64)
    if (np.abs(narrow) >= _LARGEST_EXACT_INT).any():
        raise msgspec.DecodeError("the digits decide whether such a number is exact")
    values = narrow.tolist()
    if None in numbers:
        values = [None if number is None else value for number, value in zip(numbers, values, strict=True)]
    return Column(values, np.flatnonzero((wide != narrow) & ~np.isnan(wide)).tolist())
