"""What the fields of an unfamiliar manifest hold, counted over a sample of its lines. Pure."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dataset_packaging.core.records import normalize_path

PathKind = Literal["absolute", "relative", "web"]
PATH_KINDS: tuple[PathKind, ...] = ("absolute", "relative", "web")

MAX_DEPTH = 3
MAX_FIELDS = 2000
_EXAMPLE_COUNT = 3
_BLANK_TEXTS = frozenset({"", "null", "none", "nan", "n/a", "na", "undefined", "nil"})
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII)
_BOOLEAN_TEXTS = frozenset({"true", "false", "0", "1"})
_IMAGE_SUFFIX = re.compile(r"\.(?:jpe?g|jpe|jfif|png|webp|gif|tiff?|bmp|avif|hei[cf]|mpo)$", re.IGNORECASE)
_SOME_BASE_URI = "s3://bucket/"


@dataclass(frozen=True, slots=True)
class FieldFacts:
    """What the sample shows of one field. Rows are bits: bit n is row n of the sample.

    Attributes:
        name: Dotted path from the top of the row.
        depth: 1 for a top-level field.
        present_rows: Rows with a value that is not null.
        blank_rows: Rows with a text that says nothing: empty, `None`, `null`, `NaN`.
        kinds: How many values are of each kind: text, integer, number, boolean, texts (a list of them), empty list,
            list, object.
        numeric_texts: Texts that are numbers.
        boolean_likes: Texts and integers that are truth values.
        distinct: Distinct values.
        mean_bytes: JSON bytes of a value, mean.
        max_bytes: JSON bytes of the longest value.
        mean_chars: Characters of a text, mean.
        smallest: Smallest number, those in texts included; None where there are none.
        largest: Largest number, those in texts included; None where there are none.
        path_rows: Rows whose value can be the place of an image, by kind: `absolute` as it stands, `relative` to a
            base URI, `web` a web address that is not S3's own.
        image_suffix_rows: How many of those end in the suffix of an image file.
        examples: A few short values, as JSON.
    """

    name: str
    depth: int
    present_rows: int
    blank_rows: int
    kinds: Mapping[str, int]
    numeric_texts: int
    boolean_likes: int
    distinct: int
    mean_bytes: float
    max_bytes: int
    mean_chars: float
    smallest: float | None
    largest: float | None
    path_rows: Mapping[PathKind, int]
    image_suffix_rows: int
    examples: tuple[str, ...]

    @property
    def present(self) -> int:
        """Rows with a value that is not null."""
        return self.present_rows.bit_count()

    @property
    def blank(self) -> int:
        """Rows with a text that says nothing."""
        return self.blank_rows.bit_count()

    @property
    def leaf(self) -> str:
        """The last part of the name."""
        return self.name.rsplit(".", 1)[-1] if self.depth > 1 else self.name


@dataclass(frozen=True, slots=True)
class ManifestSurvey:
    """What a sample of a manifest holds.

    Attributes:
        rows: Lines that are one JSON object each.
        broken_lines: Lines that are not.
        mean_line_bytes: Length of a line, mean.
        fields: Every field met, in order of appearance; at most `MAX_FIELDS`.
    """

    rows: int
    broken_lines: int
    mean_line_bytes: float
    fields: tuple[FieldFacts, ...]

    def fraction(self, rows: int) -> float:
        """Say what part of the sampled rows so many are; 0 for an empty sample."""
        return rows / self.rows if self.rows else 0.0


def survey_lines(lines: Iterable[bytes]) -> ManifestSurvey:
    """Count what every field of these manifest lines holds; pure, memory grows with the sample."""
    tallies: dict[tuple[str, ...], _Tally] = {}
    rows = broken_lines = total_bytes = 0
    for line in lines:
        total_bytes += len(line)
        record = _parse_object(line)
        if record is None:
            broken_lines += 1
            continue
        for path, value in _walk_fields(record, ()):
            tally = tallies.get(path)
            if tally is None:
                if len(tallies) >= MAX_FIELDS:
                    continue
                tally = tallies[path] = _Tally()
            tally.add(rows, value)
        rows += 1
    facts = tuple(tally.facts(path) for path, tally in tallies.items())
    return ManifestSurvey(rows, broken_lines, total_bytes / max(rows + broken_lines, 1), facts)


def _parse_object(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line.decode("utf-8", "replace"))  # packing keeps such rows too
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _walk_fields(record: dict[str, Any], parents: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every field down to `MAX_DEPTH`; nested names with a dot cannot be said in a mapping: left out."""
    for name, value in record.items():
        if parents and "." in name:
            continue
        path = (*parents, name)
        yield path, value
        if len(path) < MAX_DEPTH and "." not in name:
            if isinstance(value, dict):
                yield from _walk_fields(value, path)
            elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
                yield from _walk_fields(_gather(value), path)


def _gather(items: list[Any]) -> dict[str, Any]:
    """Return for each name in a list of objects the list of its values, as a mapping reads it."""
    gathered: dict[str, list[Any]] = {}
    for item in items:
        for name, value in item.items() if isinstance(item, dict) else ():
            if value is not None:
                gathered.setdefault(name, []).append(value)
    return dict(gathered)


@dataclass(slots=True)
class _Tally:
    """Running counts of one field."""

    present_rows: int = 0
    blank_rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    numeric_texts: int = 0
    boolean_likes: int = 0
    hashes: set[int] = field(default_factory=set)
    total_bytes: int = 0
    max_bytes: int = 0
    total_chars: int = 0
    smallest: float | None = None
    largest: float | None = None
    path_rows: dict[PathKind, int] = field(default_factory=lambda: dict.fromkeys(PATH_KINDS, 0))
    image_suffix_rows: int = 0
    examples: dict[str, None] = field(default_factory=dict)

    def add(self, row: int, value: Any) -> None:
        if value is None:
            return
        self.present_rows |= 1 << row
        text = json.dumps(value, ensure_ascii=False)
        self.hashes.add(hash(text))
        self.total_bytes += len(text)
        self.max_bytes = max(self.max_bytes, len(text))
        if len(self.examples) < _EXAMPLE_COUNT:
            self.examples.setdefault(text[:200])
        kind = _kind_of(value)
        self.kinds[kind] += 1
        if kind == "text":
            self._add_text(row, value)
        elif kind in ("integer", "number"):
            self._add_number(value)

    def _add_text(self, row: int, value: str) -> None:
        self.total_chars += len(value)
        plain = value.strip().lower()
        if plain in _BLANK_TEXTS:
            self.blank_rows |= 1 << row
            return
        if _NUMBER.fullmatch(plain):
            self.numeric_texts += 1
            self._widen(float(plain))
        self.boolean_likes += plain in _BOOLEAN_TEXTS
        place = _path_kind(value)
        if place is not None:
            self.path_rows[place] |= 1 << row
            self.image_suffix_rows += _IMAGE_SUFFIX.search(value.split("?", 1)[0]) is not None

    def _add_number(self, value: int | float) -> None:
        self.boolean_likes += value in (0, 1)
        try:
            self._widen(float(value))
        except OverflowError:
            return

    def _widen(self, number: float) -> None:
        self.smallest = number if self.smallest is None else min(self.smallest, number)
        self.largest = number if self.largest is None else max(self.largest, number)

    def facts(self, path: tuple[str, ...]) -> FieldFacts:
        present = max(self.present_rows.bit_count(), 1)
        return FieldFacts(
            name=".".join(path),
            depth=len(path),
            present_rows=self.present_rows,
            blank_rows=self.blank_rows,
            kinds=dict(self.kinds),
            numeric_texts=self.numeric_texts,
            boolean_likes=self.boolean_likes,
            distinct=len(self.hashes),
            mean_bytes=self.total_bytes / present,
            max_bytes=self.max_bytes,
            mean_chars=self.total_chars / max(self.kinds["text"], 1),
            smallest=self.smallest,
            largest=self.largest,
            path_rows=dict(self.path_rows),
            image_suffix_rows=self.image_suffix_rows,
            examples=tuple(self.examples),
        )


def _kind_of(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, list):
        if not value:
            return "empty list"
        return "texts" if all(isinstance(item, str) for item in value) else "list"
    return "object"


def _path_kind(text: str) -> PathKind | None:
    if "\n" in text or len(text) > 2048:
        return None
    if normalize_path(text, None) is not None:
        return "absolute"
    if text[:8].lower().startswith(("http://", "https://")):
        return "web"
    if " " in text.strip() and not _IMAGE_SUFFIX.search(text):
        return None
    return "relative" if normalize_path(text, _SOME_BASE_URI) is not None else None
