"""Random manifest rows against an independent reading of the contract, and against each other."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_packaging.config import MappingConfig
from dataset_packaging.core.general_rows import GeneralReader
from dataset_packaging.core.lenient_json import parse_leniently
from dataset_packaging.core.mapping_plan import plan_mapping
from dataset_packaging.core.meta_info import MetaInfoWriter
from dataset_packaging.core.records import MappedRows, RecordMapper
from dataset_packaging.core.typed_rows import TypedReader
from dataset_packaging_tests.checker.contract import Dataset
from dataset_packaging_tests.checker.manifest import Row
from dataset_packaging_tests.checker.values import column_findings, meta_info_findings

SOURCES = {
    "image_key": ("id",),
    "s3_image_path": ("own_path", "meta.path"),
    "full_description": ("caption", "meta.caption"),
    "short_description": ("caption",),
    "style": ("meta.style", "st"),
    "aesthetic_score": ("score", "score2"),
    "is_aigc": ("flag",),
    "structured_description": ("struct",),
    "image_type": ("own_path",),
    "ernie_image_aes": ("aes",),
    "dqm_d1_v6_1": ("aes",),
}
NAMES = st.sampled_from(
    ["id", "own_path", "meta", "caption", "st", "score", "score2", "flag", "struct", "style", "url", "s3_path",
     "keywords",
     "objects", "dqm_d1_v6_1", "image", "meta_info", "_packaging", "task", "width", "height", "größe", "a.b",
     "meta.caption", "", 'q"\\', "aesthetic_score", "has_mosaic", "dropped", "x", "aes"]
)  # fmt: skip
TEXTS = st.text(max_size=8) | st.sampled_from(
    ["", "s3://b/k", "a dog", "é\u2028", "x/y.jpg", "5", '{"a":1}', "\x00", "😀"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | TEXTS
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([0, 1, 2, 640])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.5, 1.0, 0.1, 1e-320, 1e39])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["caption", "style", "path", "raw_score", "error", "z"]), inner, max_size=3)
    ),
    max_leaves=6,
)
ROWS = st.dictionaries(NAMES, VALUES, max_size=8)
ODD_VALUES = st.sampled_from([b"", b"", b"", b"NaN", b'"\\ud800"', b"1e400", b"!"])
STYLES = st.sampled_from([(",", ":", False), (", ", ": ", True), (" , ", " : ", False), (", ", ": ", False)])


def dataset_of(drop: frozenset[str], keep: frozenset[str] | None) -> Dataset:
    here = Path("/nowhere")
    return Dataset(
        manifests=(), output=here, sidecar=here, work=here, constants={"task": "t2i"}, sources=SOURCES,
        base_uri="s3://base/", drop=drop, keep=keep, upright=True, strict=True, formats=(),
        max_pixels=1, max_bytes=1, shard_rows=1,
        row_group_bytes=1, extensions={},
    )  # fmt: skip


def mapping_of(dataset: Dataset) -> MappingConfig:
    return MappingConfig.model_validate(
        {
            "constants": dataset.constants,
            "direct": {column: list(names) for column, names in dataset.sources.items()},
            "base_uri": dataset.base_uri,
            "drop": sorted(dataset.drop),
            "keep": None if dataset.keep is None else sorted(dataset.keep),
        }
    )


def written(row: dict[str, Any], style: tuple[str, str, bool]) -> bytes:
    comma, colon, ascii_only = style
    return json.dumps(row, separators=(comma, colon), ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def with_value(line: bytes, odd: bytes) -> bytes:
    """A line with one more field whose value is no strict JSON, if there is one."""
    return line[:-1] + b',"score":' + odd + b"}" if odd else line


def rows_of(mapped: MappedRows) -> list[tuple[Any, ...]]:
    columns = [values for _, values in sorted(mapped.columns.items())]
    return list(
        zip(mapped.line, mapped.image_key, mapped.s3_image_path, mapped.width_px, mapped.height_px, mapped.meta_info,
            mapped.warnings, mapped.main_hash, mapped.side_hash, *columns, strict=True)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("drop", "keep"),
    [(frozenset(), None), (frozenset({"dropped"}), None), (frozenset(), frozenset({"x", "größe"}))],
    ids=["all", "drop", "keep"],
)
@given(fields=ROWS, style=STYLES)
@settings(max_examples=150, deadline=None)
def test_a_mapped_row_holds_every_value_of_its_source_once(
    drop: frozenset[str], keep: frozenset[str] | None, fields: dict[str, Any], style: tuple[str, str, bool]
) -> None:
    dataset = dataset_of(drop, keep)
    line = written(fields, style)
    mapped = RecordMapper(mapping_of(dataset)).map_lines([(7, line)], "m")
    assert len(mapped.line) + len(mapped.rejects) == 1
    if mapped.rejects:
        assert mapped.rejects[0].reason in ("missing_path", "bad_path")
        return
    row = Row(Path("m"), 7, line, exact="\\ud" not in line.decode("utf-8", "replace"))
    columns = {name: values[0] for name, values in mapped.columns.items()}
    sidecar = columns | {
        "meta_info": mapped.meta_info[0],
        "image_key": mapped.image_key[0],
        "s3_image_path": mapped.s3_image_path[0],
        "width": mapped.width_px[0],
        "height": mapped.height_px[0],
    }
    assert list(column_findings(dataset, row, columns)) == []
    assert list(meta_info_findings(dataset, row, sidecar)) == []


@given(
    lines=st.lists(
        st.tuples(ROWS, STYLES, st.sampled_from([b"", b"", b"", b"NaN", b'"\\ud800"', b"1e400", b"!"])), max_size=12
    )
)
@settings(max_examples=200, deadline=None)
def test_a_row_does_not_depend_on_its_neighbours(
    lines: list[tuple[dict[str, Any], tuple[str, str, bool], bytes]],
) -> None:
    mapper = RecordMapper(mapping_of(dataset_of(frozenset(), None)))
    encoded = [with_value(written({"url": "s3://b/k"} | row, style), odd) for row, style, odd in lines]
    together = mapper.map_lines(list(enumerate(encoded)), "m")
    apart = [mapper.map_lines([pair], "m") for pair in enumerate(encoded)]
    assert rows_of(together) == [row for mapped in apart for row in rows_of(mapped)]
    assert together.rejects == [reject for mapped in apart for reject in mapped.rejects]
    assert together.rows == len(lines)


def ordinary_values(name: str) -> st.SearchStrategy[Any]:
    """What a well-kept manifest holds in a field of this name."""
    words = st.sampled_from(["a dog", 'says "x": é', "", "a\nb", "s3://b/k"])
    by_name: dict[str, st.SearchStrategy[Any]] = {
        "caption": words | st.none() | st.lists(words, max_size=2),
        "meta": st.fixed_dictionaries({}, optional={"caption": words, "style": words, "path": st.just("s3://b/m")}),
        "score": st.sampled_from([0.5, 1, 0.1, None]),
        "score2": st.sampled_from([0.5, None]),
        "aesthetic_score": st.sampled_from([2.5, 0.2]),
        "flag": st.booleans() | st.none(),
        "struct": st.sampled_from(['{"a":1}', {"a": 1}, None]),
        "own_path": st.sampled_from(["s3://b/k", "s3a://b/k", "x.jpg"]),
        "url": st.just("https://example.org"),
        "width": st.sampled_from([640, None]),
        "height": st.just(480),
        "keywords": st.lists(words, max_size=2),
        "dqm_d1_v6_1": st.just({"raw_score": 0.5}),
        "has_mosaic": st.booleans(),
        "objects": st.just([1.0]),
        "aes": st.sampled_from([{"raw_score": 0.5}, {"raw_score": 0.5, "score": 1.0}]),
    }
    return by_name.get(name, words)


@st.composite
def similar_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows with the same names but for a few, nearly all of the usual types."""
    names = draw(st.lists(NAMES, max_size=10, unique=True).map(lambda chosen: ["own_path", *chosen]))
    rows: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 6))):
        row = {name: draw(ordinary_values(name)) for name in names}
        if draw(st.integers(0, 3)) == 0:
            row.pop(draw(st.sampled_from(names)), None)
        rows.append(row)
    if draw(st.integers(0, 3)) == 0:
        rows[-1][draw(NAMES)] = draw(VALUES)
    return rows


@given(
    rows=similar_rows(),
    style=st.sampled_from([(",", ":", False), (",", ":", False), (", ", ": ", True), (" , ", " : ", False)]),
    repeated=st.sampled_from([False, False, False, True]),
    keep=st.sampled_from([None, frozenset({"x", "meta"})]),
)
@settings(max_examples=400, deadline=None)
def test_the_short_way_and_the_general_way_agree(
    rows: list[dict[str, Any]], style: tuple[str, str, bool], repeated: bool, keep: frozenset[str] | None
) -> None:
    plan = plan_mapping(mapping_of(dataset_of(frozenset() if keep else frozenset({"dropped"}), keep)), ())
    writer = MetaInfoWriter(plan.survives)
    typed = TypedReader(plan, writer)
    typed.learn(rows)
    lines = [written(row, style) for row in rows]
    if repeated:
        lines[-1] = lines[-1][:-1] + b',"caption":"again"}'
    short = typed.read(lines)
    if short is None:
        return
    general = GeneralReader(plan, writer).read(list(enumerate(lines)))
    assert general.rejects == []
    assert set(general.warnings) == {()}
    assert short.meta_info == general.meta_info
    assert repr(short.columns) == repr(general.columns)


@given(fields=ROWS, style=STYLES)
@settings(max_examples=200, deadline=None)
def test_the_lenient_parser_leaves_strict_json_as_it_is(fields: dict[str, Any], style: tuple[str, str, bool]) -> None:
    found = parse_leniently(written(fields, style))
    assert {name: json.loads(field.raw) for name, field in found.items()} == fields
    assert all(field.problem is None and not field.warnings for field in found.values())
    for name, field in found.items():
        assert field.raw == written({"": fields[name]}, style)[len(written({"": 0}, style)) - 2 : -1]


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:0123456789eE.-+tfnulrasy \\ud\ud800é', max_size=60))
@settings(max_examples=500, deadline=None)
def test_no_line_crashes_the_mapping(line: bytes | str) -> None:
    encoded = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    mapped = RecordMapper(MappingConfig()).map_lines(
        [(1, b'{"url":"s3://b/k","x":' + encoded + b"}"), (2, encoded)], "m"
    )
    for text in mapped.meta_info:
        orjson.loads(text)
    assert mapped.rows - len(mapped.rejects) == len(mapped.line)
