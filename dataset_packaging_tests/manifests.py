"""Synthetic manifests of any length: nested fields, duplicates, broken lines; plain, gzip or zstd."""

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import zstandard

_WORDS = (
    "amber birch cliff dune elm fjord grove harbour inlet juniper kelp lagoon meadow north ochre pine ridge".split()
)
_BODIES = 499  # texts are drawn from so many: making a line is then one concatenation


@dataclass(frozen=True, slots=True)
class ManifestSpec:
    """What a manifest should hold.

    Attributes:
        rows: lines that are not blank.
        row_bytes: about so many bytes in a line, at least 400.
        image_uris: paths named in turn; without any, `images/NUMBER.jpg`.
        sizes: (width, height) given in turn; without any, the lines name no size.
        duplicate_every: each so many lines repeat the key of the line `duplicate_distance` before; 0: none.
        broken_every: each so many lines are cut in the middle; 0: none.
        blank_every: after each so many lines comes a blank one; 0: none.
        compression: how the file is stored.
        member_rows: so many lines are one gzip member or zstd frame; 0: all of them.
        seed: another seed, other texts.
    """

    rows: int
    row_bytes: int = 2000
    image_uris: tuple[str, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    duplicate_every: int = 0
    duplicate_distance: int = 1
    broken_every: int = 0
    blank_every: int = 0
    compression: Literal["plain", "gzip", "zstd"] = "plain"
    member_rows: int = 0
    seed: int = 0

    def is_broken(self, number: int) -> bool:
        """Whether row `number` (from 0) is a cut line."""
        return bool(self.broken_every) and number % self.broken_every == self.broken_every - 1

    def key_number(self, number: int) -> int:
        """Returns the number in the key of row `number`: its own, or that of an earlier row."""
        repeats = bool(self.duplicate_every) and number % self.duplicate_every == self.duplicate_every - 1
        return number - self.duplicate_distance if repeats and number >= self.duplicate_distance else number


@dataclass(frozen=True, slots=True)
class ManifestCounts:
    """What was written."""

    rows: int
    broken: int
    duplicates: int
    bytes: int


def write_manifest(path: Path, spec: ManifestSpec) -> ManifestCounts:
    """Writes the manifest in pieces, holding one member at most in memory; the same spec gives the same bytes."""
    seen_broken = duplicates = written = 0
    keys: set[int] = set()
    bodies = _bodies(spec)
    with path.open("wb") as file:
        for start in range(0, spec.rows, spec.member_rows or min(spec.rows, 20_000)):
            stop = min(spec.rows, start + (spec.member_rows or 20_000))
            lines = []
            for number in range(start, stop):
                lines.append(_line(spec, number, bodies[number % len(bodies)]))
                if spec.is_broken(number):
                    seen_broken += 1
                elif spec.duplicate_every:
                    duplicates += spec.key_number(number) in keys
                    keys.add(spec.key_number(number))
            written += file.write(_stored(spec, b"".join(lines)))
    return ManifestCounts(spec.rows, seen_broken, duplicates, written)


def rows_of(spec: ManifestSpec) -> Iterator[dict[str, object]]:
    """Yields the rows that are not broken, parsed."""
    bodies = _bodies(spec)
    for number in range(spec.rows):
        if not spec.is_broken(number):
            yield json.loads(_line(spec, number, bodies[number % len(bodies)]))


def _bodies(spec: ManifestSpec) -> list[bytes]:
    chance = random.Random(spec.seed)
    return [_body(chance, max(0, spec.row_bytes - 330)) for _ in range(min(_BODIES, max(1, spec.rows)))]


def _body(chance: random.Random, size: int) -> bytes:
    def text(length: int) -> str:
        return " ".join(chance.choices(_WORDS, k=max(1, length // 6)))

    fields = {
        "caption": text(size // 4),
        "meta": {
            "caption_long": [text(size // 8), text(size // 8)],
            "exif": {"Make": chance.choice(_WORDS), "ISO": chance.choice([100, "200", 400.0, None])},
            "scores": {"aesthetic": round(chance.uniform(0, 10), 4), "nsfw": round(chance.random(), 6)},
        },
        "keywords": chance.choices(_WORDS, k=3),
        "aesthetic_score": round(chance.uniform(0, 10), 3),
        "has_watermark": chance.choice([True, False, None]),
        "gemini_response_full": {"parts": [text(size // 2)]},
    }
    return json.dumps(fields)[1:].encode()


def _line(spec: ManifestSpec, number: int, body: bytes) -> bytes:
    uri = spec.image_uris[number % len(spec.image_uris)] if spec.image_uris else f"images/{number:09d}.jpg"
    size = b""
    if spec.sizes:
        size = b'"width": %d, "height": %d, ' % spec.sizes[number % len(spec.sizes)]
    key = b'{"id": "row-%09d", "image_uri": %s, ' % (spec.key_number(number), json.dumps(uri).encode())
    line = key + size + body
    if spec.is_broken(number):
        line = line[: len(line) // 2]
    blank = b"\n" if spec.blank_every and number % spec.blank_every == spec.blank_every - 1 else b""
    return line + b"\n" + blank


def _stored(spec: ManifestSpec, data: bytes) -> bytes:
    if spec.compression == "gzip":
        return gzip.compress(data, compresslevel=3, mtime=0)
    if spec.compression == "zstd":
        return zstandard.ZstdCompressor(level=3).compress(data)
    return data
