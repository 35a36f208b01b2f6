"""Names and types of a sidecar held against a reference: what is unknown, missing, of another type, or nearly right.

Types are compared as texts without what readers do not see: names of list children, nullability, and the large_, view,
dictionary and run-end encodings of a type. The order of the columns does not count; that of a struct's fields does.
`null`, which writers that infer types leave where no row has a value, is no type: a reference that has it fits any.
"""

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import pyarrow as pa

from dataset_packaging.core.schema import parse_type

Item = TypeVar("Item")

SCHEMA_FILE_VERSION = 1

Columns: TypeAlias = tuple[tuple[str, str], ...]
"""First-level names with their comparable types, in order."""

DifferenceKind = Literal["unknown", "missing", "type", "repeated"]

_SAME_MEANING = {
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
}
_CLOSE = 0.75
"""Similarity from which difflib's ratio counts as a slip: 0.6, its default, takes one caption column for another."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One column that is not as the reference has it.

    Attributes:
        kind: what is wrong.
        column: its name.
        detail: one readable line that names the column.
    """

    kind: DifferenceKind
    column: str
    detail: str

    def __str__(self) -> str:
        return self.detail


def comparable_type(type_: pa.DataType) -> str:
    """Return the text by which types are compared; pure."""
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return comparable_type(type_.value_type)
    if pa.types.is_struct(type_):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        return f"struct<{', '.join(f'{field.name}: {comparable_type(field.type)}' for field in fields)}>"
    if pa.types.is_map(type_):
        return f"map<{comparable_type(type_.key_type)}, {comparable_type(type_.item_type)}>"
    if pa.types.is_fixed_size_list(type_):
        return f"list<{comparable_type(type_.value_type)}>[{type_.list_size}]"
    if isinstance(type_, pa.ListType | pa.LargeListType | pa.ListViewType | pa.LargeListViewType):
        return f"list<{comparable_type(type_.value_type)}>"
    return _SAME_MEANING.get(str(type_), str(type_))


def columns_of(schema: pa.Schema) -> Columns:
    """Return the names and comparable types of a schema; pure."""
    return tuple((field.name, comparable_type(field.type)) for field in schema)


def find_differences(reference: Columns, actual: Columns, own: Collection[str] = ()) -> list[Difference]:
    """Return how columns differ from a reference, in the order of the columns, missing ones last; pure.

    Args:
        reference: what is expected.
        actual: what is there.
        own: names that the dataset adds itself; the reference need not have them.
    """
    expected, found = dict(reference), dict(actual)
    missing = [name for name in expected if name not in found]
    differences = [
        Difference("repeated", name, f"column {name} stands there {count} times")
        for name, count in Counter(name for name, _ in actual).items()
        if count > 1
    ]
    meant: dict[str, str] = {}
    for name, type_ in found.items():
        if name in expected:
            if not _fits(type_, expected[name]):
                differences.append(Difference("type", name, f"column {name} is {type_}, expected {expected[name]}"))
        elif name not in own:
            near = nearest_name(name, missing) or nearest_name(name, expected)
            if near is not None:
                meant.setdefault(near, name)
            hint = f"; did you mean `{near}`?" if near is not None else ""
            differences.append(Difference("unknown", name, f"column {name} is unknown{hint}"))
    for name in missing:
        hint = f"; `{meant[name]}` may be meant for it" if name in meant else ""
        differences.append(Difference("missing", name, f"column {name} ({expected[name]}) is missing{hint}"))
    return differences


def _fits(type_: str, expected: str) -> bool:
    """Return whether a comparable type is the expected one, `null` in this standing for any."""
    if expected in (type_, "null"):
        return True
    parts, expected_parts = _parts(type_), _parts(expected)
    return (
        type_.partition("<")[0] == expected.partition("<")[0]
        and bool(parts)
        and [name for name, _ in parts] == [name for name, _ in expected_parts]
        and all(_fits(mine, other) for (_, mine), (_, other) in zip(parts, expected_parts, strict=True))
    )


def _parts(type_: str) -> list[tuple[str, str]]:
    """Return the names and types of a struct's fields, or the unnamed one of a list; of other types nothing."""
    kind, opened, rest = type_.partition("<")
    if not opened or not rest.endswith(">"):
        return []
    if kind == "list":
        return [("", rest[:-1])]
    pieces, depth, start = [], 0, 0
    for at, character in enumerate(rest):
        depth += character in "<[("
        depth -= character in ">])"
        if depth < 0 or (depth == 0 and rest.startswith(", ", at)):
            pieces.append(rest[start:at])
            start = at + 2
    named = [piece.partition(": ") for piece in pieces] if kind == "struct" else []
    return [(name, inner) for name, _, inner in named]


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None; pure.

    Case, `_`, `-`, blanks and dots do not count; beyond that a slip of a few letters is forgiven.
    """
    by_letters: dict[str, str] = {}
    for candidate in known:
        by_letters.setdefault(_letters(candidate), candidate)
    near = difflib.get_close_matches(_letters(name), by_letters, n=1, cutoff=_CLOSE)
    return by_letters[near[0]] if near else None


def _letters(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name).casefold()


@dataclass(frozen=True, slots=True)
class FamilySchema:
    """What the shards of a family have in common.

    Attributes:
        columns: each name with the type that most shards have; a name counts if half of the shards have it.
        disagreements: one line for each shard and column that is different from most.
    """

    columns: Columns
    disagreements: tuple[str, ...]


def settle_family(shards: Sequence[tuple[str, Columns]]) -> FamilySchema:
    """Return what most of the shards of a family have, and which do not; pure.

    A column of Arrow's type `null` (as writers that infer types leave it where a shard has no value) has no vote, nor
    has one with such a part where another shard knows it.

    Args:
        shards: a name for each shard, for people, and its columns; at least one.
    """
    votes: dict[str, Counter[str]] = {}
    for _, columns in shards:
        for column, type_ in dict(columns).items():
            votes.setdefault(column, Counter())[type_] += 1
    settled: dict[str, str] = {}
    for column, types in votes.items():
        known = {
            type_: count
            for type_, count in types.items()
            if not any(other != type_ and _fits(other, type_) for other in types)
        }
        if 2 * types.total() >= len(shards):
            settled[column] = max(known, key=lambda type_: known[type_])
    disagreements = [
        f"{name}: {difference.detail}, as most of the {len(shards)} shards that were read have it"
        if difference.kind in ("type", "missing")
        else f"{name}: {difference.detail} (most of the {len(shards)} shards that were read do not have it)"
        for name, columns in shards
        for difference in find_differences(tuple(settled.items()), columns)
    ]
    return FamilySchema(tuple(settled.items()), tuple(disagreements))


def plan_sample(uris: Sequence[str], limit: int) -> list[str]:
    """Return at most `limit` of the files, spread evenly over their folders and then within them; pure.

    Args:
        uris: in order of their keys.
        limit: at least 1.
    """
    folders: dict[str, list[str]] = {}
    for uri in uris:
        folders.setdefault(uri.rpartition("/")[0], []).append(uri)
    groups = _spread(list(folders.values()), limit)
    share, extra = divmod(limit, max(1, len(groups)))
    return [uri for number, group in enumerate(groups) for uri in _spread(group, share + (number < extra))]


def _spread(items: list[Item], limit: int) -> list[Item]:
    if len(items) <= limit:
        return items
    if limit == 1:
        return items[:1]
    return [items[round(number * (len(items) - 1) / (limit - 1))] for number in range(limit)]


def encode_schema_file(columns: Columns, source: str) -> str:
    """Return the text of a schema file, as `decode_schema_file` reads it; pure.

    Args:
        columns: what it holds.
        source: where they come from, for people.
    """
    document = {
        "version": SCHEMA_FILE_VERSION,
        "source": source,
        "columns": [{"name": name, "type": type_} for name, type_ in columns],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def decode_schema_file(text: str) -> Columns:
    """Return the columns of a schema file; pure.

    Types may be written as people write them (`list<string>`, `float32`, `struct<score: double>`); one that is not
    understood is compared as it stands.

    Raises:
        ValueError: the text is none; the message says what was expected.
    """
    expected = 'expected {"version": 1, "columns": [{"name": "image_key", "type": "string"}, ...]}'
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"no JSON ({error}); {expected}") from None
    if not isinstance(document, dict) or not isinstance(columns := document.get("columns"), list) or not columns:
        raise ValueError(f"no schema file; {expected}")
    if (version := document.get("version", SCHEMA_FILE_VERSION)) != SCHEMA_FILE_VERSION:
        raise ValueError(f"version {version!r} is not known; {expected}")
    for column in columns:
        texts = (column.get("name"), column.get("type")) if isinstance(column, dict) else ()
        if len(texts) != 2 or not all(isinstance(part, str) and part for part in texts):
            raise ValueError(f"{column!r:.80} is no column; {expected}")
    return tuple((column["name"], _comparable_text(column["type"])) for column in columns)


def _comparable_text(text: str) -> str:
    try:
        return comparable_type(parse_type(text))
    except ValueError:
        return _SAME_MEANING.get(text.strip(), text.strip())
