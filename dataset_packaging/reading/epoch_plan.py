"""Which rows make which batch in an epoch: batches of one bucket, for all ranks at once. Pure.

A *step* is one batch on every rank, all of the same bucket. The rows of a bucket, its row groups in a random order, are
cut into one segment for each rank; consecutive steps of a segment form a *run*, whose rows are shuffled among
themselves: a run is what is read at once. Runs of all buckets are dealt to *lanes*, one or more for each worker; a lane
takes its steps from a few runs at a time. So every rank reads row groups of its own, every worker runs of its own, and
the plan follows from seed, epoch and settings alone: nobody has to be asked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Literal

import numpy as np
import numpy.typing as npt

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.shard_plan import combined_fingerprint
from dataset_packaging.errors import ConfigError
from dataset_packaging.reading.order import random_words, seed_of, shuffled

Remainder = Literal["drop", "pad", "carry"]
REMAINDERS: tuple[Remainder, ...] = ("drop", "pad", "carry")

MIX = 3
"""Runs that a lane draws its steps from."""

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What decides about the batches of an epoch; the same on all ranks.

    Attributes:
        batch_size: rows of one batch on one rank.
        world_size: number of ranks.
        seed: another seed, another order.
        remainder: what becomes of the rows of a bucket that fill no step. drop: they are left out; pad: a last step is
            filled up with rows that are repeated and marked; carry: a last step carries them in smaller batches.
        weights: how often the rows of a bucket come in an epoch, by bucket key: 1 where nothing is said, 0 never, 0.5
            every other row, 2.5 each row twice and every other a third time.
        shuffle: whether orders are random; without it rows come bucket by bucket as they stand.
        lanes: into how many sequences the steps are dealt; best the number of workers.
        run_bytes: about so many bytes are read at once and shuffled among themselves.
    """

    batch_size: int
    world_size: int = 1
    seed: int = 0
    remainder: Remainder = "carry"
    weights: Mapping[str, float] | None = None
    shuffle: bool = True
    lanes: int = 1
    run_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("batch_size", "world_size", "lanes", "run_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.remainder not in REMAINDERS:
            raise ConfigError(f"remainder: expected one of {', '.join(REMAINDERS)}, got {self.remainder!r}")
        for key, weight in (self.weights or {}).items():
            try:
                Bucket.parse(key)
            except ValueError as error:
                raise ConfigError(f"weights: {error}") from None
            if not 0 <= weight < 1e6:
                raise ConfigError(f"weights: {key}: expected a number from 0 on, got {weight}")

    def weight_of(self, bucket: str) -> float:
        """Return how often the rows of a bucket come in an epoch."""
        return float((self.weights or {}).get(bucket, 1.0))


@dataclass(frozen=True, slots=True)
class BucketBlocks:
    """The row groups of a bucket.

    Attributes:
        bucket: its key.
        rows: of each row group, in order of shards and row groups.
        bytes: of each row group.
    """

    bucket: str
    rows: I64
    bytes: I64


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive steps of one bucket: [first, first + steps). `rest`: the one step of what fills no whole one."""

    bucket: int
    first: int
    steps: int
    rest: bool = False


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What an epoch does with the rows of a bucket, over all ranks.

    Attributes:
        rows: of the dataset.
        delivered: rows in batches, padding apart; those that a weight repeats count each time.
        dropped: rows that fill no step, under `drop`.
        padded: rows that are repeated to fill a batch.
        short: rows in batches that are smaller than the others, under `carry`.
        left_out: rows that a weight below 1 leaves out of this epoch.
        steps: batches of each rank.
    """

    rows: int
    delivered: int
    dropped: int
    padded: int
    short: int
    left_out: int
    steps: int


@dataclass(frozen=True, slots=True)
class _Stream:
    """The rows of a bucket in an epoch: passes over its row groups, the last one maybe not to its end.

    Attributes:
        passes: for each, the order of the row groups.
        rows: of all passes together.
    """

    blocks: BucketBlocks
    passes: tuple[I64, ...]
    rows: int

    def locate(self, positions: I64) -> tuple[I64, I64]:
        """Return the row group of each position of the stream, and the row within it."""
        total = int(self.blocks.rows.sum())
        block = np.empty_like(positions)
        row = np.empty_like(positions)
        for number, order in enumerate(self.passes):
            inside = positions // total == number
            within = positions[inside] % total
            ends = np.cumsum(self.blocks.rows[order])
            place = np.searchsorted(ends, within, "right")
            block[inside] = order[place]
            row[inside] = within - (ends[place] - self.blocks.rows[order][place])
        return block, row


@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows of a run on one rank, in the order of its batches.

    Attributes:
        block: row group of each row.
        row: its number within the row group.
        padding: whether the row is there only to fill a batch.
        size: rows of each batch.
    """

    block: I64
    row: I64
    padding: npt.NDArray[np.bool_]
    size: int


class EpochPlan:
    """All batches of one epoch; the same on every rank and worker."""

    def __init__(self, buckets: Sequence[BucketBlocks], settings: ReadSettings, epoch: int) -> None:
        self.buckets = tuple(buckets)
        self.settings = settings
        self.epoch = epoch

    @cached_property
    def streams(self) -> tuple[_Stream, ...]:
        """The rows of each bucket, in the order of this epoch."""
        return tuple(self._stream(blocks) for blocks in self.buckets)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order in which lanes take them."""
        found: list[Run] = []
        for number, stream in enumerate(self.streams):
            whole, left = divmod(stream.rows, self._step_rows)
            run_steps = self._run_steps(stream.blocks)
            found += [Run(number, first, min(run_steps, whole - first)) for first in range(0, whole, run_steps)]
            if left and self.settings.remainder != "drop":
                found.append(Run(number, whole, 1, rest=True))
        if not self.settings.shuffle:
            return tuple(found)
        return tuple(found[at] for at in shuffled(self._seed("runs"), len(found)))

    @cached_property
    def lanes(self) -> tuple[tuple[int, ...], ...]:
        """For each lane, which run each of its steps belongs to; the steps of a run come in order."""
        dealt: list[list[int]] = [[] for _ in range(self.settings.lanes)]
        steps = [0] * self.settings.lanes
        for number, run in enumerate(self.runs):
            lane = steps.index(min(steps))
            dealt[lane].append(number)
            steps[lane] += run.steps
        return tuple(tuple(self._interleave(lane, numbers)) for lane, numbers in enumerate(dealt))

    @property
    def steps(self) -> int:
        """Batches of each rank."""
        return sum(run.steps for run in self.runs)

    def rows_of(self, run: Run, rank: int) -> RunRows:
        """Return the rows of a run on one rank."""
        stream = self.streams[run.bucket]
        batch = self.settings.batch_size
        whole = stream.rows // self._step_rows
        if run.rest:
            return self._rest_of(stream, whole * self._step_rows, rank)
        start = rank * whole * batch + run.first * batch
        positions = np.arange(start, start + run.steps * batch, dtype=np.int64)
        if self.settings.shuffle:
            seed = self._seed("rows", stream.blocks.bucket, rank, run.first)
            positions = positions[shuffled(seed, len(positions))]
        return RunRows(*stream.locate(positions), np.zeros(len(positions), bool), batch)

    def report(self) -> dict[str, BucketReport]:
        """Return what becomes of the rows of each bucket."""
        return {blocks.bucket: self._report(number) for number, blocks in enumerate(self.buckets)}

    def fingerprint(self) -> str:
        """Return what must be equal for two plans to have the same batches; ranks and epochs apart."""
        settings = self.settings
        weights = sorted((key, float(weight)) for key, weight in (settings.weights or {}).items())
        return combined_fingerprint(
            *(str(getattr(settings, name)) for name in ("batch_size", "world_size", "seed", "remainder", "shuffle")),
            *(str(getattr(settings, name)) for name in ("lanes", "run_bytes")),
            repr(weights),
            *(f"{blocks.bucket} {blocks.rows.tolist()} {blocks.bytes.tolist()}" for blocks in self.buckets),
        )

    @property
    def _step_rows(self) -> int:
        return self.settings.batch_size * self.settings.world_size

    def _seed(self, *parts: int | str) -> int:
        return seed_of(self.settings.seed, self.epoch, *parts)

    def _stream(self, blocks: BucketBlocks) -> _Stream:
        total = int(blocks.rows.sum())
        weight = self.settings.weight_of(blocks.bucket)
        rows = int(weight) * total + round((weight - int(weight)) * total)
        count = -(-rows // total) if total else 0
        orders = [
            shuffled(self._seed("blocks", blocks.bucket, number), len(blocks.rows))
            if self.settings.shuffle
            else np.arange(len(blocks.rows))
            for number in range(count)
        ]
        return _Stream(blocks, tuple(orders), rows)

    def _run_steps(self, blocks: BucketBlocks) -> int:
        row_bytes = max(1.0, float(blocks.bytes.sum()) / max(1, int(blocks.rows.sum())))
        return max(1, int(self.settings.run_bytes / (row_bytes * self.settings.batch_size)))

    def _rest_of(self, stream: _Stream, start: int, rank: int) -> RunRows:
        """Return the share of a rank in the rows that fill no step: even, and at least one row, padding or not."""
        left = stream.rows - start
        first, last = (number * left // self.settings.world_size for number in (rank, rank + 1))
        share = np.arange(start + first, start + last, dtype=np.int64)
        size = self.settings.batch_size if self.settings.remainder == "pad" else max(1, len(share))
        extra = start + (last + np.arange(size - len(share))) % left
        padding = np.arange(size) >= len(share)
        return RunRows(*stream.locate(np.concatenate([share, extra])), padding, size)

    def _interleave(self, lane: int, numbers: Sequence[int]) -> Iterator[int]:
        """Yield the run of each step of a lane: drawn from the few runs that are open, until all are used up."""
        waiting = iter(numbers)
        mix = MIX if self.settings.shuffle else 1
        live = [[number, self.runs[number].steps] for number in islice(waiting, mix)]
        words = random_words(self._seed("lane", lane), sum(self.runs[number].steps for number in numbers))
        for word in words:
            entry = live[int(word) % len(live)]
            entry[1] -= 1
            yield entry[0]
            if not entry[1]:
                following = next(waiting, None)
                if following is None:
                    live.remove(entry)
                else:
                    entry[:] = [following, self.runs[following].steps]

    def _report(self, number: int) -> BucketReport:
        stream = self.streams[number]
        total = int(stream.blocks.rows.sum())
        whole, left = divmod(stream.rows, self._step_rows)
        steps = whole + (1 if left and self.settings.remainder != "drop" else 0)
        dropped = padded = short = 0
        if left and self.settings.remainder == "drop":
            dropped = left
        elif left and self.settings.remainder == "pad":
            padded = self._step_rows - left
        elif left:
            padded, short = max(0, self.settings.world_size - left), left
        left_out = max(0, total - stream.rows)
        return BucketReport(total, stream.rows - dropped, dropped, padded, short, left_out, steps)
