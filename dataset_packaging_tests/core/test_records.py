"""Manifest lines to rows: MAN and SC entries of the fault list that one line can show."""

import json
import pickle
from typing import Any

import orjson
import pyarrow as pa
import pytest

from dataset_packaging.config import MappingConfig
from dataset_packaging.core.records import MappedRows, RecordMapper, merge_packaging
from dataset_packaging.core.schema import parse_extension, sidecar_schema

PATH = '"s3_path":"s3://b/k"'
CLARITY = parse_extension("filter_clarity", "struct<score: double, pass: bool, tags: list<string>, n: int32>")


def braced(*fields: str) -> str:
    return "{" + ",".join(fields) + "}"


def row(*fields: str) -> str:
    """A line with a path and these fields."""
    return braced(PATH, *fields)


def mapper(**mapping: Any) -> RecordMapper:
    return RecordMapper(MappingConfig.model_validate(mapping), [CLARITY])


def map_all(*lines: str | bytes, **mapping: Any) -> MappedRows:
    encoded = [line.encode() if isinstance(line, str) else line for line in lines]
    return mapper(**mapping).map_lines(list(enumerate(encoded, start=1)), "s3://b/m.jsonl")


def map_one(line: str | bytes, **mapping: Any) -> MappedRows:
    rows = map_all(line, **mapping)
    assert rows.rejects == []
    assert len(rows.line) == 1
    return rows


def meta_of(rows: MappedRows, row: int = 0) -> dict[str, Any]:
    meta: dict[str, Any] = orjson.loads(rows.meta_info[row])
    return meta


def test_a_row_of_the_contracts_mapping() -> None:
    rows = map_one(
        '{"id":"k1","s3_path":"s3a://b/x y.jpg","width":800,"height":600,"caption":null,"gemini_response_full":"huge",'
        '"meta":{"caption":"a dog","exif":{"iso":100}},"aesthetic_score":5.5,"lens":"50mm"}',
        constants={"task": "text to image generation", "image_quality_score": 0.1, "ocr_text": "none"},
        direct={
            "image_key": ["id"],
            "full_description": {"from": ["caption", "meta.caption"], "cast": "list_string"},
        },
        drop=["gemini_response_full"],
    )
    assert rows.image_key == ["k1"]
    assert rows.s3_image_path == ["s3://b/x y.jpg"]
    assert (rows.width_px, rows.height_px, rows.line, rows.rows) == ([800], [600], [1], 1)
    filled = {name: values[0] for name, values in rows.columns.items() if values[0] is not None}
    assert filled == {
        "task": "text to image generation",
        "ocr_text": ["none"],
        "full_description": ["a dog"],
        "aesthetic_score": 5.5,
        "image_quality_score": 0.10000000149011612,
    }
    assert meta_of(rows) == {
        "s3_path": "s3a://b/x y.jpg",
        "caption": None,
        "meta": {"caption": "a dog", "exif": {"iso": 100}},
        "lens": "50mm",
    }


def test_every_column_is_there_and_ready_for_arrow() -> None:
    rows = map_all(row(), row('"keywords":["a",null],"filter_clarity":{"score":1,"pass":true}'))
    types = {field.name: field.type for field in sidecar_schema([CLARITY])}
    apart = {"width", "height", "is_rgba", "image_key", "s3_image_path", "meta_info"}
    assert list(rows.columns) == [name for name in types if name not in apart]
    for name, values in rows.columns.items():
        assert pa.array(values, types[name]).to_pylist() == values


@pytest.mark.parametrize(
    "value",
    ["1.0", "1", "1e5", "-0", "0.10", "18446744073709551616", "12345678901234567890123", "-1.5E-7", '"\\u00e9\\/"',
     '"é"', "[1.0, 2 ,3]", '{"b" : 1.0,"a":[ ]}', '"\\ud83d\\ude00"', "null", "true", '""'],
)  # fmt: skip
def test_meta_info_holds_values_as_they_are_written(value: str) -> None:
    """MAN-04: digits, `1.0` against `1`, escapes: verbatim."""
    assert map_one(row(f'"x":{value}')).meta_info == [braced(f'"x":{value}')]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "[1, NaN]", '{"a":1e999}'])
def test_numbers_that_are_not_finite_become_null(value: str) -> None:
    """SC-01: meta_info parses under a strict parser; the row is kept and says so."""
    rows = map_one(row(f'"x":{value},"aesthetic_score":{value},"y":1.0'))
    meta = json.loads(rows.meta_info[0], parse_float=str)
    assert meta["y"] == "1.0"
    assert json.dumps(meta["x"]) in ("null", "[1, null]", '{"a": null}')
    assert rows.columns["aesthetic_score"] == [None]
    assert "non_finite" in rows.warnings[0]


def test_a_lone_surrogate_costs_one_character() -> None:
    """MAN-03: the row is kept with U+FFFD; its 99 neighbours are untouched."""
    odd = row('"caption":"a\\ud800b","full_description":"x\\udc00"')
    rows = map_all(odd, *[row('"caption":"\\ud83d\\ude00"')] * 99)
    assert meta_of(rows) == {"caption": "a�b"}
    assert rows.columns["full_description"][0] == ["x�"]
    assert rows.warnings == [("bad_unicode",)] + [()] * 99
    assert [meta_of(rows, i) for i in range(1, 100)] == [{"caption": "😀"}] * 99
    pa.array(rows.meta_info)


def test_bytes_that_are_no_utf8_cost_one_character() -> None:
    """MAN-03."""
    rows = map_one(b'{"s3_path":"s3://b/k","style":"a\xffb","x":{"\xff":1}}')
    assert rows.columns["style"] == ["a�b"]
    assert meta_of(rows) == {"x": {"�": 1}}
    assert rows.warnings == [("bad_unicode",)]


@pytest.mark.parametrize("path", [b'"s3://b/a\\ud800"', b'"s3://b/\xff"', b'"a\\udfff.jpg"'])
def test_a_path_that_is_no_unicode_is_refused(path: bytes) -> None:
    """MAN-03: no other object is read in its place."""
    rows = map_all(b'{"id":"k","s3_path":%s,"meta":{"p":%s}}' % (path, path), base_uri="s3://b/")
    assert [(reject.reason, reject.line) for reject in rows.rejects] == [("bad_path", 1)]


def test_a_replacement_character_of_the_source_is_an_ordinary_one() -> None:
    assert map_one('{"s3_path":"s3://b/�","x":"\\ud800"}').s3_image_path == ["s3://b/�"]


def test_of_repeated_names_the_last_wins() -> None:
    """MAN-06."""
    rows = map_one('{"s3_path":"s3://b/1","s3_path":"s3://b/2","x":1,"x":[2]}')
    assert rows.s3_image_path == ["s3://b/2"]
    assert meta_of(rows) == {"x": [2]}
    assert rows.warnings == [("duplicate_json_key",)]


@pytest.mark.parametrize(
    "line",
    [
        '{%s,"a":10,"b":2,"c":3,"d":4,"a":11}',
        '{"a": 1, %s, "a": 1}',
        '{"\\u0061":1,%s,"a":2}',
        '{ "a" : 1 , %s , "a":2 }',
        '{"a":{},%s,"\\u0061":{}}',
    ],
)
def test_a_repeated_name_is_noticed_however_it_is_spaced(line: str) -> None:
    """MAN-06."""
    assert map_one(line % PATH).warnings == [("duplicate_json_key",)]


@pytest.mark.parametrize(
    "line",
    [
        '{%s,"a":{"a":1},"b":"\\"a\\":1"}',
        '{ %s , "a" :1}',
        '{%s,\t"größe":"größe"}',
        '{%s,"gr\\u00f6\\u00dfe":1}',
        '{"a": "x", %s}',
        '{%s,"a":[ 1,  2 ]}',
    ],
)
def test_names_that_stand_once_are_no_repetition(line: str) -> None:
    assert map_one(line % PATH).warnings == [()]


def test_reserved_names_of_the_source_go_to_meta_info() -> None:
    """MAN-06: a user's key never takes the place of a measured column or of the reserved block."""
    rows = map_one(row('"image":"s3://b/1","meta_info":{"a":1},"is_rgba":true,"_packaging":{"sha256":"x"}'))
    assert meta_of(rows) == {
        "image": "s3://b/1",
        "meta_info": {"a": 1},
        "is_rgba": True,
        "_packaging_source": {"sha256": "x"},
    }


def test_the_reserved_block_never_hides_a_field() -> None:
    rows = map_one(row('"_packaging":1,"_packaging_source":2'))
    assert meta_of(rows) == {"_packaging_source_": 1, "_packaging_source": 2}
    assert orjson.loads(merge_packaging(rows.meta_info[0], {"bytes": 3}))["_packaging"] == {"bytes": 3}


def test_merging_into_an_empty_object() -> None:
    assert merge_packaging("{}", {"frames": 1, "warnings": ("a",)}) == '{"_packaging":{"frames":1,"warnings":["a"]}}'


def test_a_constant_wins_and_the_field_is_kept() -> None:
    rows = map_one(row('"task":"other","style":"s"'), constants={"task": "t2i"})
    assert rows.columns["task"] == ["t2i"]
    assert meta_of(rows) == {"task": "other"}


@pytest.mark.parametrize(
    ("value", "texts", "is_kept"),
    [
        ('["a","b"]', ["a", "b"], False),
        ("null", None, False),
        ("5", ["5"], True),
        ("5.50", ["5.50"], True),
        ("true", ["true"], True),
        ('""', [""], False),
        ('"é"', ["é"], False),
        ("[]", [], False),
        ('["a",null]', ["a", None], False),
        ('["a",1]', ["a", "1"], True),
    ],
)
def test_what_is_no_list_of_texts_becomes_one(value: str, texts: list[str] | None, is_kept: bool) -> None:
    """SC-05: the documented rule of each case; `""` and null stay apart; what changed stays in meta_info."""
    rows = map_one(row(f'"full_description":{value}'))
    assert rows.columns["full_description"] == [texts]
    assert rows.meta_info == [braced(f'"full_description":{value}') if is_kept else "{}"]
    assert rows.warnings == [()]


@pytest.mark.parametrize(
    ("column", "value", "expected", "is_kept", "warnings"),
    [
        ("style", "5", "5", True, ()),
        ("style", "true", "true", True, ()),
        ("style", '["a"]', None, True, ("bad_value",)),
        ("style", "{}", None, True, ("bad_value",)),
        ("full_description", '{"a":1}', ['{"a":1}'], True, ()),
        ("full_description", '["a",[1]]', ["a", "[1]"], True, ()),
        ("structured_description", '{"a": [1.0]}', '{"a": [1.0]}', False, ()),
        ("structured_description", '"{\\"a\\":1}"', '{"a":1}', False, ()),
        ("structured_description", '"plain"', "plain", False, ()),
        ("objects", "[]", "[]", False, ()),
        ("aesthetic_score", "5", 5.0, False, ()),
        ("aesthetic_score", "0.1", 0.10000000149011612, True, ()),
        ("aesthetic_score", "16777217", 16777216.0, True, ()),
        ("aesthetic_score", "9007199254740993", 9007199254740992.0, True, ()),
        ("aesthetic_score", "1e39", None, True, ("out_of_range",)),
        ("aesthetic_score", "1" + "0" * 40, None, True, ("out_of_range",)),
        ("aesthetic_score", '"1.5"', 1.5, True, ()),
        ("aesthetic_score", '"nan"', None, True, ("bad_value",)),
        ("aesthetic_score", "true", None, True, ("bad_value",)),
        ("is_aigc", "true", True, False, ()),
        ("is_aigc", "1", True, True, ()),
        ("is_aigc", '"False"', False, True, ()),
        ("is_aigc", '"maybe"', None, True, ("bad_value",)),
        ("is_aigc", "2", None, True, ("bad_value",)),
        ("dqm_d1_v6_1", '{"raw_score":0.1,"error":null}', {"raw_score": 0.1, "error": None}, False, ()),
        ("dqm_d1_v6_1", '{"raw_score":"x"}', {"raw_score": None, "error": None}, True, ("bad_value",)),
        ("dqm_d1_v6_1", '{"raw_score":1,"more":2}', {"raw_score": 1.0, "error": None}, True, ()),
        ("dqm_d1_v6_1", "5", None, True, ("bad_value",)),
        ("filter_clarity", '{"score":1,"pass":false,"tags":["a"],"n":2147483648}',
         {"score": 1.0, "pass": False, "tags": ["a"], "n": None}, True, ("out_of_range",)),
    ],
)  # fmt: skip
def test_casts(column: str, value: str, expected: object, is_kept: bool, warnings: tuple[str, ...]) -> None:
    """MAN-04 among them: an integer that no column can hold leaves the column null and its digits in meta_info."""
    rows = map_one(row(f'"{column}":{value}'))
    assert rows.columns[column] == [expected]
    assert rows.meta_info == [braced(f'"{column}":{value}') if is_kept else "{}"]
    assert rows.warnings == [warnings]


def test_the_json_cast_of_a_text_column() -> None:
    rows = map_one(row('"st":[1, 2.0]'), direct={"style": {"from": "st", "cast": "json"}})
    assert rows.columns["style"] == ["[1, 2.0]"]
    assert meta_of(rows) == {}


@pytest.mark.parametrize(
    ("width", "height", "sizes"),
    [
        ("800", "600", (800, 600)),
        ('"800"', "600.0", (800, 600)),
        ("0", "600", (None, None)),
        ("-1", "600", (None, None)),
        ("800.5", "600", (None, None)),
        ("null", "600", (None, None)),
        ("[800]", "600", (None, None)),
        ("true", "600", (None, None)),
    ],
)
def test_sizes_that_are_none_are_unknown(width: str, height: str, sizes: tuple[int | None, int | None]) -> None:
    rows = map_one(row(f'"width":{width},"height":{height}'))
    assert (rows.width_px[0], rows.height_px[0]) == sizes
    assert rows.warnings == [()]


def test_a_size_that_no_column_holds_is_out_of_range() -> None:
    """MAN-04."""
    rows = map_one(row('"width":4294967296,"height":1'))
    assert rows.width_px == [None]
    assert rows.warnings == [("out_of_range",)]
    assert meta_of(rows) == {"width": 4294967296}


def test_probing_ignores_the_sizes_of_the_manifest() -> None:
    probing = RecordMapper(MappingConfig(), (), "probe")
    rows = probing.map_lines([(1, b'{"url":"s3://b/k","width":8,"height":6}')], "m")
    assert rows.width_px == [None]
    assert rows.meta_info == ["{}"]


@pytest.mark.parametrize("digits", [309, 5000, 100_000])
def test_an_integer_of_thousands_of_digits_is_a_reject(digits: int) -> None:
    """MAN-04: not a crash, and never a number that strict parsers take for infinity."""
    rows = map_all(row(f'"x":{"9" * digits}'), row())
    assert [(reject.line, reject.reason) for reject in rows.rejects] == [(1, "bad_row")]
    assert f"{digits} digits" in rows.rejects[0].detail
    assert rows.line == [2]


def test_an_integer_of_300_digits_is_kept() -> None:
    """MAN-04."""
    assert map_one(row(f'"x":{"9" * 300}')).meta_info == [braced(f'"x":{"9" * 300}')]


@pytest.mark.parametrize(
    "line",
    [b"", b"  ", b"\t"],
)
def test_blank_lines_are_no_rows(line: bytes) -> None:
    assert map_all(line).rows == 0


@pytest.mark.parametrize(
    "line",
    [b"nonsense", b"[1]", b'"text"', b"1", b"null", b'{"a":1', b'{"a":1}{"b":2}', b'{"a":1,}', b"{'a':1}",
     b'{"a":tru}', b'{"a":01}', b'{"a":"\t"}', b'{"a":"\\x"}', b'{"a"}', b"{\x00}", b"\xff\xfe{\x00}\x00", b'{"a":"x',
     b'{"a":.5}', b"{1:2}"],
)  # fmt: skip
def test_what_is_not_one_object_is_a_reject(line: bytes) -> None:
    rows = map_all(line, row())
    assert [(reject.line, reject.reason) for reject in rows.rejects] == [(1, "bad_row")]
    assert "expected" in rows.rejects[0].detail
    assert rows.line == [2]
    assert rows.rows == 2


@pytest.mark.parametrize("depth", [400, 900, 998])
def test_deep_nesting_is_kept(depth: int) -> None:
    rows = map_one(row(f'"x":{"[" * depth + "]" * depth}'))
    assert orjson.loads(rows.meta_info[0])


@pytest.mark.parametrize("depth", [1001, 100_000])
def test_deeper_nesting_is_a_reject(depth: int) -> None:
    """MAN-04: a parser's recursion limit is no crash."""
    rows = map_all(row(f'"x":{"[" * depth + "]" * depth}'), '{"a":' + "[" * depth)
    assert [reject.reason for reject in rows.rejects] == ["bad_row", "bad_row"]


@pytest.mark.parametrize("column", ["objects", "ernie_image_aes", "style", "keywords", "aesthetic_score"])
def test_deep_nesting_in_a_column_is_no_crash(column: str) -> None:
    value = '{"score":' * 990 + "1" + "}" * 990
    assert map_all(row(f'"{column}":{value}')).rows == 1


def test_rows_without_a_path_are_rejects() -> None:
    rows = map_all('{"id":"a"}', '{"id":"b","s3_path":null,"url":null}', direct={"image_key": "id"})
    assert [(r.reason, r.image_key, r.s3_image_path) for r in rows.rejects] == [
        ("missing_path", "a", None),
        ("missing_path", "b", None),
    ]
    assert rows.rejects[0].detail == "none of s3_image_path, s3_path, image_s3_uri, image_uri, url"


@pytest.mark.parametrize(
    "path", ['"https://example.com/x.jpg"', '"gs://b/k"', '""', "5", "true", '["s3://b/k"]', '"x.jpg"']
)
def test_paths_that_name_no_place_are_rejects(path: str) -> None:
    rows = map_all(braced('"id":1', f'"s3_path":{path}'), direct={"image_key": "id"})
    (reject,) = rows.rejects
    assert (reject.reason, reject.image_key) == ("bad_path", "1")
    assert reject.s3_image_path == (json.loads(path) if path.startswith('"') else path)


def test_the_first_path_that_is_not_null_counts() -> None:
    rows = map_one(
        '{"image_uri":"s3://b/3","s3_path":"s3://b/2","own":null,"url":"http://x"}', direct={"s3_image_path": ["own"]}
    )
    assert rows.s3_image_path == ["s3://b/2"]
    assert meta_of(rows) == {"image_uri": "s3://b/3", "own": None, "url": "http://x"}


def test_the_key_is_the_path_unless_mapped() -> None:
    rows = map_all(
        '{"url":"x/1.jpg"}', '{"url":"x/1.jpg","id":""}', '{"url":"x/1.jpg","id":null}', '{"url":"x/1.jpg","id":[1]}',
        '{"url":"x/1.jpg","id":18446744073709551616}', '{"url":"x/1.jpg","image_key":"k"}',
        direct={"image_key": "id"}, base_uri="s3://b/",
    )  # fmt: skip
    assert rows.image_key == ["s3://b/x/1.jpg"] * 4 + ["18446744073709551616", "k"]
    assert [meta_of(rows, row) for row in range(6)] == [
        {"url": "x/1.jpg"},
        {"url": "x/1.jpg", "id": ""},
        {"url": "x/1.jpg"},
        {"url": "x/1.jpg", "id": [1]},
        {"url": "x/1.jpg", "id": 18446744073709551616},
        {"url": "x/1.jpg"},
    ]


def test_a_name_with_a_dot_comes_before_the_way_into_an_object() -> None:
    direct = {"style": "a.b.c"}
    assert map_one(row('"a":{"b":{"c":"deep"}}'), direct=direct).columns["style"] == ["deep"]
    both = map_one(row('"a.b.c":"flat","a":{"b":{"c":"deep"}}'), direct=direct)
    assert both.columns["style"] == ["flat"]
    assert meta_of(both) == {"a": {"b": {"c": "deep"}}}
    for odd in ('"a":5', '"a":{"b":[]}', '"a":{"b":null}', '"a":null', '"b":1'):
        assert map_one(row(odd), direct=direct).columns["style"] == [None]


def test_one_field_may_fill_two_columns() -> None:
    direct = {"full_description": "caption", "aesthetic_score": "caption", "style": "caption"}
    rows = map_all(row('"caption":"x"'), row('"caption":0.1'), direct=direct)
    assert rows.columns["full_description"] == [["x"], ["0.1"]]
    assert rows.columns["aesthetic_score"] == [None, 0.10000000149011612]
    assert rows.meta_info == ["{}", '{"caption":0.1}']


def test_dropped_fields_reach_nothing_but_the_columns_that_name_them() -> None:
    mapping = {
        "direct": {"full_description": "big.caption", "user_prompt": "prompt"},
        "drop": ["big", "prompt", "style"],
    }
    rows = map_one(row('"big":{"caption":"c","x":NaN},"prompt":5,"style":"s","more":1'), **mapping)
    assert rows.columns["full_description"] == [["c"]]
    assert rows.columns["user_prompt"] == [["5"]]
    assert rows.columns["style"] == [None]
    assert meta_of(rows) == {"more": 1}


def test_an_ignored_field_cannot_cost_the_row() -> None:
    rows = map_one(row(f'"x":{"9" * 5000},"y":"\\ud800"'), drop=["x", "y"])
    assert rows.meta_info == ["{}"]
    assert rows.warnings == [()]


def test_only_kept_and_mapped_fields_survive() -> None:
    mapping = {"direct": {"style": "st"}, "keep": ["a"]}
    rows = map_one(row('"a":1,"b":2,"st":5,"url":"u"'), **mapping)
    assert meta_of(rows) == {"a": 1, "st": 5, "url": "u"}


def test_expected_values_are_for_comparison_only() -> None:
    sha = "AB" * 32
    rows = map_all(
        row(f'"h":"{sha}","m":"{"0" * 32}","size":"12","sha256":"other"'),
        row('"h":"short","size":-1'),
        row(f'"sha256":"{sha}"'),
        direct={"sha256": "h", "md5": "m", "bytes": "size"},
    )
    assert rows.expected_sha256 == [sha.lower(), None, sha.lower()]
    assert rows.expected_md5 == ["0" * 32, None, None]
    assert rows.expected_bytes == [12, None, None]
    assert rows.warnings == [(), ("bad_value", "out_of_range"), ()]
    assert set(meta_of(rows)) == {"h", "m", "size", "sha256"}
    assert map_one(row(f'"sha256":"{sha}","bytes":1')).expected_sha256 == [None]


def hashes(line: str | bytes, **mapping: Any) -> tuple[bytes, bytes]:
    rows = map_one(line, **mapping)
    return rows.main_hash[0], rows.side_hash[0]


def test_hashes_follow_values_not_spelling() -> None:
    base = hashes(row('"style":"é","x":1'))
    assert hashes(f'{{ "x":1, "style":"\\u00e9" ,{PATH} }}') == base
    assert hashes(row('"style":"e","x":1'))[0] != base[0]
    assert hashes(row('"style":"e","x":1'))[1] == base[1]
    assert hashes(row('"style":"é","x":2'))[0] == base[0]
    assert hashes(row('"style":"é","x":2'))[1] != base[1]
    assert hashes(row('"style":"é","x":1,"objects":[]'))[0] == base[0]
    assert hashes(row('"style":"é","x":1,"objects":[]'))[1] != base[1]
    assert hashes(row('"style":"é","x":1,"width":5,"height":5')) == base


def test_hashes_tell_columns_and_nulls_apart() -> None:
    lines = ["{%s}", '{%s,"style":""}', '{%s,"image_type":""}', '{%s,"keywords":[]}', '{%s,"keywords":""}',
             '{%s,"keywords":["",""]}', '{%s,"is_aigc":false}', '{%s,"aesthetic_score":0}']  # fmt: skip
    assert len({hashes(line % PATH)[0] for line in lines}) == len(lines)


def test_hashes_are_the_same_in_every_version() -> None:
    """A change of these rewrites every shard of every user."""
    main, side = hashes(
        row(
            '"style":"é","keywords":["a",null],"aesthetic_score":0.1,"is_aigc":true,"x":1.0,'
            '"ernie_image_aes":{"score":1}'
        ),
        constants={"task": "t"},
    )
    assert main.hex() == "562bd20a42f7344363900d115d24d6e7"
    assert side.hex() == "9cef3ae54352f1306771768e8ed7cbaf"


def test_a_mapper_survives_pickling_as_its_configuration() -> None:
    config = MappingConfig.model_validate({"direct": {"style": "st"}, "keep": ["a"]})
    again = RecordMapper(pickle.loads(pickle.dumps(config)))
    assert again.map_lines([(1, b'{"url":"s3://b/k","st":"x"}')], "m").columns["style"] == ["x"]


def test_a_line_that_was_cut_for_its_length_is_a_reject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataset_packaging.core.general_rows.MAX_LINE_BYTES", 1000)
    rows = map_all(row(f'"x":"{"x" * 2000}'))
    assert rows.rejects[0].detail == "not one JSON object within the first 1000 bytes"


@pytest.mark.parametrize(
    ("value", "landed"),
    [
        ('[{"caption":"a"},{"caption":"b"}]', ["a", "b"]),
        ('[ {"caption" : "a"} , {"other": 1}, {"caption": null}, 5, {"caption": 7}]', ["a", "7"]),
        ('[{"other":1}]', None),
        ("[]", None),
        ('[[{"caption":"a"}],{"caption":["b","c"]}]', ['["a"]', '["b","c"]']),
        ('{"caption":"a"}', ["a"]),
        ('"text"', None),
    ],
)
def test_a_way_through_a_list_gives_the_list_of_what_its_objects_have(value: str, landed: list[str] | None) -> None:
    """COCO's captions; the short way of ordinary rows and the general one agree."""
    direct = {"full_description": {"from": ["captions.caption"], "cast": "list_string"}}
    ordinary = row('"captions":[{"caption":"x"}]')
    rows = map_all(*[ordinary] * 40, row(f'"captions":{value}'), *[ordinary] * 40, direct=direct)
    assert rows.rejects == []
    assert rows.columns["full_description"] == [["x"]] * 40 + [landed] + [["x"]] * 40
    alone = map_one(row(f'"captions":{value}'), direct=direct)
    assert alone.columns["full_description"] == [landed]
    assert orjson.dumps(meta_of(alone)["captions"]) == orjson.dumps(orjson.loads(value))
