"""The `sidecar` block of the dataset YAML."""

import re
from pathlib import Path

import pytest

from dataset_packaging.config import DatasetConfig, parse_dataset
from dataset_packaging.errors import ConfigError

HEAD = "name: a\nmanifest: m.jsonl\noutput_prefix: o\nsidecar:\n"


def parse(block: str) -> DatasetConfig:
    return parse_dataset(HEAD + block, "a.yaml", Path("/data"), {})


def merge(entry: str) -> DatasetConfig:
    return parse(f"  merge:\n  - {entry}")


def test_columns_have_short_forms():
    (short,) = merge("{source: s.parquet, columns: [style, objects]}").sidecar.merge
    (long,) = merge("{source: [s.parquet], columns: {style: style, objects: {from: [objects]}}}").sidecar.merge
    assert short == long
    assert short.source == ("file:///data/s.parquet",)


def test_null_is_a_word_here():
    """YAML reads `unmatched: null` as nothing at all."""
    assert merge("{source: s, columns: [style], unmatched: null}").sidecar.merge[0].unmatched == "null"


@pytest.mark.parametrize("column", ["structured_description_crop_512", "bbox_resize_meta"])
@pytest.mark.parametrize(
    ("block", "place"),
    [
        ("sidecar: {{crops: {{sizes: [512]}}, merge: [{{source: s, columns: [{0}]}}]}}", "sidecar.merge[0].columns"),
        ("sidecar: {{crops: {{sizes: [512]}}}}\nmapping: {{direct: {{{0}: x}}}}", "mapping.direct"),
        ("sidecar: {{crops: {{sizes: [512]}}}}\nmapping: {{constants: {{{0}: '{{}}'}}}}", "mapping.constants"),
    ],
)
def test_what_the_crops_compute_comes_from_nowhere_else(block: str, place: str, column: str):
    """It was overwritten, while the footer named the source of the merge."""
    head = HEAD.removesuffix("sidecar:\n")
    text = block.format(column)
    with pytest.raises(ConfigError, match=re.escape(f"{place}.{column}: sidecar.crops computes this column")):
        parse_dataset(head + text, "a.yaml", Path("/data"), {})
    other = text.replace("sizes: [512]", "sizes: [1024]")
    if column.endswith("512"):
        assert parse_dataset(head + other, "a.yaml", Path("/data"), {}).sidecar.crops


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{source: s}", "merge[0].columns: this field is missing"),
        ("{columns: [style]}", "merge[0]: expected source_prefix (row-aligned) or source (keyed), one of the two"),
        ("{source: s, source_prefix: t, columns: [style]}", "one of the two"),
        ("{source: s, columns: []}", "merge[0].columns: expected at least one"),
        ("{source: s, columns: [styl]}", "merge[0].columns.styl: there is no such column; did you mean style?"),
        ("{source: s, columns: [image_key]}", "merge[0].columns.image_key: says which row this is or how large"),
        ("{source: s, columns: [width]}", "merge[0].columns.width: says which row this is or how large"),
        ("{source: s, columns: [meta_info]}", "this column is made by the packaging itself"),
        ("{source: s, columns: [filter_x]}", "declare this column in sidecar.schema_extensions first"),
        ("{source: s, columns: {style: {from: x, cast: float}}}", "style is string: expected string or json, got"),
        ("{source: s, columns: {style: 5}}", "merge[0].columns.style: expected the name of a source field"),
        ("{source: s, columns: [style], mode: prefer}", "did you mean prefer_source?"),
        ("{source: s, key: name, columns: [style]}", "merge[0].key: expected 'image_key' or 's3_image_path'"),
        ("{source: s, colums: [style]}", "merge[0].colums: unknown field; did you mean columns?"),
        ("{source_prefix: o, columns: [style]}", "overlaps with file:///data/o: outputs cannot be inputs"),
        ("{source: o_sidecar/x.parquet, columns: [style]}", "outputs cannot be inputs"),
    ],
)
def test_a_wrong_merge_is_one_clear_line(entry: str, message: str):
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        merge(entry)
    assert str(error.value).startswith("a.yaml:6: sidecar.merge[0]")
