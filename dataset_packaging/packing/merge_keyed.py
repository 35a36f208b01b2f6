"""A keyed merge source, sorted by shard once for each version of it. All stands below `{work_prefix}/merges/`."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import Layout, MergeLayout
from dataset_packaging.core.shard_plan import combined_fingerprint
from dataset_packaging.errors import NotFound
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.executor import Executor
from dataset_packaging.packing.generation import Published
from dataset_packaging.packing.merge_sort import (
    GatherTask,
    PlacesTask,
    Slice,
    SpreadReport,
    SpreadTask,
    gather_part,
    spread_piece,
    write_places,
)
from dataset_packaging.packing.merge_sources import plan_pieces
from dataset_packaging.packing.source_versions import SidecarSources

PART_BYTES = 64 << 20
"""Rows of a source that one part should have."""

MOST_PARTS = 4096


@dataclass(frozen=True, slots=True)
class KeyedSummary:
    """What was found in a keyed source.

    Attributes:
        source: its URIs, joined by a blank.
        rows: of the source.
        bad_lines: lines of a JSONL that hold no object.
        null_keys: rows without a key.
        unknown_keys: rows whose key the dataset does not have.
        repeated_rows: rows that repeat an earlier one of the same key and values.
        parts: how many there are; shard s belongs to s * parts // shards.
        shards: of the dataset.
        present: parts that have rows.
    """

    source: str
    rows: int
    bad_lines: int
    null_keys: int
    unknown_keys: int
    repeated_rows: int
    parts: int
    shards: int
    present: tuple[int, ...]

    def part_of(self, shard: int) -> int | None:
        """Return the part that holds the rows of a shard, or None where the source has none for it."""
        part = shard * self.parts // max(1, self.shards)
        return part if part in self.present else None


@dataclass(frozen=True, slots=True)
class KeyedMerge:
    """Sorts keyed sources.

    Attributes:
        dataset: its configuration.
        stores: of the dataset.
        layout: of the dataset.
        current: the published generation, which says which shard holds which key.
        sources: files of the sources and their versions.
    """

    dataset: DatasetConfig
    stores: Stores
    layout: Layout
    current: Published
    sources: SidecarSources

    def target(self, number: int) -> MergeLayout:
        """Return where the sorted source of a merge stands: a place of its own for each version and generation."""
        merge = self.dataset.sidecar.merge[number]
        fingerprint = combined_fingerprint(
            self.sources.keyed(number).fingerprint,
            merge.model_dump_json(exclude={"mode", "unmatched"}),
            str(self.dataset.mapping.base_uri),
            self.current.summary.fingerprint,
            str(self.current.summary.number),
        )
        return self.layout.merge(fingerprint)

    def sort(self, number: int, executor: Executor, report: Callable[[str, int, int], None]) -> KeyedSummary:
        """Sort the source of a merge unless that is done; `report` hears (what, done, total). Safe to repeat.

        Raises MergeConflict where keys repeat with different values, MergeSourceUnusable where it cannot be read.
        """
        if (known := self.read_summary(number)) is not None:
            return known
        target = self.target(number)
        places = PlacesTask(
            self.dataset, self.dataset.sidecar.merge[number].key, self.current.layout, target, self.shard_bases()
        )
        for result in executor.map(write_places, [places]):
            result.require_value()
        pieces, size = plan_pieces(self.stores, self.sources.keyed(number).files)
        shards = len(self.current.shards)
        parts = max(1, min(shards, MOST_PARTS, -(-size // PART_BYTES)))
        spreads = [
            SpreadTask(self.dataset, number, target, ordinal, piece, parts, shards)
            for ordinal, piece in enumerate(pieces)
        ]
        spread: list[SpreadReport] = []
        for done, spread_result in enumerate(executor.map(spread_piece, spreads), 1):
            spread.append(spread_result.require_value())
            report("reading a merge source", done, len(spreads))
        slices: dict[int, list[Slice]] = {}
        for cut in sorted((cut for piece in spread for cut in piece.slices), key=lambda cut: (cut.uri, cut.offset)):
            slices.setdefault(cut.part, []).append(cut)
        gathers = [GatherTask(self.dataset, target, part, tuple(cuts)) for part, cuts in sorted(slices.items())]
        repeated = 0
        for done, gathered in enumerate(executor.map(gather_part, gathers), 1):
            repeated += gathered.require_value()
            report("sorting a merge source", done, len(gathers))
        summary = KeyedSummary(
            " ".join(file.uri for file in self.sources.keyed(number).files),
            sum(piece.rows for piece in spread),
            sum(piece.bad_lines for piece in spread),
            sum(piece.null_keys for piece in spread),
            sum(piece.unknown_keys for piece in spread),
            repeated,
            parts,
            shards,
            tuple(sorted(slices)),
        )
        self.stores.put(target.summary_uri, msgspec.json.encode(summary))
        for uri in [*(info.uri for info in self.stores.list(f"{target.root}/runs/")), target.places_uri]:
            self.stores.delete(uri)
        return summary

    def read_summary(self, number: int) -> KeyedSummary | None:
        """Return what was found in the source of a merge, or None where it is not sorted yet."""
        try:
            return msgspec.json.decode(self.stores.get(self.target(number).summary_uri), type=KeyedSummary)
        except (NotFound, msgspec.DecodeError):
            return None

    def delete_superseded(self) -> None:
        """Delete sorted sources of other versions or generations."""
        keyed = [number for number, merge in enumerate(self.dataset.sidecar.merge) if merge.source is not None]
        kept = tuple(f"{self.target(number).root}/" for number in keyed)
        for info in list(self.stores.list(self.layout.merges_prefix)):
            if not info.uri.startswith(kept):
                self.stores.delete(info.uri)

    def shard_bases(self) -> tuple[tuple[Bucket, int], ...]:
        """Return the number, through all buckets, of the first shard of each bucket."""
        bases: dict[Bucket, int] = {}
        for ordinal, shard in enumerate(self.current.shards):
            bases.setdefault(shard.bucket, ordinal)
        return tuple(bases.items())
