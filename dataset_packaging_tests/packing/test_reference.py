"""Sidecars against a reference family: what landed, and what is configured."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.core.invariants import Finding
from dataset_packaging.core.reference import columns_of, encode_schema_file
from dataset_packaging.core.schema import sidecar_schema
from dataset_packaging.errors import ReferenceUnusable
from dataset_packaging_tests.small_dataset import (
    open_pipeline,
    pack,
    rewrite,
    sidecar_paths,
    small_dataset,
    write_rows,
)


def write_family(folder: Path, schemas: list[pa.Schema]) -> None:
    for number, schema in enumerate(schemas):
        path = folder / "0_512" / str(number) / "shard-000000.parquet"
        path.parent.mkdir(parents=True)
        nullable = pa.schema([pa.field(field.name, field.type) for field in schema])
        pq.write_table(nullable.empty_table(), path)


def renamed(old: str, new: str) -> pa.Schema:
    return pa.schema([pa.field(new if field.name == old else field.name, field.type) for field in sidecar_schema()])


def reference_findings(folder: Path, reference: str, more: str = "") -> list[str]:
    dataset = small_dataset(folder, f"sidecar: {{reference: {reference}{more}}}\n")
    with open_pipeline(dataset) as pipeline:
        return [finding.detail for finding in pipeline.check_reference()]


def test_a_family_with_the_names_of_the_contract_matches(tmp_path: Path) -> None:
    write_family(tmp_path / "family", [sidecar_schema()] * 3)
    assert reference_findings(tmp_path, "family/") == []
    assert reference_findings(tmp_path, "family/0_512/1/shard-000000.parquet") == []


HAND_MADE = {
    "image_key": pa.string(), "width": pa.int32(), "height": pa.int32(), "s3_image_path": pa.string(),
    "is_rgba": pa.bool_(), "task": pa.string(), "data_source": pa.string(), "ocr_text": pa.list_(pa.string()),
    **dict.fromkeys(
        ["detailed_description", "full_description", "short_description", "user_prompt", "keywords"],
        pa.list_(pa.string()),
    ),
    **dict.fromkeys(["structured_description", "style", "image_type"], pa.string()),
    **dict.fromkeys(["image_quality_score", "design_quality_score", "aesthetic_score"], pa.float32()),
    **dict.fromkeys(
        ["is_aigc", "has_barcode", "has_watermark", "has_artifact", "has_mosaic", "has_rotation", "text_overlay"],
        pa.bool_(),
    ),
    "objects": pa.string(), "ocr_bbox": pa.string(),
    "ernie_image_aes": pa.struct({"raw_score": pa.float64(), "score": pa.float64(), "error": pa.string()}),
    "dqm_d1_v6_1": pa.struct({"raw_score": pa.float64(), "error": pa.string()}),
    "structured_description_crop_512": pa.string(), "structured_description_crop_1024": pa.string(),
    "bbox_resize_meta": pa.string(), "meta_info": pa.string(),
}  # fmt: skip
"""The names of the contract, written down by hand."""


def test_a_family_made_by_hand_is_the_reference(tmp_path: Path) -> None:
    write_family(tmp_path / "family", [pa.schema(HAND_MADE.items())] * 2)
    assert reference_findings(tmp_path, "family/") == []
    wrong = dict(HAND_MADE) | {"width": pa.int64(), "styles": pa.string()}
    del wrong["style"], wrong["bbox_resize_meta"]
    write_family(tmp_path / "wrong", [pa.schema(wrong.items())])
    found = reference_findings(tmp_path, "wrong/")
    assert len(found) == 4
    for words in ("width", "`styles`", "bbox_resize_meta", "styles (string) is missing"):
        assert any(words in finding for finding in found), words


def test_differences_name_the_column_and_the_reference(tmp_path: Path) -> None:
    write_family(tmp_path / "family", [renamed("full_description", "full_descripton")])
    source = (tmp_path / "family").as_uri() + "/"
    assert reference_findings(tmp_path, "family") == [
        f"column full_description is unknown; did you mean `full_descripton`? (reference: {source})",
        "column full_descripton (list<string>) is missing; `full_description` may be meant for it "
        f"(reference: {source})",
    ]


def test_extensions_of_the_reference_are_to_be_declared_and_own_ones_are_allowed(tmp_path: Path) -> None:
    extension = pa.field("filter_a", pa.struct([("score", pa.float64())]))
    write_family(tmp_path / "family", [sidecar_schema().append(extension)])
    (missing,) = reference_findings(tmp_path, "family")
    assert "; declare it in sidecar.schema_extensions (reference: " in missing
    own = ', schema_extensions: [{name: filter_%s, type: "struct<score: double>"}]'
    assert reference_findings(tmp_path, "family", own % "a") == []
    assert reference_findings(tmp_path, "family", own % "b") == [missing]


def test_a_family_that_disagrees_with_itself_is_reported(tmp_path: Path) -> None:
    write_family(tmp_path / "family", [sidecar_schema(), sidecar_schema(), renamed("style", "styles")])
    findings = reference_findings(tmp_path, "family")
    assert len(findings) == 2
    assert all("0_512/2/shard-000000.parquet" in finding and "schema export" in finding for finding in findings)


def test_an_exported_schema_file_is_a_reference(tmp_path: Path) -> None:
    columns = (*columns_of(sidecar_schema())[:-1], ("meta_info", "binary"))
    (tmp_path / "reference.json").write_text(encode_schema_file(columns, "somewhere"))
    (finding,) = reference_findings(tmp_path, "reference.json")
    assert finding.startswith("column meta_info is string, expected binary (reference: file://")


@pytest.mark.parametrize("reference", ["family/", "gone.parquet", "broken.parquet", "hidden/"])
def test_an_unreachable_reference_says_how_to_go_on(tmp_path: Path, reference: str) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    write_family(tmp_path / "hidden" / "_tmp", [sidecar_schema()])
    with pytest.raises(ReferenceUnusable, match=r"dataset-packaging schema export .* -o reference\.json"):
        reference_findings(tmp_path, reference)


def test_a_broken_schema_file_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "reference.json").write_text("{}")
    with pytest.raises(ReferenceUnusable, match=r'expected \{"version": 1'):
        reference_findings(tmp_path, "reference.json")


def test_verification_stops_before_reading_shards_when_the_reference_is_out_of_reach(tmp_path: Path) -> None:
    write_rows(tmp_path, 6)
    pack(small_dataset(tmp_path))
    dataset = small_dataset(tmp_path, "sidecar: {reference: gone/}\n")
    with open_pipeline(dataset) as pipeline, pytest.raises(ReferenceUnusable):
        pipeline.verify()


def test_every_way_to_look_shows_the_same_findings(tmp_path: Path) -> None:
    write_rows(tmp_path, 6)
    pack(small_dataset(tmp_path))
    write_family(tmp_path / "family", [renamed("style", "styles")])
    with open_pipeline(small_dataset(tmp_path, "sidecar: {reference: family}\n")) as pipeline:
        expected = [finding.detail for finding in pipeline.check_reference()]
        by_bucket = pipeline.check_sidecars(["0_512/10000", "0_512/15000"])
        verified = pipeline.verify().findings
    assert len(expected) == 2
    assert [finding.detail for finding in verified] == expected
    for key, checks in by_bucket.items():
        assert checks["column_names"] == [Finding("column_names", key, None, detail) for detail in expected]


def _shuffled(table: pa.Table) -> pa.Table:
    return table.take(pa.array(range(len(table) - 1, -1, -1)))


def _without_a_key(table: pa.Table) -> pa.Table:
    keys = [None, *table["image_key"].to_pylist()[1:]]
    return table.set_column(0, pa.field("image_key", pa.string()), pa.array(keys))


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        (lambda t: t.rename_columns({"style": "styl"}), "column_names", "styl is unknown; did you mean `style`?"),
        (lambda t: t.rename_columns({"image_key": "imagekey"}), "column_names", "did you mean `image_key`?"),
        (
            lambda t: t.set_column(1, "width", t["width"].cast("int64")),
            "column_names",
            "width is int64, expected int32",
        ),
        (lambda t: t.drop_columns(["objects"]), "column_names", "column objects (string) is missing"),
        (lambda t: t.drop_columns(["meta_info"]), "column_names", "column meta_info (string) is missing"),
        (_shuffled, "row_alignment", "image_key: row 0 is 'key-0000' in the shard, 'key-0009' in the sidecar"),
        (_without_a_key, "row_alignment", "image_key: row 0 is 'key-0000' in the shard, None in the sidecar"),
    ],
)
def test_a_sidecar_that_somebody_changed_is_found_and_named(tmp_path: Path, change, check: str, words: str) -> None:
    """SC-02 and names: the finding says what is wrong, not only that the object is another one."""
    write_rows(tmp_path, 12)
    dataset = small_dataset(tmp_path)
    pack(dataset)
    rewrite(tmp_path / "out/side/0_512/10000/shard-000000.parquet", change)
    with open_pipeline(dataset) as pipeline:
        checks = pipeline.check_sidecars(["0_512/10000"])["0_512/10000"]
        verified = pipeline.verify().findings
    found = [finding for finding in checks[check] if words in finding.detail]
    assert [finding.shard for finding in found] == [0]
    assert found[0] in verified
    assert checks["sidecar_state"] != []


def test_sidecars_hold_exactly_the_names_of_the_contract(tmp_path: Path) -> None:
    write_rows(tmp_path, 3, lambda number: {"caption": json.loads("null")})
    pack(small_dataset(tmp_path))
    assert {tuple(pq.read_schema(path).names) for path in sidecar_paths(tmp_path)} == {tuple(sidecar_schema().names)}
