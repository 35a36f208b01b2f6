"""Names and types against a reference."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.core.reference import (
    columns_of,
    comparable_type,
    decode_schema_file,
    encode_schema_file,
    find_differences,
    nearest_name,
    plan_sample,
    settle_family,
)
from dataset_packaging.core.schema import parse_extension, sidecar_schema

REFERENCE = columns_of(sidecar_schema())


def details(actual: pa.Schema, own: tuple[str, ...] = ()) -> list[str]:
    return [difference.detail for difference in find_differences(REFERENCE, columns_of(actual), own)]


def changed(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in sidecar_schema()])


def test_the_contract_matches_itself() -> None:
    assert details(sidecar_schema()) == []


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.string(), pa.large_string()),
        (pa.string(), pa.string_view()),
        (pa.string(), pa.dictionary(pa.int32(), pa.string())),
        (pa.string(), pa.run_end_encoded(pa.int32(), pa.string())),
        (pa.binary(), pa.large_binary()),
        (pa.list_(pa.string()), pa.large_list(pa.field("element", pa.large_string(), nullable=False))),
        (pa.list_(pa.string()), pa.list_view(pa.string())),
        (pa.struct([("a", pa.string())]), pa.struct([pa.field("a", pa.large_string(), nullable=False)])),
        (pa.list_(pa.struct([("a", pa.float64())])), pa.large_list(pa.struct([("a", pa.float64())]))),
    ],
)
def test_encodings_that_readers_do_not_see_are_the_same(left: pa.DataType, right: pa.DataType) -> None:
    assert comparable_type(left) == comparable_type(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.float32(), pa.float64()),
        (pa.int32(), pa.int64()),
        (pa.string(), pa.list_(pa.string())),
        (pa.list_(pa.string()), pa.list_(pa.string(), 2)),
        (pa.struct([("a", pa.string()), ("b", pa.string())]), pa.struct([("b", pa.string()), ("a", pa.string())])),
        (pa.struct([("a", pa.string())]), pa.struct([("b", pa.string())])),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.null(), pa.string()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.list_(pa.struct([("a", pa.string())])), pa.list_(pa.struct([("A", pa.string())]))),
        (pa.map_(pa.string(), pa.int8()), pa.list_(pa.struct([("key", pa.string()), ("value", pa.int8())]))),
    ],
)
def test_other_types_are_others(left: pa.DataType, right: pa.DataType) -> None:
    assert comparable_type(left) != comparable_type(right)


@pytest.mark.parametrize(
    ("inferred", "other"),
    [
        (pa.null(), None),
        (pa.struct([("raw_score", pa.null()), ("score", pa.float64()), ("error", pa.null())]), pa.struct([])),
        (pa.list_(pa.null()), pa.list_(pa.null(), 2)),
    ],
)
def test_a_reference_that_knows_no_type_fits_any(inferred: pa.DataType, other: pa.DataType | None) -> None:
    """As pandas writes a family whose errors are all null; the other way round a type is lost."""
    column = "keywords" if pa.types.is_list(inferred) else "ernie_image_aes"
    reference = columns_of(changed(**{column: inferred}))
    assert find_differences(reference, REFERENCE) == []
    assert [found.column for found in find_differences(REFERENCE, reference)] == [column]
    if other is not None:
        assert len(find_differences(reference, columns_of(changed(**{column: other})))) == 1


@pytest.mark.parametrize(
    "type_",
    [
        pa.struct([("error", pa.null()), ("at", pa.timestamp("us", "UTC"))]),
        pa.struct([("error", pa.null()), ("a, b: c", pa.decimal128(9, 2)), ("x<y", pa.map_(pa.string(), pa.null()))]),
        pa.list_(pa.struct([("error", pa.null()), ("deep", pa.list_(pa.struct([("a", pa.null())])))])),
    ],
)
def test_odd_names_and_types_inside_break_nothing(type_: pa.DataType) -> None:
    columns = (("a.b", comparable_type(type_)), ("Ä ö", "string"), ("a.B", "string"))
    assert find_differences(columns, columns) == []
    assert len(find_differences(columns, (("a.b", "string"), *columns[1:]))) == 1


def test_names_that_differ_in_case_or_dots_are_others() -> None:
    reference, actual = (("Style", "string"), ("a.b", "string")), (("style", "string"), ("a_b", "string"))
    assert [(found.kind, found.detail) for found in find_differences(reference, actual)] == [
        ("unknown", "column style is unknown; did you mean `Style`?"),
        ("unknown", "column a_b is unknown; did you mean `a.b`?"),
        ("missing", "column Style (string) is missing; `style` may be meant for it"),
        ("missing", "column a.b (string) is missing; `a_b` may be meant for it"),
    ]


def test_order_and_null_rules_do_not_count() -> None:
    fields = [pa.field(field.name, field.type, nullable=True) for field in sidecar_schema()]
    assert details(pa.schema(fields[::-1])) == []


def test_a_wrong_type_is_named_with_both_types() -> None:
    schema = changed(aesthetic_score=pa.float64(), ernie_image_aes=pa.struct([("score", pa.float64())]))
    assert details(schema) == [
        "column aesthetic_score is double, expected float",
        "column ernie_image_aes is struct<score: double>, expected struct<raw_score: double, score: double, "
        "error: string>",
    ]


@pytest.mark.parametrize(
    "slip", ["full_descripton", "fullDescription", "full-description", "Full_Description", "full_descriptions"]
)
def test_a_near_miss_says_what_was_meant(slip: str) -> None:
    names = [slip if name == "full_description" else name for name in sidecar_schema().names]
    assert details(pa.schema(list(zip(names, sidecar_schema().types, strict=True)))) == [
        f"column {slip} is unknown; did you mean `full_description`?",
        f"column full_description (list<string>) is missing; `{slip}` may be meant for it",
    ]


def test_a_name_unlike_any_gets_no_advice() -> None:
    assert details(sidecar_schema().append(pa.field("internal_notes", pa.string()))) == [
        "column internal_notes is unknown"
    ]
    assert nearest_name("short_description", ["full_description"]) is None


def test_a_repeated_name_is_told() -> None:
    assert details(sidecar_schema().append(pa.field("style", pa.string()))) == ["column style stands there 2 times"]


def test_own_columns_extend_the_reference_but_not_with_other_types() -> None:
    own = sidecar_schema([parse_extension("filter_x", "struct<score: double>")])
    assert details(own, ("filter_x",)) == []
    assert details(own) == ["column filter_x is unknown"]
    other = columns_of(sidecar_schema([parse_extension("filter_x", "struct<score: float>")]))
    assert [difference.kind for difference in find_differences(other, columns_of(own), ("filter_x",))] == ["type"]


def test_a_family_whose_shards_disagree_is_reported_and_the_majority_counts() -> None:
    good = (("a", "string"), ("b", "double"))
    family = settle_family([("1", good), ("2", good), ("3", (("a", "string"), ("b", "string"), ("c", "bool")))])
    assert family.columns == good
    assert family.disagreements == (
        "3: column b is string, expected double, as most of the 3 shards that were read have it",
        "3: column c is unknown (most of the 3 shards that were read do not have it)",
    )


def test_columns_without_a_type_have_no_vote() -> None:
    """Writers that infer types leave `null` where a shard has no value, even if most shards have none."""
    family = settle_family([("1", (("a", "null"),)), ("2", (("a", "null"),)), ("3", (("a", "string"),))])
    assert family.columns == (("a", "string"),)
    assert len(family.disagreements) == 2
    known, unknown = "struct<score: double, error: string>", "struct<score: double, error: null>"
    family = settle_family([("1", (("a", unknown),)), ("2", (("a", unknown),)), ("3", (("a", known),))])
    assert family.columns == (("a", known),)
    assert len(family.disagreements) == 2


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1), st.integers(1, 12))
def test_a_sample_is_spread_over_folders(folders: dict[str, int], limit: int) -> None:
    uris = [f"s3://b/{folder}/{number}" for folder in sorted(folders) for number in range(folders[folder])]
    sample = plan_sample(uris, limit)
    assert len(set(sample)) == len(sample) <= limit
    assert set(sample) <= set(uris)
    assert len({uri.rpartition("/")[0] for uri in sample}) == min(limit, len(folders))


def test_a_schema_file_says_the_same_as_the_family() -> None:
    columns = (*REFERENCE, ("taken", comparable_type(pa.timestamp("us"))), ("weird name", "list<int8>"))
    assert decode_schema_file(encode_schema_file(columns, "s3://b/family/")) == columns


def test_a_schema_file_may_be_written_by_hand() -> None:
    text = '{"columns": [{"name": "a", "type": "list< string >"}, {"name": "b", "type": "float32"}]}'
    assert decode_schema_file(text) == (("a", "list<string>"), ("b", "float"))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"columns": []}', '{"columns": ["a"]}', '{"columns": [{"name": 1, "type": "string"}]}',
             '{"version": 9, "columns": [{"name": "a", "type": "string"}]}']
)  # fmt: skip
def test_another_text_is_no_schema_file(text: str) -> None:
    with pytest.raises(ValueError, match=r'expected \{"version": 1'):
        decode_schema_file(text)
