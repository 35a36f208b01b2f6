"""The declared Arrow schemas of main shards and sidecars: the only place that names columns.

The names, types and order are the specification of the public contract, section 2. Every shard of a dataset carries the
same schema whatever its rows hold; each field says what it means in its metadata (`description`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1
"""Part of every fingerprint; raised when a name, a type, an order or a null rule changes."""

IMAGE_COLUMN = "image"
KEY_COLUMN = "image_key"
PATH_COLUMN = "s3_image_path"
WIDTH_COLUMN = "width"
HEIGHT_COLUMN = "height"
IS_RGBA_COLUMN = "is_rgba"
META_INFO_COLUMN = "meta_info"
PACKAGING_KEY = "_packaging"
"""The reserved key of the meta_info object."""

EXTENSION_PREFIX = "filter_"
"""Columns that a dataset declares itself start with this and are structs."""


def _field(name: str, type_: pa.DataType, description: str, *, nullable: bool = True) -> pa.Field[pa.DataType]:
    return pa.field(name, type_, nullable=nullable, metadata={b"description": description.encode()})


_TEXTS = pa.list_(pa.string())
_ERNIE_TYPE = pa.struct([("raw_score", pa.float64()), ("score", pa.float64()), ("error", pa.string())])
_DQM_TYPE = pa.struct([("raw_score", pa.float64()), ("error", pa.string())])

MAIN_SCHEMA: pa.Schema = pa.schema(
    [
        _field(KEY_COLUMN, pa.string(), "Stable unique key of the row", nullable=False),
        _field(IMAGE_COLUMN, pa.binary(), "Bytes of the original object, untouched", nullable=False),
        _field(WIDTH_COLUMN, pa.int32(), "Width in pixels, as shown", nullable=False),
        _field(HEIGHT_COLUMN, pa.int32(), "Height in pixels, as shown", nullable=False),
        _field(PATH_COLUMN, pa.string(), "Normalized URI of the original object", nullable=False),
        _field(IS_RGBA_COLUMN, pa.bool_(), "Whether the image carries transparency", nullable=False),
        _field("task", pa.string(), "Training task that the row is meant for"),
        _field("data_source", pa.string(), "Where the data come from"),
        _field("ocr_text", _TEXTS, "Texts that stand in the image"),
        _field("detailed_description", _TEXTS, "Detailed captions"),
        _field("full_description", _TEXTS, "Full captions"),
        _field("short_description", _TEXTS, "Short captions"),
        _field("user_prompt", _TEXTS, "Prompts as a user would write them"),
        _field("keywords", _TEXTS, "Keywords"),
        _field("structured_description", pa.string(), "Structured caption, JSON text"),
        _field("style", pa.string(), "Style of the image"),
        _field("image_type", pa.string(), "Kind of image"),
        _field("image_quality_score", pa.float32(), "Quality of the image"),
        _field("design_quality_score", pa.float32(), "Quality of the design"),
        _field("aesthetic_score", pa.float32(), "Aesthetic score"),
        _field("is_aigc", pa.bool_(), "Whether the image was made by a model"),
        _field("has_barcode", pa.bool_(), "Whether a barcode was detected"),
        _field("has_watermark", pa.bool_(), "Whether a watermark was detected"),
        _field("has_artifact", pa.bool_(), "Whether artifacts were detected"),
        _field("has_mosaic", pa.bool_(), "Whether a mosaic was detected"),
        _field("has_rotation", pa.bool_(), "Whether the content is rotated"),
        _field("text_overlay", pa.bool_(), "Whether text lies over the image"),
    ]
)
"""Schema of the main shards, in order."""

MAIN_COLUMNS: tuple[str, ...] = tuple(MAIN_SCHEMA.names)

_SIDECAR_ONLY_SCHEMA: pa.Schema = pa.schema(
    [
        _field("objects", pa.string(), "Detected objects, JSON text"),
        _field("ocr_bbox", pa.string(), "Boxes of the texts in the image, JSON text"),
        _field("ernie_image_aes", _ERNIE_TYPE, "Merged score"),
        _field("dqm_d1_v6_1", _DQM_TYPE, "Merged score"),
        _field("structured_description_crop_512", pa.string(), "Structured caption cropped to 512 px, JSON text"),
        _field("structured_description_crop_1024", pa.string(), "Structured caption cropped to 1024 px, JSON text"),
        _field("bbox_resize_meta", pa.string(), "Geometry of the crops, JSON text"),
    ]
)

SIDECAR_ONLY_COLUMNS: tuple[str, ...] = tuple(_SIDECAR_ONLY_SCHEMA.names)
"""Sidecar columns that main shards lack, in order, without extensions and meta_info (which is last)."""

RESIZED_SCHEMA: pa.Schema = pa.schema(
    [
        _field(KEY_COLUMN, pa.string(), "Key of the row in its shard", nullable=False),
        _field(IMAGE_COLUMN, pa.binary(), "The resized image, a WebP; null where there is none"),
        _field(WIDTH_COLUMN, pa.int32(), "Pixels of the resized and cropped image"),
        _field(HEIGHT_COLUMN, pa.int32(), "Pixels of the resized and cropped image"),
        _field("resized_width", pa.int32(), "Pixels before the crop"),
        _field("resized_height", pa.int32(), "Pixels before the crop"),
        _field("crop_left", pa.int32(), "Pixels cut off at the left"),
        _field("crop_top", pa.int32(), "Pixels cut off at the top"),
        _field("source_width", pa.int32(), "Pixels of the original", nullable=False),
        _field("source_height", pa.int32(), "Pixels of the original", nullable=False),
        _field("resize_error", pa.string(), "Why there is no resized image, else null"),
    ]
)
"""Schema of the shards of resized image sets, in order; the names in which `sidecar.crops.resized` reads geometry."""

JSON_TEXT_COLUMNS: frozenset[str] = frozenset(
    {"structured_description", *SIDECAR_ONLY_COLUMNS} - {"ernie_image_aes", "dqm_d1_v6_1"}
)
"""Columns of type string whose text is JSON."""

MEASURED_COLUMNS: frozenset[str] = frozenset({IMAGE_COLUMN, IS_RGBA_COLUMN, META_INFO_COLUMN})
"""Columns that no field of the manifest can fill."""


@dataclass(frozen=True, slots=True)
class ExtensionColumn:
    """A `filter_*` column that a dataset declares: its name and its struct type."""

    name: str
    type: pa.DataType


def parse_extension(name: str, type_text: str) -> ExtensionColumn:
    """Return the declared column; pure.

    Raises:
        ValueError: the name does not start with `filter_` or is no plain name, or the type is no struct.
    """
    if not re.fullmatch(EXTENSION_PREFIX + r"[A-Za-z0-9_]+", name):
        raise ValueError(f"{name!r} is no name of an extension column: expected filter_ and letters, digits or _")
    type_ = parse_type(type_text)
    if not pa.types.is_struct(type_):
        raise ValueError(f"{type_text!r} is no struct: expected for example struct<score: double, pass: bool>")
    return ExtensionColumn(name, type_)


def sidecar_schema(extensions: Iterable[ExtensionColumn] = ()) -> pa.Schema:
    """Return the sidecar schema of a dataset: main columns without `image`, sidecar columns, extensions, meta_info.

    Pure. Extensions stand in the order given.
    """
    return pa.schema(
        [
            *(field for field in MAIN_SCHEMA if field.name != IMAGE_COLUMN),
            *_SIDECAR_ONLY_SCHEMA,
            *(_field(column.name, column.type, "Declared by the dataset") for column in extensions),
            _field(META_INFO_COLUMN, pa.string(), "Other fields of the source, one JSON object", nullable=False),
        ]
    )


_SCALAR_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int": pa.int64(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
}
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[<>:,]|$)")
_MAX_TYPE_DEPTH = 8


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type that a text such as `struct<score: double, pass: bool>` or `list<string>` names.

    Pure. Knows bool, int32, int64, float, double, string, list and struct, nested at most 8 deep.

    Raises:
        ValueError: the text names no such type; the message says where it stops making sense.
    """
    return _TypeParser(text).parse()


class _TypeParser:
    """Recursive descent over the tokens of one type text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._token = ""
        self._advance()

    def parse(self) -> pa.DataType:
        type_ = self._parse_type(0)
        if self._token:
            raise self._unexpected("the end")
        return type_

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            raise self._unexpected("a type")
        self._token, self._end = match.group(1), match.end()

    def _take(self, token: str) -> None:
        if self._token != token:
            raise self._unexpected(repr(token))
        self._advance()

    def _unexpected(self, expected: str) -> ValueError:
        names = ", ".join((*_SCALAR_TYPES, "list<...>", "struct<name: type, ...>"))
        place = max(self._end - len(self._token), 0)
        return ValueError(f"{self._text!r} is no type: expected {expected} at character {place + 1} (types: {names})")

    def _parse_type(self, depth: int) -> pa.DataType:
        name = self._token
        if name in _SCALAR_TYPES:
            self._advance()
            return _SCALAR_TYPES[name]
        if name not in ("list", "struct") or depth == _MAX_TYPE_DEPTH:
            raise self._unexpected("a type")
        self._advance()
        self._take("<")
        type_ = pa.list_(self._parse_type(depth + 1)) if name == "list" else self._parse_fields(depth + 1)
        self._take(">")
        return type_

    def _parse_fields(self, depth: int) -> pa.DataType:
        fields: dict[str, pa.DataType] = {}
        while True:
            name = self._token
            if not name or name in "<>:," or name in fields:
                raise self._unexpected("a new field name")
            self._advance()
            self._take(":")
            fields[name] = self._parse_type(depth)
            if self._token != ",":
                return pa.struct(list(fields.items()))
            self._advance()


def type_name(type_: pa.DataType) -> str:
    """Return a type as `parse_type` reads it, without the names of list children; pure."""
    return str(type_).replace("list<item: ", "list<").replace("list<element: ", "list<")


def schema_differences(expected: pa.Schema, actual: pa.Schema) -> list[str]:
    """Return how a schema differs from the declared one, one readable line each; empty means the same.

    Pure. Compares names, order, types and nullability exactly; metadata is ignored.
    """
    missing = [name for name in expected.names if name not in actual.names]
    extra = [name for name in actual.names if name not in expected.names]
    differences = [f"column {name} is missing" for name in missing]
    differences += [f"column {name} is not declared" for name in extra]
    if not differences and expected.names != actual.names:
        differences.append(f"columns stand in another order: {', '.join(actual.names)}")
    for field in expected:
        if field.name in missing or len(actual.get_all_field_indices(field.name)) != 1:
            continue
        found = actual.field(field.name)
        if found.type != field.type:
            differences.append(f"column {field.name} is {type_name(found.type)}, declared {type_name(field.type)}")
        if found.nullable != field.nullable:
            verb = "may" if found.nullable else "must not"
            differences.append(f"column {field.name} {verb} be null, unlike declared")
    return differences


def casts_for(type_: pa.DataType) -> tuple[str, ...]:
    """Return the casts that a column of this type takes, its default first.

    Pure. Columns in `JSON_TEXT_COLUMNS` prefer `json`, see `default_cast`.
    """
    if pa.types.is_struct(type_):
        return ("struct",)
    if pa.types.is_list(type_):
        return ("list_string",)
    if pa.types.is_boolean(type_):
        return ("bool",)
    if pa.types.is_integer(type_):
        return ("int",)
    if pa.types.is_floating(type_):
        return ("float",)
    return ("string", "json")


def default_cast(column: str, type_: pa.DataType) -> str:
    """Return the cast of a column for which the dataset names none; pure."""
    return "json" if column in JSON_TEXT_COLUMNS else casts_for(type_)[0]


def mappable_columns(extensions: Iterable[ExtensionColumn] = ()) -> dict[str, pa.DataType]:
    """Return the columns that fields of a manifest can fill, with their types, in sidecar order; pure."""
    return {field.name: field.type for field in sidecar_schema(extensions) if field.name not in MEASURED_COLUMNS}


def mergeable_columns(extensions: Iterable[ExtensionColumn] = ()) -> dict[str, pa.DataType]:
    """Return the columns that a merge can fill, with their types, in sidecar order; pure."""
    return {name: type_ for name, type_ in mappable_columns(extensions).items() if name not in PLACED_COLUMNS}


EXPECTED_COLUMNS: dict[str, pa.DataType] = {"sha256": pa.string(), "md5": pa.string(), "bytes": pa.int64()}
"""What a manifest can tell of the original file, to be compared with it; no columns of any output."""

PLACED_COLUMNS: tuple[str, ...] = (KEY_COLUMN, PATH_COLUMN, WIDTH_COLUMN, HEIGHT_COLUMN)
"""Columns that differ by row by their nature, so that no constant can fill them."""
