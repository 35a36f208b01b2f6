"""What a file is that is no JSON lines, and how its rows become some. Pure."""

import json
from collections.abc import Sequence

_DOCUMENT = "this looks like one JSON document: write its items one to a line, for example with jq -c '.[]'"
_OBJECTS = "this looks like JSON objects over several lines: write each to one line, for example with jq -c ."
_ARRAYS = "its lines are JSON, but no objects: give each value a name"
_MARKS = {
    b"PAR1": "this is Parquet: write it as JSON lines, for example with polars.scan_parquet(FILE).sink_ndjson(NEW)",
    b"PK\x03\x04": "this is a zip archive: unpack it",
    b"BZh": "this is compressed with bzip2: unpack it, or compress it with gzip or zstd",
    b"\xfd7zXZ": "this is compressed with xz: unpack it, or compress it with gzip or zstd",
    b"\xff\xfe": "this is UTF-16: save it as UTF-8",
    b"\xfe\xff": "this is UTF-16: save it as UTF-8",
    b"ARROW1": "this is an Arrow file: write it as JSON lines, for example with polars.scan_ipc(FILE).sink_ndjson(NEW)",
}
_TABLE = "this looks like a table: write it as JSON lines, for example with polars.scan_csv(FILE{}).sink_ndjson(NEW)"


def describe_format(lines: Sequence[bytes]) -> str:
    """Return what the lines of a file that holds no JSON lines look like, and what helps."""
    first = lines[0].lstrip()
    if told := describe_binary(first):
        return told
    if _is_json(first):
        return _ARRAYS
    if first.startswith((b"[", b"{")):
        return _OBJECTS if first.rstrip() == b"{" else _DOCUMENT
    mark = b"\t" if b"\t" in first else b","
    if all(mark in line for line in lines[:3]):
        return _TABLE.format(", separator='\\t'" if mark == b"\t" else "")
    return "this does not look like JSON lines"


def describe_binary(head: bytes) -> str | None:
    """Return what a file that begins so is and what helps; None where it may hold lines of text."""
    return next((told for mark, told in _MARKS.items() if head.startswith(mark)), None)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
