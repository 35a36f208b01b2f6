"""What of the generations can still be relied on, and what a new one grows from where files are damaged. Reads only.

Places stand twice (index and placement), so that one damaged file of a bucket costs nothing. Where more is lost, the
generation before is replayed with the same relocations: from the same manifest the same places follow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dataset_packaging.core.bucketing import BUCKETS, Bucket
from dataset_packaging.core.invariants import Finding
from dataset_packaging.errors import IndexDamaged, NotFound, ObjectDamaged
from dataset_packaging.io.parquet import read_table
from dataset_packaging.io.store import ObjectInfo
from dataset_packaging.packing.generation import (
    GenerationSummary,
    Published,
    WorkFile,
    generation_numbers,
    read_current_number,
    read_generation,
    read_summary,
)
from dataset_packaging.packing.generation_builder import Ancestor
from dataset_packaging.packing.index_schema import RELOCATIONS_SCHEMA
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import same_object

_REMEDY = "run pack again: it is rebuilt"


@dataclass(frozen=True, slots=True)
class Standing:
    """The generations of a dataset as they stand.

    Attributes:
        readable: the published one where its plan can be read, sound or not; None where there is none.
        known: the newest summary that can be read, or None.
        last_number: the highest number that is in use, 0 where there is none.
        ancestor: what a new generation grows from, or None: from nothing.
        relocations: rows that left their places between ancestor and the published generation, to be replayed.
        damage: what is wrong, one finding per file.
        damaged_uris: the files of the published generation that are missing or damaged.
        is_published: whether the pointer names the generation.
    """

    readable: Published | None
    known: GenerationSummary | None
    last_number: int
    ancestor: Ancestor | None
    relocations: pa.Table
    damage: tuple[Finding, ...]
    damaged_uris: frozenset[str]
    is_published: bool

    @property
    def current(self) -> Published | None:
        """The published generation where all its files are sound, or None."""
        return None if self.damaged_uris else self.readable


def read_standing(run: Run) -> Standing:
    """Looks at the pointer, the summary and every recorded file of the published generation.

    Where the pointer is lost, the newest generation that is complete takes its place: its summary was written last.
    """
    none = RELOCATIONS_SCHEMA.empty_table()
    present = {info.uri: info for info in run.stores.list(run.layout.generations_prefix)}
    numbers = generation_numbers(run.layout, present)
    number, damage = _published_number(run, numbers)
    is_published = number is not None and not damage
    if number is None:
        last_number = numbers[0] if numbers else 0
        return Standing(None, None, last_number, None, none, damage, frozenset(), False)
    last_number = max([number, *numbers])
    summary = _summary(run, number)
    if summary is None:
        uri = run.layout.generation(number).summary_uri
        ancestor = _first_sound(run, present, (each for each in numbers if each < number))
        known = ancestor.summary if ancestor else None
        damage += (_finding(f"{uri} is missing or damaged; {_REMEDY}"),)
        return Standing(
            None, known, last_number, ancestor, _replayed(run, number), damage, frozenset({uri}), is_published
        )
    damaged = _damaged_files(run, summary, present)
    damage += tuple(_finding(f"{file.uri} is missing or damaged; {_REMEDY}", file) for file in damaged)
    ancestor, relocations = _ancestor(run, summary, damaged), none
    if ancestor is None:
        ancestor = _first_sound(run, present, [summary.prior] if summary.prior is not None else [])
        relocations = _replayed(run, number)
    lost = frozenset(file.uri for file in damaged)
    readable = None if run.layout.generation(number).plan_uri in lost else _readable(run, number)
    return Standing(readable, summary, last_number, ancestor, relocations, damage, lost, is_published)


def _published_number(run: Run, numbers: Sequence[int]) -> tuple[int | None, tuple[Finding, ...]]:
    """Returns which generation is published, or should be, and what is wrong with the pointer."""
    try:
        number = read_current_number(run.stores, run.layout)
    except IndexDamaged as error:
        number, problem = None, str(error)
    else:
        problem = f"{run.layout.current_uri} is missing; {_REMEDY}"
    if number is not None:
        return number, ()
    complete = next((each for each in numbers if _summary(run, each) is not None), None)
    is_new = complete is None and "missing" in problem
    return complete, () if is_new else (_finding(problem),)


def _readable(run: Run, number: int) -> Published | None:
    try:
        return read_generation(run.stores, run.layout, number)
    except IndexDamaged:
        return None


def _damaged_files(run: Run, summary: GenerationSummary, present: Mapping[str, ObjectInfo]) -> list[WorkFile]:
    """Returns the recorded files of a generation that are missing or not as they were written."""
    return [file for file in summary.files if same_object(run.stores, present.get(file.uri), file.object) is None]


def _ancestor(run: Run, summary: GenerationSummary, damaged: list[WorkFile]) -> Ancestor | None:
    """Returns the generation as one to grow from, or None where too much of it is damaged."""
    layout = run.layout.generation(summary.number)
    lost = {file.uri for file in damaged}
    if layout.corrections_uri in lost:
        return None
    places: list[tuple[int, str]] = []
    for record in summary.buckets:
        bucket = Bucket.parse(record.bucket)
        if layout.tombstones_uri(bucket) in lost:
            return None
        sound = [uri for uri in (layout.placement_uri(bucket), layout.index_uri(bucket)) if uri not in lost]
        if not sound:
            return None
        if record.shards:
            places.append((BUCKETS.index(bucket), sound[0]))
    return Ancestor(summary, layout, tuple(places))


def _first_sound(run: Run, present: Mapping[str, ObjectInfo], numbers: Iterable[int]) -> Ancestor | None:
    for number in numbers:
        summary = _summary(run, number)
        ancestor = None if summary is None else _ancestor(run, summary, _damaged_files(run, summary, present))
        if ancestor is not None:
            return ancestor
    return None


def _replayed(run: Run, number: int) -> pa.Table:
    """Returns the relocations of a generation; where they are lost, the rows move once more after the next round."""
    try:
        return read_table(run.stores, run.layout.generation(number).relocations_uri)
    except (NotFound, ObjectDamaged):
        return RELOCATIONS_SCHEMA.empty_table()


def _summary(run: Run, number: int) -> GenerationSummary | None:
    try:
        return read_summary(run.stores, run.layout, number)
    except IndexDamaged:
        return None


def _finding(detail: str, file: WorkFile | None = None) -> Finding:
    return Finding("work_files", file.bucket if file else None, None, detail)
