"""A proposal how the fields of an unfamiliar manifest become columns, each with its evidence. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dataset_packaging.config_fields import Cast
from dataset_packaging.core.schema import EXTENSION_PREFIX
from dataset_packaging.packing.column_guess import (
    COLUMN_GUESSES,
    KEY_NAMES,
    LESSER_COPY,
    PATH_NAMES,
    ColumnGuess,
    fits,
    normalize_name,
    rank_name,
)
from dataset_packaging.packing.field_survey import PATH_KINDS, FieldFacts, ManifestSurvey

CHECKED_COLUMNS = ("sha256", "md5", "bytes")
"""Proposed only where sampled images agree: a hash of another rendition would reject every row."""

_DISTINCT_FRACTION = 0.95
_HUGE_BYTES = 2000
_LARGE_BYTES = 300
_LARGE_LINE_FRACTION = 0.25
_LONGEST_BYTES = 65536
_MACHINE_PAYLOAD = re.compile(
    r"response|raw|html|embed|vector|feature|logit|base64|b64|thumb|latent|debug|trace|blob", re.IGNORECASE
)
_PATH_WORDS = re.compile(r"path|file|uri|s3_key|object_key")
_UNKNOWN_RANK = (99, 99)
_MISFIT_WAYS = {"texts": "a text or as one list of texts", "boolean": "true and false", "number": "a number"}
"""How a field that is called like a column has to be written, by what the column wants."""


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column with the fields that fill it, the first that is not null counts.

    Attributes:
        column: Canonical name, or one of `CHECKED_COLUMNS`.
        sources: Names of fields, in order of preference.
        cast: Only where values are converted; None where they fit as they are.
        evidence: One line for each source.
    """

    column: str
    sources: tuple[str, ...]
    cast: Cast | None
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldNote:
    """A field that fills no column, and what the sample shows of it."""

    name: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Extension:
    """A `filter_*` column that the dataset has to declare: its name and the text of its type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """What `init` writes down.

    Attributes:
        path: Where the image of a row is; None where no field can say it.
        path_rows: Sampled rows whose path is usable, relative ones included.
        relative_rows: Of these, rows whose path needs a base URI.
        web_rows: Rows that have a web address and no usable path.
        key: A unique key; None leaves it to the path.
        columns: All other columns, in canonical order.
        extensions: `filter_*` objects, with the struct type that their members suggest.
        checked: Hashes and sizes of files, to be taken over only where sampled images agree.
        drop: Huge fields of no use, to be dropped while loading.
        unused: Fields that stay in meta_info, the largest first.
        warnings: What a person should look at, one line each.
    """

    path: MappedColumn | None
    path_rows: int
    relative_rows: int
    web_rows: int
    key: MappedColumn | None
    columns: tuple[MappedColumn, ...]
    extensions: tuple[Extension, ...]
    checked: tuple[MappedColumn, ...]
    drop: tuple[FieldNote, ...]
    unused: tuple[FieldNote, ...]
    warnings: tuple[str, ...]


def propose_mapping(survey: ManifestSurvey) -> Proposal:
    """Propose columns, a key and fields to drop from what a sample shows; pure."""
    path_fields = _choose_path_fields(survey)
    usable = _union(_usable_rows(field) for field in path_fields)
    web = _union(field.path_rows["web"] for field in path_fields) & ~usable
    path = _mapped("s3_image_path", path_fields, None, survey) if path_fields else None
    key_field = _choose_key_field(survey, path_fields)
    key = _mapped("image_key", [key_field], None, survey) if key_field else None
    taken = [*path_fields, *([key_field] if key_field else [])]
    mapped = list(_choose_columns(survey, taken))
    columns = tuple(column for column in mapped if column.column not in CHECKED_COLUMNS)
    extensions = tuple(_declare_extensions(survey))
    used = {source for column in (*columns, *(c for c in (path, key) if c)) for source in column.sources}
    used |= {extension.name for extension in extensions}
    drop, unused = _sort_unmapped(survey, used)
    return Proposal(
        path=path,
        path_rows=usable.bit_count(),
        relative_rows=(usable & ~_union(field.path_rows["absolute"] for field in path_fields)).bit_count(),
        web_rows=web.bit_count(),
        key=key,
        columns=columns,
        extensions=extensions,
        checked=tuple(column for column in mapped if column.column in CHECKED_COLUMNS),
        drop=tuple(drop),
        unused=tuple(unused),
        warnings=(*_warn(survey, path_fields, usable, web, key_field), *_warn_of_misfits(survey, mapped)),
    )


def describe_field(field: FieldFacts, survey: ManifestSurvey) -> str:
    """Write what a sample shows of a field in one line; pure."""
    if not field.present:
        return "null in all rows"
    parts = [f"{_describe_kinds(field)} in {_percent(field.present, survey.rows)} of the rows"]
    if field.blank:
        parts.append(f"says nothing in {_percent(field.blank, survey.rows)}")
    if field.kinds.get("text"):
        parts.append(f"mean {field.mean_chars:.0f} characters")
    if field.smallest is not None and field.largest is not None:
        parts.append(f"{field.smallest:.6g} to {field.largest:.6g}")
    if field.distinct == 1:
        parts.append("always the same")
    elif field.distinct == field.present:
        parts.append("all different")
    elif field.distinct <= 20:
        parts.append(f"{field.distinct} different values")
    return ", ".join([*parts, "for example " + _shorten(field.examples[0])])


def _describe_kinds(field: FieldFacts) -> str:
    names = sorted(field.kinds, key=lambda kind: -field.kinds[kind])
    return " or ".join("list of texts" if name == "texts" else name for name in names)


def _percent(part: int, whole: int) -> str:
    percent = 100 * part / max(whole, 1)
    return "all" if part == whole else f"{percent:.1f} %" if percent >= 0.1 else "<0.1 %"


def _shorten(text: str, limit: int = 60) -> str:
    clean = "".join(character if character.isprintable() else " " for character in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _union(bits: Iterable[int]) -> int:
    total = 0
    for rows in bits:
        total |= rows
    return total


def _usable_rows(field: FieldFacts) -> int:
    return field.path_rows["absolute"] | field.path_rows["relative"]


def _mapped(column: str, fields: Sequence[FieldFacts], cast: Cast | None, survey: ManifestSurvey) -> MappedColumn:
    evidence = tuple(f"{field.name}: {describe_field(field, survey)}" for field in fields)
    return MappedColumn(column, tuple(field.name for field in fields), cast, evidence)


def _mappable(survey: ManifestSurvey) -> Iterator[FieldFacts]:
    """Yield the fields that a mapping can name: a dot in a top-level name would lead into an object."""
    return (field for field in survey.fields if field.depth == field.name.count(".") + 1)


def _fill(fields: Iterable[FieldFacts], rows_of: "dict[str, int]") -> list[FieldFacts]:
    """Take the fields, in order, that add a row which those before lack."""
    chosen, covered = [], 0
    for field in fields:
        if rows_of[field.name] & ~covered:
            chosen.append(field)
            covered |= rows_of[field.name]
    return chosen


def _choose_path_fields(survey: ManifestSurvey) -> list[FieldFacts]:
    candidates = [field for field in _mappable(survey) if _is_path_field(field)]
    candidates.sort(key=_rank_path_field)
    usable = {field.name: _usable_rows(field) for field in candidates}
    if any(usable.values()):
        own_picture = [field for field in candidates if not LESSER_COPY.search(field.leaf)]
        return _fill(own_picture or candidates, usable)
    return candidates[:1]


def _is_path_field(field: FieldFacts) -> bool:
    placed = sum(rows.bit_count() for rows in field.path_rows.values())
    if not placed or 2 * placed < field.present - field.blank:
        return False
    if 2 * field.image_suffix_rows >= placed:
        return True
    if rank_name(field, PATH_NAMES) is None:
        return False
    elsewhere = (field.path_rows["absolute"] | field.path_rows["web"]).bit_count()
    return 2 * elsewhere >= placed or _PATH_WORDS.search(normalize_name(field.leaf)) is not None


def _rank_path_field(field: FieldFacts) -> tuple[bool, int, tuple[int, int], int]:
    counts = {kind: rows.bit_count() for kind, rows in field.path_rows.items()}
    order = list(PATH_KINDS).index(max(PATH_KINDS, key=lambda kind: counts[kind]))
    rank = rank_name(field, PATH_NAMES) or _UNKNOWN_RANK
    return LESSER_COPY.search(field.leaf) is not None, order, rank, -_usable_rows(field).bit_count()


def _choose_key_field(survey: ManifestSurvey, path_fields: Sequence[FieldFacts]) -> FieldFacts | None:
    candidates = []
    for field in _mappable(survey):
        rank = rank_name(field, KEY_NAMES)
        is_scalar = set(field.kinds) <= {"text", "integer"}
        is_everywhere = field.present == survey.rows and not field.blank
        is_distinct = field.distinct >= _DISTINCT_FRACTION * field.present
        if rank and is_scalar and is_everywhere and is_distinct and field not in path_fields:
            candidates.append((field.distinct < field.present, rank, field))
    return min(candidates, key=lambda candidate: candidate[:2])[2] if candidates else None


def _choose_columns(survey: ManifestSurvey, taken: Sequence[FieldFacts]) -> Iterator[MappedColumn]:
    free = [field for field in _mappable(survey) if field not in taken]
    sizes = _choose_size_fields(survey, free)
    for guess in COLUMN_GUESSES:
        if guess.want == "size":
            fields = sizes[guess.column]
        else:
            fields = _fill_by_name(survey, free, guess)
            free = [field for field in free if field not in fields]
        if fields:
            yield _mapped(guess.column, fields, _cast_of(guess, fields), survey)


def _fill_by_name(survey: ManifestSurvey, free: Sequence[FieldFacts], guess: ColumnGuess) -> list[FieldFacts]:
    ranked = [
        (rank, field) for field in free if (rank := rank_name(field, guess.names)) and fits(field, guess.want, survey)
    ]
    ordered = [field for _, field in sorted(ranked, key=lambda pair: (pair[0], pair[1].leaf not in guess.names))]
    return _fill(ordered, {field.name: field.present_rows & ~field.blank_rows for field in ordered})


def _choose_size_fields(survey: ManifestSurvey, free: Sequence[FieldFacts]) -> dict[str, list[FieldFacts]]:
    """Choose widths and heights as pairs: the width of one rendition with the height of another is no size."""
    width_guess, height_guess = COLUMN_GUESSES[:2]
    heights = {}
    for field in free:
        rank = rank_name(field, height_guess.names)
        if rank and fits(field, "size", survey):
            heights[field.name.rpartition(".")[0], rank] = field
    pairs = []
    for field in free:
        rank = rank_name(field, width_guess.names)
        height = heights.get((field.name.rpartition(".")[0], rank)) if rank and fits(field, "size", survey) else None
        if height is not None:
            pairs.append((rank, field, height))
    pairs.sort(key=lambda pair: pair[0] or _UNKNOWN_RANK)
    both = {width.name: width.present_rows & height.present_rows for _, width, height in pairs}
    widths = _fill([width for _, width, _ in pairs], both)
    return {
        width_guess.column: widths,
        height_guess.column: [height for _, width, height in pairs if width in widths],
    }


def _cast_of(guess: ColumnGuess, fields: Sequence[FieldFacts]) -> Cast | None:
    kinds = {kind for field in fields for kind in field.kinds}
    if guess.want == "texts" and "text" in kinds:
        return "list_string"
    if guess.want == "number" and "text" in kinds:
        return "float"
    if guess.want == "boolean" and kinds != {"boolean"}:
        return "bool"
    return None


def _declare_extensions(survey: ManifestSurvey) -> Iterator[Extension]:
    """Declare a column for each `filter_*` field whose values are objects of plain members."""
    fields = {field.name: field for field in survey.fields}
    for field in survey.fields:
        if not re.fullmatch(EXTENSION_PREFIX + r"\w+", field.name, re.ASCII) or set(field.kinds) != {"object"}:
            continue
        members = [name for name in fields if name.startswith(field.name + ".")]
        types = {name.rpartition(".")[2]: _member_type(fields[name]) for name in members}
        if types and all(types.values()) and all(name.isidentifier() for name in types):
            yield Extension(field.name, f"struct<{', '.join(f'{name}: {kind}' for name, kind in types.items())}>")


def _member_type(field: FieldFacts) -> str | None:
    kinds = set(field.kinds)
    if kinds <= {"integer", "number"}:
        return "double"
    if kinds == {"boolean"}:
        return "bool"
    return "string" if kinds == {"text"} else None


def _sort_unmapped(survey: ManifestSurvey, used: set[str]) -> tuple[list[FieldNote], list[FieldNote]]:
    drop: list[FieldNote] = []
    unused: list[FieldNote] = []
    top_level = [field for field in survey.fields if field.depth == 1]
    for field in sorted(top_level, key=lambda field: -field.mean_bytes * field.present):
        if field.name in used:
            continue
        row_bytes = field.mean_bytes * field.present / max(survey.rows, 1)
        line_fraction = row_bytes / max(survey.mean_line_bytes, 1)
        share = f"{100 * line_fraction:.0f} %" if line_fraction >= 0.01 else "<1 %"
        evidence = f"{row_bytes:,.0f} bytes per row, {share} of the manifest; {describe_field(field, survey)}"
        note = FieldNote(field.name, evidence if field.present else describe_field(field, survey))
        is_huge = row_bytes >= _HUGE_BYTES or (field.max_bytes >= _LONGEST_BYTES and row_bytes >= _LARGE_BYTES)
        is_payload = (
            row_bytes >= _LARGE_BYTES and line_fraction >= _LARGE_LINE_FRACTION and _MACHINE_PAYLOAD.search(field.name)
        )
        (drop if is_huge or is_payload else unused).append(note)
    return drop, unused


def _warn(
    survey: ManifestSurvey, path_fields: Sequence[FieldFacts], usable: int, web: int, key_field: FieldFacts | None
) -> Iterator[str]:
    if survey.broken_lines:
        yield f"{survey.broken_lines} of {survey.rows + survey.broken_lines} sampled lines are not one JSON object each"
    pathless = survey.rows - usable.bit_count() - web.bit_count()
    if path_fields and pathless:
        yield f"{_percent(pathless, survey.rows)} of the sampled rows have no path to an image"
    if web:
        share = _percent(web.bit_count(), survey.rows)
        yield f"{share} of the sampled rows have only a web address, which is not fetched"
    for field in path_fields:
        if field.blank:
            yield f"{field.name} is a text that says nothing (empty, None, null) in {field.blank} sampled rows"
    if key_field and key_field.distinct < key_field.present:
        repeats = key_field.present - key_field.distinct
        yield f"{key_field.name} repeats in {repeats} of {key_field.present} sampled rows: the first of each stays"
    for field in path_fields[:1]:
        repeats = field.present - field.distinct
        if repeats and not key_field:
            yield f"{field.name}, the key, repeats in {repeats} of {field.present} rows: the first of each stays"
        elif repeats > field.present // 10:
            yield f"{field.name} repeats: {field.distinct} images for {field.present} rows, each packed with its row"


def _warn_of_misfits(survey: ManifestSurvey, mapped: Sequence[MappedColumn]) -> Iterator[str]:
    """Name fields that are called like a column which nothing fills, and hold what does not become its values."""
    filled = {column.column for column in mapped}
    for guess in COLUMN_GUESSES:
        named = [
            field
            for field in _mappable(survey)
            if field.depth == 1 and field.present > field.blank and rank_name(field, guess.names)
        ]
        if guess.want not in _MISFIT_WAYS or guess.column in filled or not named:
            continue
        field = min(named, key=lambda field: rank_name(field, guess.names) or _UNKNOWN_RANK)
        if guess.want != "texts" and not field.kinds.get("text"):
            continue
        inner = [other.name for other in _mappable(survey) if other.name.startswith(field.name + ".")]
        way = f"map one of {', '.join(inner[:3])}" if inner else f"write it as {_MISFIT_WAYS[guess.want]}"
        kinds = _describe_kinds(field)
        example = f", such as {_shorten(field.examples[0])}"
        yield f"{field.name} is called like {guess.column} but is {kinds}{example}: {way}, or it stays in meta_info"
