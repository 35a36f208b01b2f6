"""The parser behind the parser: MAN-03, MAN-04, MAN-06 and SC-01 of the fault list."""

import json
from pathlib import Path

import orjson
import pytest

from dataset_packaging.core.lenient_json import LenientJsonError, parse_leniently

CORPUS = Path(__file__).parents[2] / ".." / "shared" / "corpus" / "JSONTestSuite" / "test_parsing"


@pytest.mark.parametrize(
    ("value", "kept", "warnings"),
    [
        (b"NaN", b"null", ("non_finite",)),
        (b"-Infinity", b"null", ("non_finite",)),
        (b"[1e400 ,-1E+400, 1e-400]", b"[null ,null, 1e-400]", ("non_finite",)),
        (b'"a\\ud800b"', '"a�b"'.encode(), ("bad_unicode",)),
        (b'"\\udc00\\ud83d\\ude00\\ud83d"', '"�\\ud83d\\ude00�"'.encode(), ("bad_unicode",)),
        (b'"\\\\ud800"', b'"\\\\ud800"', ()),
        (b'"\\\\\\ud800"', '"\\\\�"'.encode(), ("bad_unicode",)),
        (b'"\xff"', '"�"'.encode(), ("bad_unicode",)),
        (b'{"\xed\xa0\x80" : [ ] }', '{"���" : [ ] }'.encode(), ("bad_unicode",)),
        (b'{"a":1,"a":2}', b'{"a":1,"a":2}', ()),
        (b"18446744073709551616", b"18446744073709551616", ()),
    ],
)
def test_one_odd_value_is_repaired_and_named(value: bytes, kept: bytes, warnings: tuple[str, ...]) -> None:
    field = parse_leniently(b'{"n":1, "x": ' + value + b'  ,"m":1.0}')["x"]
    assert (field.raw, field.warnings, field.problem) == (kept, warnings, None)
    orjson.loads(field.raw)


def test_the_last_of_equal_names_wins_at_the_first_ones_place() -> None:
    fields = parse_leniently(b'{"a":NaN,"b":1,"\\u0061":2}')
    assert [(name, field.raw, field.warnings) for name, field in fields.items()] == [
        ("a", b"2", ("duplicate_json_key",)),
        ("b", b"1", ()),
    ]


@pytest.mark.parametrize(
    ("value", "problem"), [(b"9" * 5000, "5000 digits"), (b"[" * 1000 + b"]" * 1000, "deeper than")]
)
def test_a_value_that_no_strict_parser_reads_is_a_problem_of_its_field_alone(value: bytes, problem: str) -> None:
    fields = parse_leniently(b'{"x":' + value + b',"y":1}')
    assert problem in (fields["x"].problem or "")
    assert fields["y"].problem is None


def test_a_cut_line_of_a_megabyte_takes_no_exponential_time() -> None:
    for line in (
        b'{"a":"' + b"\\n" * 500_000,
        b'{"a":"' + b"x" * 1_000_000,
        b'{"a":' + b"[" * 500_000,
        b"{" + b" " * 1_000_000,
    ):
        with pytest.raises(LenientJsonError, match="expected"):
            parse_leniently(line)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_real_odd_json_gives_strict_json_or_a_reject(path: Path) -> None:
    value = path.read_bytes().strip()
    try:
        field = parse_leniently(b'{"x":' + value + b"}")["x"]
    except LenientJsonError:
        with pytest.raises((ValueError, RecursionError)):
            json.loads(value.decode("utf-8", "replace"), parse_int=str)
        return
    if field.problem is None:
        orjson.loads(field.raw)
