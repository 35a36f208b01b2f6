"""What must hold between the fields of a dataset: places that do not overlap, columns that exist, casts that fit.

Plain values in, so that `config` can call it: core knows no YAML and no model.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.schema import (
    EXPECTED_COLUMNS,
    EXTENSION_PREFIX,
    JSON_TEXT_COLUMNS,
    MEASURED_COLUMNS,
    PLACED_COLUMNS,
    ExtensionColumn,
    casts_for,
    mappable_columns,
    mergeable_columns,
    type_name,
)
from dataset_packaging.core.uris import glob_matches, is_below

MAPPING_NAMES_SCHEMA: dict[str, object] = {
    "anyOf": [{"enum": [*mappable_columns(), *EXPECTED_COLUMNS]}, {"pattern": f"^{EXTENSION_PREFIX}"}]
}
"""JSON Schema of the names that `mapping` knows."""


class FieldError(ValueError):
    """A field that contradicts another one or the schema.

    Attributes:
        path: names of fields and indexes of items, from the root of the file.
        message: one line.
        known: what would have been known names, where the name is the problem.
    """

    def __init__(self, path: tuple[str | int, ...], message: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(path, message, known)
        self.path = path
        self.message = message
        self.known = known


def require_apart(manifest: Sequence[str], prefixes: Mapping[str, str], base_uri: str | None) -> None:
    """Raise unless the output prefixes are apart from each other and hold none of the input; pure.

    A prefix ends at a `/`: `ds` and `ds-out` do not overlap.

    Raises:
        FieldError: names the field and what is wrong with its place.
    """
    fields = list(prefixes.items())
    for name, uri in fields:
        if uri in ("file:", "file://"):
            raise FieldError((name,), "expected a folder, not the root of the file system")
    for i, (name, uri) in enumerate(fields):
        for other_name, other_uri in fields[:i]:
            if is_below(uri, other_uri) or is_below(other_uri, uri):
                raise FieldError((name,), f"{uri} overlaps with {other_name} {other_uri}: choose a folder beside it")
    shards = {name: uri for name, uri in fields if name != "work_prefix"}
    for i, uri in enumerate(manifest):
        if uri.endswith("/"):
            raise FieldError(("manifest", i), f"{uri} is a folder: expected a file or a glob such as {uri}*.jsonl")
        for name, prefix in shards.items():
            if is_below(uri, prefix) or glob_matches(uri, f"{prefix}/{BUCKETS[0].key}/shard-000000.parquet"):
                raise FieldError(("manifest", i), f"{uri} reads from {name} {prefix}: outputs cannot be inputs")
    for name, prefix in shards.items():
        if base_uri is not None and is_below(base_uri.rstrip("/"), prefix):
            raise FieldError(("mapping", "base_uri"), f"{base_uri} is below {name} {prefix}: outputs cannot be inputs")
    _require_one_bucket(prefixes)


def require_mappable(
    constants: Mapping[str, object], casts: Mapping[str, str | None], extensions: Iterable[ExtensionColumn]
) -> None:
    """Raise unless every mapped name is a column that can be filled so; pure.

    Args:
        constants: column to value.
        casts: column to its cast, None for the default one.
        extensions: the filter_* columns of the dataset.

    Raises:
        FieldError: names the field and what was expected.
    """
    columns = mappable_columns(extensions) | EXPECTED_COLUMNS
    for column, cast in casts.items():
        path = ("mapping", "direct", column)
        _require_known(path, column, columns)
        allowed = casts_for(columns[column])
        if cast is not None and cast not in allowed:
            fitting = f"{column} is {type_name(columns[column])}: expected {' or '.join(allowed)}"
            raise FieldError((*path, "cast"), f"{fitting}, got {cast!r}")
    constant_columns = {
        name: type_
        for name, type_ in columns.items()
        if name not in PLACED_COLUMNS and name not in EXPECTED_COLUMNS and not pa.types.is_struct(type_)
    }
    for column, value in constants.items():
        path = ("mapping", "constants", column)
        _require_known(path, column, constant_columns)
        if (expected := _expected_constant(column, constant_columns[column], value)) is not None:
            kind = type_name(constant_columns[column])
            raise FieldError(path, f"{column} is {kind}: expected {expected}, got {value!r}")


def require_mergeable(number: int, casts: Mapping[str, str | None], extensions: Iterable[ExtensionColumn]) -> None:
    """Raise unless every column of a merge can be merged so; pure.

    Args:
        number: of the merge in `sidecar.merge`.
        casts: column to its cast, None for the default one.
        extensions: the filter_* columns of the dataset.

    Raises:
        FieldError: names the field and what was expected.
    """
    columns = mergeable_columns(extensions)
    for column, cast in casts.items():
        path = ("sidecar", "merge", number, "columns", column)
        if column in PLACED_COLUMNS:
            raise FieldError(path, "says which row this is or how large: it cannot be merged")
        _require_known(path, column, columns)
        allowed = casts_for(columns[column])
        if cast is not None and cast not in allowed:
            fitting = f"{column} is {type_name(columns[column])}: expected {' or '.join(allowed)}"
            raise FieldError((*path, "cast"), f"{fitting}, got {cast!r}")


def require_not_computed(path: tuple[str | int, ...], columns: Iterable[str], computed: Collection[str]) -> None:
    """Raise where a column is to be filled that the crop fields would overwrite; pure.

    Raises:
        FieldError: names the field.
    """
    for column in columns:
        if column in computed:
            raise FieldError((*path, column), "sidecar.crops computes this column: remove one of them")


def require_other_sources(path: tuple[str | int, ...], uris: Sequence[str], prefixes: Sequence[str]) -> None:
    """Raise where a source of the sidecar is what the dataset itself writes; pure.

    Raises:
        FieldError: names the field and what it overlaps with.
    """
    for uri in uris:
        for prefix in prefixes:
            if is_below(uri, prefix) or is_below(prefix, uri):
                raise FieldError(path, f"{uri} overlaps with {prefix}: outputs cannot be inputs")


def require_foreign(number: int, size: int, own: Sequence[int]) -> None:
    """Raise where the crop fields are to follow foreign resized images of a size that the dataset makes itself; pure.

    Raises:
        FieldError: names the field.
    """
    if size in own:
        path = ("sidecar", "crops", "resized", number, "size")
        raise FieldError(path, f"{size} is among resized: the crop fields follow that set already, remove one of them")


def require_each_once(field: str, values: Sequence[object]) -> None:
    """Raise where a list names something twice; pure.

    Raises:
        FieldError: names the field.
    """
    if len(set(values)) != len(values):
        raise FieldError((field,), f"each value may stand here once, got {', '.join(map(str, values))}")


def _require_one_bucket(prefixes: Mapping[str, str]) -> None:
    """Raise where an output is a whole bucket and the places beside it would be buckets of similar names; pure."""
    output = prefixes["output_prefix"]
    beside = [name for name, uri in prefixes.items() if uri.startswith(f"{output}_")]
    if beside and output.startswith("s3://") and "/" not in output.removeprefix("s3://"):
        message = f"{output} is a whole bucket, and {prefixes[beside[0]]} would be another one"
        raise FieldError(("output_prefix",), f"{message}: name a folder in it, or set {' and '.join(beside)}")


def _expected_constant(column: str, type_: pa.DataType, value: object) -> str | None:
    """Return what would have fitted, None if the value does."""
    if pa.types.is_boolean(type_):
        return None if isinstance(value, bool) else "true or false"
    if pa.types.is_floating(type_):
        return None if isinstance(value, int | float) and not isinstance(value, bool) else "a number"
    if not isinstance(value, str):
        return "a text, in quotes"
    if column in JSON_TEXT_COLUMNS:
        try:
            json.loads(value)
        except ValueError:
            return "JSON text"
    return None


def _require_known(path: tuple[str | int, ...], column: str, columns: Mapping[str, pa.DataType]) -> None:
    if column in columns:
        return
    if column in MEASURED_COLUMNS:
        raise FieldError(path, "this column is made by the packaging itself: remove it")
    if column in PLACED_COLUMNS or column in EXPECTED_COLUMNS:
        raise FieldError(path, "differs from row to row: map it under mapping.direct")
    if column.startswith(EXTENSION_PREFIX):
        raise FieldError(path, "declare this column in sidecar.schema_extensions first")
    raise FieldError(path, "there is no such column", tuple(columns))
