"""From manifest lines to rows: canonical columns, everything else in meta_info, broken lines as rejects.

The loop over all lines of a manifest. Most lines are ordinary and take a short way (`typed_rows`), any others the
general one (`general_rows`), to the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from xxhash import xxh3_128_digest

from dataset_packaging.config import MappingConfig
from dataset_packaging.core.general_rows import GeneralReader, RowReject
from dataset_packaging.core.mapping_plan import plan_mapping
from dataset_packaging.core.meta_info import MetaInfoWriter, merge_packaging
from dataset_packaging.core.schema import (
    EXPECTED_COLUMNS,
    HEIGHT_COLUMN,
    KEY_COLUMN,
    MAIN_COLUMNS,
    PATH_COLUMN,
    WIDTH_COLUMN,
    ExtensionColumn,
)
from dataset_packaging.core.typed_rows import TypedReader
from dataset_packaging.core.uris import normalize_path

__all__ = ["MappedRows", "RecordMapper", "RowReject", "merge_packaging", "normalize_path"]

_CHUNK_ROWS = 64
_CHUNK_BYTES = 2**20
_FEWEST_ROWS = 8
"""So many rows are not split any further to find the one that is not ordinary."""
_MOST_PAUSE = 63
"""For so many chunks the short way is not even tried where ordinary rows are rare."""

_PLACED = frozenset({KEY_COLUMN, PATH_COLUMN, WIDTH_COLUMN, HEIGHT_COLUMN, *EXPECTED_COLUMNS})
_encode_values = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class MappedRows:
    """The rows of some lines, column by column; all lists but `rejects` have one item per row, in the order of lines.

    Attributes:
        manifest_uri: where the lines come from.
        columns: values of the canonical columns that are neither listed here nor measured, ready for `pa.array`.
        line: as given with the line.
        width_px: of the manifest, None if unknown; so is `height_px`, both or none.
        expected_sha256: what the manifest says of the file, None if nothing; so are the other `expected_*`.
        meta_info: JSON objects, without `_packaging`.
        warnings: sorted names of what was odd.
        main_hash: 16 bytes of everything here that decides about the row of the main shard; stable across versions.
        side_hash: the same of what only the sidecar holds.
        rejects: lines that give no row, in their order.
        rows: lines that are not blank, rejects included.
    """

    manifest_uri: str
    columns: dict[str, list[Any]]
    image_key: list[str] = field(default_factory=list)
    s3_image_path: list[str] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    width_px: list[int | None] = field(default_factory=list)
    height_px: list[int | None] = field(default_factory=list)
    expected_sha256: list[str | None] = field(default_factory=list)
    expected_md5: list[str | None] = field(default_factory=list)
    expected_bytes: list[int | None] = field(default_factory=list)
    meta_info: list[str] = field(default_factory=list)
    warnings: list[tuple[str, ...]] = field(default_factory=list)
    main_hash: list[bytes] = field(default_factory=list)
    side_hash: list[bytes] = field(default_factory=list)
    rejects: list[RowReject] = field(default_factory=list)
    rows: int = 0


class RecordMapper:
    """Maps the lines of one dataset's manifest.

    Args:
        mapping: of the dataset.
        extensions: its filter_* columns.
        dimensions: `probe` ignores the sizes that the manifest gives.
    """

    def __init__(
        self,
        mapping: MappingConfig,
        extensions: Sequence[ExtensionColumn] = (),
        dimensions: Literal["auto", "probe", "manifest"] = "auto",
    ) -> None:
        self._plan = plan_mapping(mapping, extensions)
        writer = MetaInfoWriter(self._plan.survives)
        self._typed = TypedReader(self._plan, writer)
        self._general = GeneralReader(self._plan, writer)
        self._reads_sizes = dimensions != "probe"
        self._column_names = tuple(name for name in self._plan.columns if name not in _PLACED)
        self._main_names = tuple(name for name in self._column_names if name in MAIN_COLUMNS)
        self._side_names = tuple(name for name in self._column_names if name not in MAIN_COLUMNS)

    def map_lines(self, lines: Iterable[tuple[int, bytes]], manifest_uri: str) -> MappedRows:
        """Return the rows of some lines.

        Pure: a row depends on its line alone, not on its neighbours. Never raises for anything that a line holds.

        Args:
            lines: pairs of a line number, which is only carried along, and the line without its end.
            manifest_uri: is only carried along.
        """
        mapped = MappedRows(manifest_uri, {name: [] for name in self._column_names})
        pause = next_pause = 0
        for chunk in _chunks(lines):
            if pause:
                pause -= 1
                self._map_generally(chunk, mapped)
                continue
            general_count = self._map_chunk(chunk, mapped)
            next_pause = min(2 * next_pause + 1, _MOST_PAUSE) if 2 * general_count > len(chunk) else 0
            pause = next_pause
        mapped.rejects.sort(key=lambda reject: reject.line)
        return mapped

    def _map_chunk(self, lines: Sequence[tuple[int, bytes]], mapped: MappedRows) -> int:
        """Map lines the short way if all are ordinary, else by halves; return how many went the general way."""
        rows = self._typed.read([line for _, line in lines])
        if rows is not None:
            mapped.rows += len(lines)
            self._append(mapped, [number for number, _ in lines], rows.columns, rows.meta_info, [()] * len(lines))
            return 0
        if len(lines) <= _FEWEST_ROWS:
            self._map_generally(lines, mapped)
            return len(lines)
        middle = len(lines) // 2
        return self._map_chunk(lines[:middle], mapped) + self._map_chunk(lines[middle:], mapped)

    def _map_generally(self, lines: Sequence[tuple[int, bytes]], mapped: MappedRows) -> None:
        rows = self._general.read(lines)
        self._typed.learn(rows.names)
        mapped.rows += len(rows.numbers) + len(rows.rejects)
        mapped.rejects += rows.rejects
        self._append(mapped, rows.numbers, rows.columns, rows.meta_info, rows.warnings)

    def _append(
        self,
        mapped: MappedRows,
        numbers: Sequence[int],
        columns: Mapping[str, list[Any]],
        meta_info: Sequence[str],
        warnings: Sequence[tuple[str, ...]],
    ) -> None:
        paths = columns[PATH_COLUMN]
        keys = [key or path for key, path in zip(columns[KEY_COLUMN], paths, strict=True)]
        nothing = [None] * len(keys)
        sha256, md5, size_bytes = (columns.get(name, nothing) for name in EXPECTED_COLUMNS)
        main_values = [columns[name] for name in self._main_names]
        mapped.main_hash += _hash_rows(keys, paths, *main_values, sha256, md5, size_bytes)
        mapped.side_hash += _hash_rows(meta_info, warnings, *(columns[name] for name in self._side_names))
        mapped.image_key += keys
        mapped.s3_image_path += paths
        mapped.line += numbers
        widths, heights = _known_sizes(columns) if self._reads_sizes else (nothing, nothing)
        mapped.width_px += widths
        mapped.height_px += heights
        mapped.expected_sha256 += sha256
        mapped.expected_md5 += md5
        mapped.expected_bytes += size_bytes
        mapped.meta_info += meta_info
        mapped.warnings += warnings
        for name in self._column_names:
            mapped.columns[name] += columns[name]


def _known_sizes(columns: Mapping[str, Sequence[Any]]) -> tuple[list[int | None], list[int | None]]:
    """Return widths and heights; a side without the other is unknown."""
    widths, heights = columns[WIDTH_COLUMN], columns[HEIGHT_COLUMN]
    if None not in widths and None not in heights:
        return list(widths), list(heights)
    both = [(w, h) if w is not None and h is not None else (None, None) for w, h in zip(widths, heights, strict=True)]
    return [width for width, _ in both], [height for _, height in both]


def _hash_rows(*columns: Sequence[Any]) -> list[bytes]:
    """Return 16 bytes for each row: XXH3 of its values in MessagePack.

    Both are specified and final. The hash finds changes; it is no guard against somebody who makes two rows collide.
    """
    return [xxh3_128_digest(_encode_values(row)) for row in zip(*columns, strict=True)]


def _chunks(lines: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lines a few at a time, bounded in number and bytes."""
    chunk: list[tuple[int, bytes]] = []
    size_bytes = 0
    for line in lines:
        chunk.append(line)
        size_bytes += len(line[1])
        if len(chunk) >= _CHUNK_ROWS or size_bytes >= _CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk
