"""Whether the values of a packed row are those of its manifest line."""

import json
import math
from collections.abc import Iterator

import numpy as np
import orjson
import pyarrow as pa

from dataset_packaging_tests.checker.contract import (
    JSON_TEXTS,
    MAIN_COLUMNS,
    PACKAGING_FIELDS,
    PATH_ALIASES,
    RESERVED,
    Dataset,
)
from dataset_packaging_tests.checker.manifest import Number, Row, first_value, parse
from dataset_packaging_tests.checker.pictures import Judgement

MEASURED = frozenset({"image", "width", "height", "is_rgba", "meta_info", "image_key", "s3_image_path"})
SIZES = frozenset({"width", "height"})


def sources_of(dataset: Dataset, column: str) -> tuple[str, ...]:
    """Returns the source fields that may fill a column, in the order in which they are tried."""
    if column in dataset.constants or column in RESERVED:
        return ()
    implicit = PATH_ALIASES if column == "s3_image_path" else (column,)
    return (*dataset.sources.get(column, ()), *implicit)


def column_findings(dataset: Dataset, row: Row, packed: dict[str, object]) -> Iterator[str]:
    """Compares the canonical columns of one file (main or sidecar) that the manifest fills."""
    fields, types = row.fields(), {**MAIN_COLUMNS, **dataset.sidecar_columns}
    for column, found in packed.items():
        if column in MEASURED:
            continue
        if column in dataset.constants:
            if found not in (dataset.constants[column], [dataset.constants[column]]):
                yield f"{column} is {found!r}, not the constant"
            continue
        expected = first_value(fields, sources_of(dataset, column))
        if not _is_kept(column, types[column], expected, found):
            yield f"{column} is {found!r}, the source says {expected!r}"


def _is_kept(column: str, type_: pa.DataType, expected: object, found: object) -> bool:
    if expected is None:
        return found is None
    if column in JSON_TEXTS and not isinstance(expected, str):
        return isinstance(found, str) and parse(found.encode()) == expected
    if pa.types.is_string(type_):
        return found == expected if isinstance(expected, str) else True
    if pa.types.is_list(type_):
        wanted = expected if isinstance(expected, list) else [expected]
        if not isinstance(found, list) or len(found) != len(wanted):
            return False
        return all(text == item for item, text in zip(wanted, found, strict=True) if isinstance(item, str))
    if pa.types.is_boolean(type_):
        return found == expected if isinstance(expected, bool) else True
    if pa.types.is_floating(type_):
        return _same_float(type_, expected, found) if isinstance(expected, Number) else True
    if pa.types.is_struct(type_) and isinstance(expected, dict):
        return isinstance(found, dict) and all(
            _is_kept("", field.type, expected.get(field.name), found[field.name]) for field in type_
        )
    return True  # a cast between kinds: the contract leaves its outcome open


def _same_float(type_: pa.DataType, expected: Number, found: object) -> bool:
    wanted = float(expected.text)
    with np.errstate(over="ignore"):
        rounded = float(np.float32(wanted)) if type_ == pa.float32() else wanted
    return found is None if math.isinf(rounded) else found == rounded


def meta_info_findings(dataset: Dataset, row: Row, sidecar: dict[str, object]) -> Iterator[str]:
    """Checks that meta_info is strict JSON and holds exactly what stands in no column."""
    text = sidecar.get("meta_info")
    if not isinstance(text, str):
        yield "meta_info is null"
        return
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        yield f"meta_info is no strict JSON: {error}"
        return
    names = json.loads(text, parse_int=str, object_pairs_hook=lambda pairs: [key for key, _ in pairs])
    if len(names) != len(set(names)):
        yield "meta_info names a field twice"
    kept = parse(text.encode())
    assert isinstance(kept, dict)
    if row.exact:
        yield from _field_findings(dataset, row.fields(), kept, sidecar)


def _field_findings(
    dataset: Dataset, fields: dict[str, object], kept: dict[str, object], sidecar: dict[str, object]
) -> Iterator[str]:
    expected = {("_packaging_source" if name == "_packaging" else name): value for name, value in fields.items()}
    for name, value in expected.items():
        columns = [column for column in (*sidecar, "image") if name in sources_of(dataset, column)]
        if name in dataset.drop or (dataset.keep is not None and name not in dataset.keep and not columns):
            if name in kept:
                yield f"meta_info holds {name}, which is to be dropped"
        elif name in kept:
            if kept[name] != value:
                yield f"meta_info.{name} is {kept[name]!r}, the source says {value!r}"
            elif any(_plainly_repeated(sidecar.get(column), value) for column in columns):
                yield f"meta_info repeats {name}"
        elif not any(_recoverable(column, sidecar.get(column), value) for column in columns):
            yield f"meta_info lacks {name}"
    for name in kept:
        if name != "_packaging" and name not in expected:
            yield f"meta_info holds {name}, which the source does not"


def _plainly_repeated(found: object, value: object) -> bool:
    return isinstance(value, str | bool) and type(found) is type(value) and found == value


def _recoverable(column: str, found: object, value: object) -> bool:
    if column in SIZES or value is None:
        return True
    if column in JSON_TEXTS and isinstance(found, str) and not isinstance(value, str):
        return parse(found.encode()) == value
    if isinstance(value, Number):
        return isinstance(found, float | int) and float(value.text) == float(found)
    if found in (value, [value]):
        return True
    return isinstance(found, dict) and isinstance(value, dict) and _same_struct(found, value)


def _same_struct(found: dict[str, object], value: dict[str, object]) -> bool:
    return set(value) <= set(found) and all(
        found[name] is None if item is None else _recoverable("", found[name], item) for name, item in value.items()
    )


def packaging_findings(judgement: Judgement, sidecar: dict[str, object]) -> Iterator[str]:
    """Compares the `_packaging` block with the file."""
    text = sidecar.get("meta_info")
    try:
        block = orjson.loads(text)["_packaging"] if isinstance(text, str) else None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        block = None
    if not isinstance(block, dict):
        yield "meta_info has no _packaging block"
        return
    if set(block) != PACKAGING_FIELDS:
        yield f"_packaging has the fields {sorted(block)}"
        return
    exact = {"bytes": judgement.size_bytes, "sha256": judgement.sha256, "format": judgement.format}
    if judgement.frames is not None:
        exact["frames"] = judgement.frames
    if judgement.orientation is not None:
        exact["exif_orientation"] = judgement.orientation
    for name, value in exact.items():
        if block[name] != value:
            yield f"_packaging.{name} is {block[name]!r}, not {value!r}"
    if judgement.modes and block["mode"] not in judgement.modes:
        yield f"_packaging.mode is {block['mode']!r}, not one of {sorted(judgement.modes)}"
    if judgement.stored_size and (block["stored_width"], block["stored_height"]) != judgement.stored_size:
        yield f"_packaging stored size is {block['stored_width']}x{block['stored_height']}, not {judgement.stored_size}"
    if not isinstance(block["warnings"], list) or not all(isinstance(warning, str) for warning in block["warnings"]):
        yield f"_packaging.warnings is {block['warnings']!r}, not a list of texts"
