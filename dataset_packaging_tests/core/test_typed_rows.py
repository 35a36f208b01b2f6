"""The short way: it is taken where it should be, and left where a row is not ordinary."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.config import MappingConfig
from dataset_packaging.core.byte_scan import NameCounter, may_hold_huge_number
from dataset_packaging.core.mapping_plan import plan_mapping
from dataset_packaging.core.meta_info import MetaInfoWriter
from dataset_packaging.core.typed_rows import TypedReader

ROW = (
    '{"s3_path":"s3://b/k","width":8,"height":6,"full_description":"a dog","keywords":["a"],"aesthetic_score":0.5,'
    '"is_aigc":true,"structured_description":{"a":1},"dqm_d1_v6_1":{"raw_score":1},"x":1.0,"meta":{"y":[1]}}'
)


def reader(*rows: str) -> TypedReader:
    plan = plan_mapping(MappingConfig(), ())
    typed = TypedReader(plan, MetaInfoWriter(plan.survives))
    typed.learn(json.loads(row) for row in rows or (ROW,))
    return typed


def changed(old: str, new: str) -> bytes:
    assert ROW.count(old) == 1, old
    return ROW.replace(old, new).encode()


@pytest.mark.parametrize(
    "line",
    [
        ROW.encode(),
        changed("a dog", 'say \\"x\\": \\u00e9'),
        changed('"a dog"', '["a","b",null]'),
        changed('"a dog"', "null"),
        changed("0.5", "0.1"),
        changed('"x":1.0', '"x":"a : b"'),
        changed('"x":1.0', '"x":"1e5"'),
        changed('"x":1.0', '"x":"a1e400"'),
        changed('{"a":1}', '"{\\"a\\":1}"'),
        ROW.replace(",", ", ").replace('":', '": ').encode(),
    ],
)
def test_an_ordinary_row_goes_the_short_way(line: bytes) -> None:
    rows = reader().read([line, ROW.encode()])
    assert rows is not None
    assert rows.columns["s3_image_path"] == ["s3://b/k"] * 2


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        changed('"x":1.0', '"x":1.0,"more":1'),
        changed('"x":1.0,', ""),
        changed('"x":1.0', '"x":1.0,"x":2'),
        changed('"x":1.0', '"x":1.0,"\\u0078":2'),
        changed('"x":1.0', '"x" :1.0,"x":2'),
        changed('"x":1.0', '"x":1e400'),
        changed('"x":1.0', '"x":' + "9" * 400),
        changed('"x":1.0', '"x":NaN'),
        changed('"x":1.0', '"x":"\\ud800"'),
        changed('"x":1.0', '"x":"@"').replace(b"@", b"\xff"),
        changed("a dog", "@").replace(b"@", b"\xff"),
        changed('"a dog"', "5"),
        changed("8", "0"),
        changed("8", '"8"'),
        changed("true", "1"),
        changed("0.5", '"0.5"'),
        changed("0.5", "1e39"),
        changed('"s3://b/k"', '"x.jpg"'),
        changed('"s3://b/k"', "null"),
        changed('{"raw_score":1}', '{"raw_score":"x"}'),
        changed('{"a":1}', '{"a":1e400}'),
    ],
)
def test_any_other_row_is_left_to_the_general_way(line: bytes) -> None:
    assert reader().read([ROW.encode(), line]) is None


def test_names_that_some_rows_lack_become_optional() -> None:
    without = ROW.replace('"x":1.0,', "")
    rows = reader(ROW, without).read([ROW.encode(), without.encode()])
    assert rows is not None
    assert rows.meta_info == ['{"meta":{"y":[1]},"x":1.0}', '{"meta":{"y":[1]}}']


@pytest.mark.parametrize("name", ['q\\"', "a\\u0000", "back\\\\slash"])
def test_names_that_no_attribute_can_have_are_read_generally(name: str) -> None:
    odd = ROW.replace('"x"', f'"{name}"')
    assert reader(odd).read([odd.encode()]) is None


def test_a_name_whose_place_is_taken_is_read_generally() -> None:
    row = ROW.replace('"x"', '"_packaging"').replace('"meta"', '"_packaging_source"')
    assert reader(row).read([row.encode()]) is None
    alone = ROW.replace('"x"', '"_packaging"')
    rows = reader(alone).read([alone.encode()])
    assert rows is not None
    assert rows.meta_info == ['{"_packaging_source":1.0,"meta":{"y":[1]}}']


@given(st.text(alphabet='ab": {}[],1\\', max_size=40))
def test_names_are_never_counted_short(text: str) -> None:
    count = NameCounter().count(f'{{"a":{text}}}'.encode())
    pairs = sum(before == '"' and after == ":" for before, after in pairwise(f'{{"a":{text}}}'))
    assert count is None or count == pairs
    if any(f'"{blank}:' in text for blank in (" ", "  ")):
        assert count is None


@pytest.mark.parametrize(
    "number", ["1e400", "1E400", "-1.5e+999", "9" * 309, "0." + "1" * 250 + "e99", "1e0400", "1e+00400"]
)
def test_a_huge_number_is_never_missed(number: str) -> None:
    for offset in range(70):
        assert may_hold_huge_number(b"x" * offset + number.encode() + b",")


@pytest.mark.parametrize("text", ["", "e", "1e5", "1e-400", "-1e99", "9" * 199, "the 2048 e 100", "a+b"])
def test_an_ordinary_number_is_not_suspected(text: str) -> None:
    assert not may_hold_huge_number(text.encode())
