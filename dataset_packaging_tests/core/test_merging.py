"""Values of another source into a column."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.core.merging import MergeMode, UnmatchedRule, ValueReader, is_missing, merge_values
from dataset_packaging.core.schema import sidecar_schema

SCORE = sidecar_schema().field("ernie_image_aes").type
EMPTY = {"raw_score": None, "score": None, "error": None}


def score(value: float | None, error: str | None = None) -> dict[str, object]:
    return {"raw_score": value, "score": value, "error": error}


def read(column: str, values: pa.Array, cast: str | None = None) -> tuple[list[object], list[bool]]:
    converted, bad = ValueReader.of(column, sidecar_schema().field(column).type, cast).from_arrow(values)
    assert converted.type == sidecar_schema().field(column).type
    return converted.to_pylist(), bad.tolist()


def test_a_struct_without_any_value_counts_as_null() -> None:
    values = pa.array([None, EMPTY, score(0.0), score(None, "timeout")], SCORE)
    assert is_missing(values).tolist() == [True, True, False, False]
    nested = pa.array([{"a": EMPTY}, {"a": score(1)}, {"a": None}], pa.struct([("a", SCORE)]))
    assert is_missing(nested).tolist() == [True, False, True]
    assert is_missing(values.slice(1, 2)).tolist() == [True, False]


@pytest.mark.parametrize(
    ("mode", "unmatched", "expected"),
    [
        ("fill_missing", "skip", [score(1), score(12), score(13), score(4), score(5)]),
        ("prefer_source", "skip", [score(11), score(12), score(13), score(4), score(5)]),
        ("fill_missing", "null", [score(1), score(12), score(13), score(4), None]),
        ("prefer_source", "null", [score(11), score(12), score(13), score(4), None]),
    ],
)
def test_structs_merge_as_structs(mode: MergeMode, unmatched: UnmatchedRule, expected: list[object]) -> None:
    existing = pa.array([score(1), None, EMPTY, score(4), score(5)], SCORE)
    incoming = pa.array([score(11), score(12), score(13), EMPTY, None], SCORE)
    merged, taken = merge_values(existing, incoming, np.array([1, 1, 1, 1, 0], bool), mode, unmatched)
    assert merged.to_pylist() == expected
    assert taken == (2 if mode == "fill_missing" else 3)


@given(
    st.lists(st.tuples(st.none() | st.integers(), st.none() | st.integers(), st.booleans())),
    st.sampled_from(["fill_missing", "prefer_source"]),
    st.sampled_from(["skip", "null"]),
)
def test_one_rule_for_each_row(
    rows: list[tuple[int | None, int | None, bool]], mode: MergeMode, unmatched: UnmatchedRule
) -> None:
    existing, incoming, matched = ([row[at] for row in rows] for at in range(3))
    texts = pa.array([None if v is None else str(v) for v in existing], pa.string())
    offers = pa.array([None if v is None else f"new {v}" for v in incoming], pa.string())
    merged, taken = merge_values(texts, offers, np.array(matched, bool), mode, unmatched)
    expected, count = [], 0
    for old, new, known in zip(texts.to_pylist(), offers.to_pylist(), matched, strict=True):
        wins = known and new is not None and (old is None or mode == "prefer_source")
        count += wins
        expected.append(new if wins else old if known or unmatched == "skip" else None)
    assert merged.to_pylist() == expected
    assert taken == count


def test_struct_fields_are_found_by_name_and_other_ones_left_out() -> None:
    values = pa.array([{"model": "m", "score": 2, "raw_score": 1.5}, None, {"model": "m", "score": None}])
    assert read("ernie_image_aes", values) == (
        [{"raw_score": 1.5, "score": 2.0, "error": None}, None, EMPTY],
        [False, False, True],
    )


@pytest.mark.parametrize(
    ("column", "values", "expected", "bad"),
    [
        ("full_description", pa.array(["a", None, ""]), [["a"], None, [""]], [0, 0, 0]),
        ("full_description", pa.array(["a", "a"]).dictionary_encode(), [["a"], ["a"]], [0, 0]),
        ("full_description", pa.array([["a", "b"], []], pa.large_list(pa.large_string())), [["a", "b"], []], [0, 0]),
        ("full_description", pa.array([5]), [["5"]], [0]),
        ("style", pa.array([1, None]), ["1", None], [0, 0]),
        ("style", pa.array([["no"]]), [None], [1]),
        ("aesthetic_score", pa.array([1, 2]), [1.0, 2.0], [0, 0]),
        ("aesthetic_score", pa.array(["1.5", "no", None]), [1.5, None, None], [0, 1, 0]),
        ("aesthetic_score", pa.array([0.1], pa.float64()), [pytest.approx(0.1)], [0]),
        ("is_aigc", pa.array(["true", "no", None, "0"]), [True, None, None, False], [0, 1, 0, 0]),
        ("is_aigc", pa.array([1, 0, 2]), [True, False, None], [0, 0, 1]),
        ("objects", pa.array(['{"a": 1}', "no", None]), ['{"a": 1}', "no", None], [0, 0, 0]),
        ("objects", pa.array([{"a": [1, 2]}]), ['{"a":[1,2]}'], [0]),
        ("style", pa.array([b"bytes"]), [None], [1]),
    ],
)
def test_values_are_cast_to_the_column(column: str, values: pa.Array, expected: list[object], bad: list[int]) -> None:
    """SC-05: a scalar text becomes a list of one, null stays null, a number or bool becomes its JSON text."""
    assert read(column, values) == (expected, list(map(bool, bad)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_cannot_say_become_null(value: float) -> None:
    """SC-01, wherever the number comes from."""
    assert read("aesthetic_score", pa.array([value, 1.0])) == ([None, 1.0], [True, False])
    parts, _ = read("ernie_image_aes", pa.array([score(value, "x")], SCORE))
    assert parts == [score(None, "x")]


@pytest.mark.parametrize("text", ["NaN", "1e400", '"no"', "[1]"])
def test_json_that_a_column_cannot_hold_is_bad_and_null(text: str) -> None:
    reader = ValueReader.of("aesthetic_score", pa.float32(), None)
    values, bad = reader.from_json([text.encode(), b"2", b"null", None])
    assert values.to_pylist() == [None, 2.0, None, None]
    assert bad.tolist() == [True, False, False, False]


@given(st.lists(st.none() | st.floats(allow_nan=False, width=32) | st.text() | st.lists(st.text(), max_size=2)))
def test_json_and_arrow_give_the_same(values: list[object]) -> None:
    """A score file may be JSONL or Parquet: the column it fills does not depend on that."""
    reader = ValueReader.of("keywords", sidecar_schema().field("keywords").type, None)
    raws = [None if value is None else json.dumps(value).encode() for value in values]
    from_json, bad = reader.from_json(raws)
    kinds = [(str, pa.string()), (list, pa.list_(pa.string())), (float, pa.float32())]
    for kind, type_ in kinds:
        rows = [row for row, value in enumerate(values) if isinstance(value, kind)]
        from_arrow, arrow_bad = reader.from_arrow(pa.array([values[row] for row in rows], type_))
        if kind is not float:
            assert from_arrow.to_pylist() == [from_json[row].as_py() for row in rows]
        assert arrow_bad.tolist() == [bool(bad[row]) for row in rows]
