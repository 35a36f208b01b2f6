import pyarrow as pa
import pytest

from dataset_packaging.core.schema import (
    MAIN_COLUMNS,
    MAIN_SCHEMA,
    SIDECAR_ONLY_COLUMNS,
    parse_extension,
    parse_type,
    schema_differences,
    sidecar_schema,
)

FILTER_CLARITY = parse_extension("filter_clarity", "struct<score: double, pass: bool>")


def test_main_columns_are_the_contract() -> None:
    texts, string, score, flag = "list<item: string>", "string", "float", "bool"
    expected = {
        "image_key": string, "image": "binary", "width": "int32", "height": "int32",
        "s3_image_path": string, "is_rgba": flag,
        "task": string, "data_source": string, "ocr_text": texts,
        "detailed_description": texts, "full_description": texts, "short_description": texts, "user_prompt": texts,
        "keywords": texts, "structured_description": string, "style": string, "image_type": string,
        "image_quality_score": score, "design_quality_score": score, "aesthetic_score": score,
        "is_aigc": flag, "has_barcode": flag, "has_watermark": flag, "has_artifact": flag, "has_mosaic": flag,
        "has_rotation": flag, "text_overlay": flag,
    }  # fmt: skip
    assert {field.name: str(field.type) for field in MAIN_SCHEMA} == expected
    assert tuple(expected) == MAIN_COLUMNS
    assert [field.name for field in MAIN_SCHEMA if not field.nullable] == list(MAIN_COLUMNS[:6])


def test_sidecar_columns_are_the_contract() -> None:
    schema = sidecar_schema([FILTER_CLARITY])
    assert schema.names == [
        *(name for name in MAIN_COLUMNS if name != "image"),
        "objects", "ocr_bbox", "ernie_image_aes", "dqm_d1_v6_1",
        "structured_description_crop_512", "structured_description_crop_1024", "bbox_resize_meta",
        "filter_clarity", "meta_info",
    ]  # fmt: skip
    assert str(schema.field("ernie_image_aes").type) == "struct<raw_score: double, score: double, error: string>"
    assert str(schema.field("dqm_d1_v6_1").type) == "struct<raw_score: double, error: string>"
    assert str(schema.field("filter_clarity").type) == "struct<score: double, pass: bool>"
    assert schema.field("meta_info").type == pa.string()
    assert len(SIDECAR_ONLY_COLUMNS) == 7


def test_every_field_says_what_it_means() -> None:
    for field in [*MAIN_SCHEMA, *sidecar_schema([FILTER_CLARITY])]:
        assert field.metadata[b"description"], field.name


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("struct<score: double, pass: bool>", pa.struct([("score", pa.float64()), ("pass", pa.bool_())])),
        (" struct < a:list<string>,b : int32 > ", pa.struct([("a", pa.list_(pa.string())), ("b", pa.int32())])),
        ("struct<struct: struct<list: int64>>", pa.struct([("struct", pa.struct([("list", pa.int64())]))])),
        ("float", pa.float32()),
    ],
)
def test_types_parse(text: str, type_: pa.DataType) -> None:
    assert parse_type(text) == type_


@pytest.mark.parametrize(
    "text",
    ["", "struct", "struct<>", "struct<a>", "struct<a: double", "struct<a: double>>", "struct<a: double,>", "list<>",
     "struct<a: double, a: bool>", "struct<a: decimal>", "text", "struct<1a: bool>", "struct<a; bool>",
     "list<" * 9 + "int" + ">" * 9],
)  # fmt: skip
def test_what_is_no_type_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no type: expected .* at character"):
        parse_type(text)


@pytest.mark.parametrize(
    ("name", "type_text"), [("clarity", "struct<a: bool>"), ("filter_", "struct<a: bool>"), ("filter_a", "double")]
)
def test_extensions_are_filter_structs(name: str, type_text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_extension(name, type_text)


def test_schema_differences_name_each_column() -> None:
    assert schema_differences(MAIN_SCHEMA, MAIN_SCHEMA.remove_metadata()) == []
    wrong = MAIN_SCHEMA.remove(MAIN_SCHEMA.get_field_index("task")).append(pa.field("tsak", pa.string()))
    wrong = wrong.set(2, pa.field("width", pa.int64(), nullable=True))
    assert schema_differences(MAIN_SCHEMA, wrong) == [
        "column task is missing",
        "column tsak is not declared",
        "column width is int64, declared int32",
        "column width may be null, unlike declared",
    ]


def test_another_order_is_a_difference() -> None:
    swapped = pa.schema([MAIN_SCHEMA.field(1), MAIN_SCHEMA.field(0), *list(MAIN_SCHEMA)[2:]])
    assert schema_differences(MAIN_SCHEMA, swapped)[0].startswith("columns stand in another order: image, image_key")


def test_a_repeated_column_is_a_difference() -> None:
    assert schema_differences(MAIN_SCHEMA, MAIN_SCHEMA.append(MAIN_SCHEMA.field("task"))) != []
