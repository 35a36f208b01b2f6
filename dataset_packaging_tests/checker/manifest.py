"""Every manifest line, and what must become of it before any picture is looked at."""

import gzip
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

import zstandard

from dataset_packaging_tests.checker.contract import PATH_ALIASES, Dataset

UNKEPT = frozenset({"bad_row"})
MOST_DIGITS = 4300
MOST_DEPTH = 100
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number by its value and kind, so that `unchanged` means every digit."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def _value(self) -> tuple[bool, Decimal]:
        return self.is_integer, Decimal(self.text)

    @property
    def is_integer(self) -> bool:
        """Whether it is written without point and exponent."""
        return not set(self.text) & set(".eE")


@dataclass(frozen=True, slots=True)
class Row:
    """One line that is not blank.

    Attributes:
        reasons: reject reasons that would be right; empty where the row must get past the manifest.
        may_pass: whether passing is right as well, although `reasons` are given.
        exact: whether the values can be compared (the line is valid UTF-8 and of ordinary depth).
    """

    manifest: Path
    line: int
    raw: bytes
    reasons: frozenset[str] = frozenset()
    may_pass: bool = False
    exact: bool = True
    key: str = ""
    uri: str = ""

    @property
    def place(self) -> str:
        """Where it stands, for findings."""
        return f"{self.manifest.name}:{self.line}"

    def fields(self) -> dict[str, object]:
        """Returns the source object; numbers as `Number`, lone surrogates as U+FFFD, NaN and the like as null."""
        parsed = parse(self.raw)
        assert isinstance(parsed, dict)
        return parsed


def read_rows(dataset: Dataset) -> Iterator[Row]:
    """Yields every line that is not blank, in manifest order, with its early fate."""
    seen: set[str] = set()
    for manifest in dataset.manifests:
        with manifest.open("rb") as file:
            for number, raw in enumerate(_decompressed(file), start=1):
                line = raw.rstrip(b"\n").removesuffix(b"\r")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if not line.strip(b" \t\r"):
                    continue
                row = _read_row(dataset, manifest, number, line)
                if row.key and (not row.reasons or row.may_pass):
                    if row.key in seen:
                        row = Row(manifest, number, line, frozenset({"duplicate_key"}), key=row.key, uri=row.uri)
                    seen.add(row.key)
                yield row


def _decompressed(file: BinaryIO) -> BinaryIO:
    head = file.read(4)
    file.seek(0)
    if head[:2] == b"\x1f\x8b":
        return io.BufferedReader(gzip.GzipFile(fileobj=file))
    if head == b"\x28\xb5\x2f\xfd" or (head[1:] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))
    return file


def _read_row(dataset: Dataset, manifest: Path, number: int, line: bytes) -> Row:
    try:
        parsed = parse(line)
    except (ValueError, RecursionError):
        return Row(manifest, number, line, UNKEPT)
    if not isinstance(parsed, dict):
        return Row(manifest, number, line, UNKEPT)
    odd = not _is_utf8(line) or _depth(line) > MOST_DEPTH or re.search(rb"\d{%d}" % MOST_DIGITS, line) is not None
    given = first_value(parsed, (*dataset.sources.get("s3_image_path", ()), *PATH_ALIASES))
    uri, reasons = _normalized(given, dataset.base_uri)
    key = first_value(parsed, (*dataset.sources.get("image_key", ()), "image_key"))
    text = key if isinstance(key, str) else key.text if isinstance(key, Number) else uri
    if odd:
        return Row(manifest, number, line, reasons | UNKEPT, may_pass=not reasons, exact=False, key=text, uri=uri)
    return Row(manifest, number, line, reasons, key=text, uri=uri)


def parse(line: bytes) -> object:
    """Parses one line as the rulings say: the last of two keys wins, what is not finite becomes null."""
    return json.loads(
        line.decode("utf-8", errors="replace"),
        parse_int=Number,
        parse_float=lambda text: Number(text) if abs(float(text)) != float("inf") else None,
        parse_constant=lambda _: None,
        object_pairs_hook=lambda pairs: {_clean(key): _cleaned(value) for key, value in pairs},
    )


def _clean(text: str) -> str:
    return _LONE_SURROGATE.sub("�", text)


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return _clean(value)
    return [_cleaned(item) for item in value] if isinstance(value, list) else value


def _inside(value: object, way: list[str]) -> object:
    if not way:
        return value
    if isinstance(value, list):
        return [found for item in value if (found := _inside(item, way)) is not None] or None
    return _inside(value.get(way[0]), way[1:]) if isinstance(value, dict) else None


def first_value(fields: dict[str, object], sources: tuple[str, ...]) -> object:
    """Returns the first value that is not null, following dotted names into objects and lists of them."""
    for source in sources:
        value: object = fields.get(source)
        if value is None and "." in source:
            value = _inside(fields, source.split("."))
        if value is not None:
            return value
    return None


def _normalized(given: object, base_uri: str | None) -> tuple[str, frozenset[str]]:
    if given is None:
        return "", frozenset({"missing_path"})
    if not isinstance(given, str) or not given:
        return "", frozenset({"missing_path", "bad_path"})
    if "�" in given:
        return "", frozenset({"bad_path"})
    scheme = _SCHEME.match(given)
    if scheme is None:
        if given.startswith("/"):
            return f"file://{given}", frozenset()
        return (f"{base_uri}{given}", frozenset()) if base_uri else ("", frozenset({"bad_path"}))
    kind = scheme[1].lower()
    if kind in {"s3", "s3a", "s3n"}:
        bucket, _, key = given[scheme.end() :].partition("/")
        return (f"s3://{bucket}/{key}", frozenset()) if bucket and key else ("", frozenset({"bad_path"}))
    if kind == "file":
        return given, frozenset()
    return "", frozenset({"bad_path"})


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _depth(line: bytes) -> int:
    deepest = depth = 0
    for sign in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", line):
        depth += (sign in b"[{") - (sign in b"]}")
        deepest = max(deepest, depth)
    return deepest
