"""Reading a manifest line that a strict JSON parser refuses, so that one odd value costs a value and not the row.

Accepted beyond strict JSON: `NaN`, `Infinity`, numbers too large for a double (they become null), halves of surrogate
pairs and bytes that are no UTF-8 (they become U+FFFD), repeated names (the last wins), deep nesting. Everything else
stays verbatim, byte for byte. Slow; the fast path of `records` calls it for refused lines only.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

MAX_DEPTH = 1000
"""Deepest nesting that is kept; strict parsers stop a little above it."""

_BLANKS = re.compile(r"[ \t\n\r]*+")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null|NaN|-?Infinity")
_ESCAPED_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F])(?s:.)")
_LONE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LONE_HALF = re.compile("[\ud800-\udfff]")
_SHORTEST_HUGE = 300
"""Numbers with fewer characters and no exponent are finite doubles."""


class LenientJsonError(ValueError):
    """The line is not one JSON object, or a value in it cannot be kept."""


@dataclass(frozen=True, slots=True)
class LenientField:
    """One top-level field: its value as JSON text, and what had to be done to it.

    Attributes:
        raw: strict JSON, verbatim but for what `warnings` names.
        warnings: of `non_finite`, `bad_unicode`, `duplicate_json_key`, sorted.
        problem: why the value cannot be kept, None if it can.
    """

    raw: bytes
    warnings: tuple[str, ...]
    problem: str | None


def parse_leniently(line: bytes) -> dict[str, LenientField]:
    """Return the fields of one line, in the order of their first appearance.

    Pure; never recurses. The caller decides about fields with a `problem`, so that an ignored field costs nothing.

    Raises:
        LenientJsonError: the line is not one JSON object, even so.
    """
    return _Scanner(line.decode("utf-8", "surrogateescape")).scan()


class _Scanner:
    """One pass over one line; `_pieces` is the text of the value at hand, repaired."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._pieces: list[str] = []
        self._warnings: set[str] = set()
        self._problem: str | None = None

    def scan(self) -> dict[str, LenientField]:
        fields: dict[str, LenientField] = {}
        self._expect("{")
        if self._peek() == "}":
            self._at += 1
        else:
            self._read_field(fields)
            while self._expect(",}") == ",":
                self._read_field(fields)
        if self._peek():
            raise self._error("the end")
        return fields

    def _read_field(self, fields: dict[str, LenientField]) -> None:
        self._pieces, self._warnings, self._problem = [], set(), None
        name = json.loads(self._string())
        self._expect(":")
        self._value()
        if name in fields:
            self._warnings.add("duplicate_json_key")
        raw = "".join(self._pieces).encode()
        fields[name] = LenientField(raw, tuple(sorted(self._warnings)), self._problem)

    def _peek(self) -> str:
        self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def _expect(self, characters: str) -> str:
        found = self._peek()
        if not found or found not in characters:
            raise self._error(" or ".join(map(repr, characters)))
        self._at += 1
        return found

    def _error(self, expected: str) -> LenientJsonError:
        found = repr(self._text[self._at : self._at + 12]) if self._at < len(self._text) else "the end"
        return LenientJsonError(f"not one JSON object: expected {expected} at character {self._at + 1}, got {found}")

    def _value(self) -> None:
        """Read one value of any depth into `_pieces`, blanks included."""
        closers: list[str] = []
        self._peek()
        while True:
            start = self._at
            character = self._text[start : start + 1]
            if character in ("{", "["):
                closers.append("}" if character == "{" else "]")
                if len(closers) >= MAX_DEPTH:
                    self._problem = f"nested deeper than {MAX_DEPTH} levels"
                self._at += 1
                if self._peek() != closers[-1]:
                    self._copy(start)
                    self._name_if_object(closers[-1])
                    continue
                self._copy(start)
            elif character == '"':
                self._pieces.append(self._string())
            else:
                self._pieces.append(self._scalar())
            if not self._close(closers):
                return
            self._name_if_object(closers[-1])

    def _close(self, closers: list[str]) -> bool:
        """Read what follows a value: closing brackets, then a comma. Return whether another value comes."""
        while closers:
            start = self._at
            found = self._expect("," + closers[-1])
            if found == ",":
                self._peek()
                self._copy(start)
                return True
            closers.pop()
            self._copy(start)
        return False

    def _name_if_object(self, closer: str) -> None:
        if closer == "}":
            self._pieces.append(self._string())
            start = self._at
            self._expect(":")
            self._peek()
            self._copy(start)

    def _copy(self, start: int) -> None:
        self._pieces.append(self._text[start : self._at])

    def _string(self) -> str:
        self._peek()
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("a string")
        self._at = match.end()
        text = match.group()
        repaired = _LONE_HALF.sub("\ufffd", _repair_escapes(text))
        if repaired != text:
            self._warnings.add("bad_unicode")
        return repaired

    def _scalar(self) -> str:
        match = _SCALAR.match(self._text, self._at)
        if match is None:
            raise self._error("a value")
        self._at = match.end()
        text = match.group()
        if text[-1] in "Ny" or ((len(text) >= _SHORTEST_HUGE or "e" in text or "E" in text) and _is_huge(text)):
            if text[-1].isdigit() and not set(text) & set(".eE"):
                self._problem = f"an integer of {len(text.lstrip('-'))} digits"
                return text
            self._warnings.add("non_finite")
            return "null"
        return text


def _is_huge(text: str) -> bool:
    return text not in ("true", "false") and math.isinf(float(text))


def _repair_escapes(text: str) -> str:
    """Replace escaped halves of surrogate pairs that stand alone."""
    if "\\u" not in text:
        return text
    kept_end, pieces = 0, []
    for match in _ESCAPED_PAIR.finditer(text):
        pieces += [_LONE_ESCAPE.sub("\ufffd", text[kept_end : match.start()]), match.group()]
        kept_end = match.end()
    return "".join((*pieces, _LONE_ESCAPE.sub("\ufffd", text[kept_end:])))
