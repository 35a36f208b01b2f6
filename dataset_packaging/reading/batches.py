"""Batches for training: of one bucket each, the same buckets on all ranks, from where an earlier run stopped."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dataset_packaging.config import S3Config
from dataset_packaging.core.schema import IMAGE_COLUMN
from dataset_packaging.core.uris import absolute_uri
from dataset_packaging.errors import ConfigError
from dataset_packaging.io.block_index import BlockIndex, load_block_index, read_block_index
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.reading.blocks import BlockReader
from dataset_packaging.reading.epoch_plan import MIX, BucketBlocks, BucketReport, EpochPlan, ReadSettings, RunRows

STATE_VERSION = 1
_READ_THREADS = 2


@dataclass(frozen=True, slots=True)
class PackedDataset:
    """Where a packed dataset stands.

    Attributes:
        output_prefix: of the shards; a path or s3://.
        sidecar_prefix: of the sidecars, if any of their columns is wanted.
        index_uri: an index of the row groups that was written before (`write_block_index`); without one the footers of
            all shards are read.
        s3: how S3 is reached.
    """

    output_prefix: str
    sidecar_prefix: str | None = None
    index_uri: str | None = None
    s3: S3Config = field(default_factory=S3Config)

    def stores(self) -> Stores:
        """Return stores that only read; nothing is opened yet."""
        return Stores(StorageConfig(self.s3, None, ()))

    def read_index(self, stores: Stores) -> BlockIndex:
        """Read where every row group stands. Raises as `read_block_index` and `load_block_index` do."""
        prefix = _absolute(self.output_prefix)
        if self.index_uri is None:
            return read_block_index(stores, prefix)
        return load_block_index(stores, _absolute(self.index_uri), prefix)

    def block_reader(
        self, stores: Stores, index: BlockIndex, columns: Sequence[str] | None, sidecar_columns: Sequence[str]
    ) -> BlockReader:
        """Return a reader of row groups. Raises ConfigError where sidecars are wanted and none are named."""
        if sidecar_columns and self.sidecar_prefix is None:
            raise ConfigError(f"sidecar_prefix: needed for the sidecar columns {', '.join(sidecar_columns)}")
        side = None if self.sidecar_prefix is None else _absolute(self.sidecar_prefix)
        return BlockReader(stores, index, side, columns, sidecar_columns)


def _absolute(text: str) -> str:
    try:
        return absolute_uri(text, Path.cwd())
    except ValueError as error:
        raise ConfigError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one bucket.

    Attributes:
        bucket: its key, such as `512_1024/10000`.
        epoch: that the batch is part of.
        columns: a list by column; images are bytes as they stand in the shard.
        padding: which rows are repeated only to fill the batch.
        lane, number: the place in the epoch; `BatchReader.mark` wants it.
    """

    bucket: str
    epoch: int
    columns: dict[str, list[Any]]
    padding: list[bool]
    lane: int
    number: int

    def __len__(self) -> int:
        return len(self.padding)

    def __getitem__(self, column: str) -> list[Any]:
        return self.columns[column]


@dataclass(slots=True)
class _LoadedRun:
    """The rows of a run, in the order of its batches."""

    rows: RunRows
    columns: dict[str, list[Any]]
    taken: int = 0


class BatchReader:
    """Iterates over the batches of one rank, epoch after epoch.

    Iterating yields what is left of the present epoch and then goes on to the next one, so that one `for` is one epoch.
    The same settings, seed and epoch give the same batches; see `epoch_plan`. Memory: for each lane that is read here,
    four runs of `run_bytes`, and two row groups.

    Args:
        dataset: where it stands.
        settings: the same on all ranks.
        rank: of this process, from 0.
        columns: to take from the shards (`image_key` always comes along); None: all.
        sidecar_columns: to take from the sidecars, joined by row; they win where names are the same.
    """

    def __init__(
        self,
        dataset: PackedDataset,
        settings: ReadSettings,
        *,
        rank: int = 0,
        columns: Sequence[str] | None = (IMAGE_COLUMN,),
        sidecar_columns: Sequence[str] = (),
    ) -> None:
        if not 0 <= rank < settings.world_size:
            raise ConfigError(f"rank: expected 0 to {settings.world_size - 1}, got {rank}")
        self.dataset = dataset
        self.settings = settings
        self.rank = rank
        self.columns = columns
        self.sidecar_columns = tuple(sidecar_columns)
        self.epoch = 0
        self._done = [0] * settings.lanes

    @cached_property
    def blocks(self) -> BlockReader:
        """Reads the row groups; the index is read when this is first asked for."""
        stores = self.dataset.stores()
        index = self.dataset.read_index(stores)
        return self.dataset.block_reader(stores, index, self.columns, self.sidecar_columns)

    @property
    def index(self) -> BlockIndex:
        """Where every row group stands."""
        return self.blocks.index

    @cached_property
    def _numbers(self) -> dict[str, Any]:
        return {key: self.index.of_bucket(key) for key in self.index.buckets}

    def plan(self, epoch: int | None = None) -> EpochPlan:
        """Return the batches of an epoch, the present one by default."""
        rows, sizes = self.index.numbers("rows"), self.index.numbers("bytes")
        buckets = [BucketBlocks(key, rows[at], sizes[at]) for key, at in self._numbers.items()]
        return EpochPlan(buckets, self.settings, self.epoch if epoch is None else epoch)

    def report(self, epoch: int | None = None) -> dict[str, BucketReport]:
        """Return what an epoch does with the rows of each bucket: delivered, dropped, padded, in short batches."""
        return self.plan(epoch).report()

    def __len__(self) -> int:
        return self.plan().steps

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.iterate(range(self.settings.lanes)):
            self.mark(batch)
            yield batch
        self.next_epoch()

    def next_epoch(self) -> None:
        """Go to the start of the next epoch."""
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self.epoch = epoch
        self._done = [0] * self.settings.lanes

    def mark(self, batch: Batch) -> None:
        """Note that a batch was used: the next iteration begins after it. Batches of a lane come in order."""
        self.mark_place(batch.epoch, batch.lane, batch.number)

    def mark_place(self, epoch: int, lane: int, number: int) -> None:
        """Note that the batch at a place was used; see `mark`."""
        if epoch == self.epoch:
            self._done[lane] = number + 1

    def state_dict(self) -> dict[str, Any]:
        """Return where the reader stands, as plain data; the same on all ranks."""
        return {
            "version": STATE_VERSION,
            "epoch": self.epoch,
            "done": list(self._done),
            "fingerprint": self.plan().fingerprint(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another reader stood.

        Raises ConfigError where dataset or settings are others: the same batches would not come again.
        """
        if state.get("version") != STATE_VERSION or len(state.get("done", ())) != self.settings.lanes:
            raise ConfigError("this is no state of a reader with these settings")
        if state["fingerprint"] != self.plan().fingerprint():
            raise ConfigError(
                "the state was made with other settings or another dataset: batches would be missed or repeated; "
                "use the same batch_size, world_size, seed, remainder, weights, lanes and run_bytes, or begin an epoch"
            )
        self.epoch = int(state["epoch"])
        self._done = [int(count) for count in state["done"]]

    def iterate(self, lanes: Sequence[int]) -> Iterator[Batch]:
        """Yield what is left of the present epoch in some of the lanes, one batch of each in turn; marks nothing."""
        plan = self.plan()
        with ThreadPoolExecutor(_READ_THREADS, "row-groups") as pool:
            left = [lane for lane in lanes if self._done[lane] < len(plan.lanes[lane])]
            turn = next((at for at in range(1, len(left)) if self._done[left[at]] < self._done[left[at - 1]]), 0)
            live = [self._iterate_lane(plan, lane, self._done[lane], pool) for lane in left[turn:] + left[:turn]]
            try:
                while live:
                    for batches in list(live):
                        batch = next(batches, None)
                        if batch is None:
                            live.remove(batches)
                        else:
                            yield batch
            finally:
                for batches in live:
                    batches.close()

    def _iterate_lane(
        self, plan: EpochPlan, lane: int, done: int, pool: ThreadPoolExecutor
    ) -> Generator[Batch, None, None]:
        steps = plan.lanes[lane]
        taken: dict[int, int] = {}
        for run in steps[:done]:
            taken[run] = taken.get(run, 0) + 1
        ahead = iter(dict.fromkeys(steps[done:]))
        left = {run: plan.runs[run].steps - taken.get(run, 0) for run in dict.fromkeys(steps[done:])}
        loading: dict[int, Future[_LoadedRun]] = {}
        try:
            for number, run in enumerate(steps[done:], done):
                while len(loading) <= MIX and (following := next(ahead, None)) is not None:
                    loading[following] = pool.submit(self._load_run, plan, following, taken.get(following, 0))
                loaded = loading[run].result()
                yield self._cut(plan, run, loaded, lane, number)
                left[run] -= 1
                if not left[run]:
                    del loading[run]
        finally:
            for future in loading.values():
                future.cancel()

    def _load_run(self, plan: EpochPlan, number: int, taken: int) -> _LoadedRun:
        """Reads the rows of a run that are still to come, each row group once."""
        run = plan.runs[number]
        rows = plan.rows_of(run, self.rank)
        start = taken * rows.size
        wanted, order = rows.block[start:], rows.row[start:]
        blocks = self._numbers[plan.buckets[run.bucket].bucket]
        columns: dict[str, list[Any]] = {}
        for block in np.unique(wanted):
            values = self.blocks.read(int(blocks[block])).columns
            if not columns:
                columns = {name: [None] * (start + len(wanted)) for name in values}
            for at in np.flatnonzero(wanted == block):
                row = order[at]
                for name, column in values.items():
                    value = column[row]
                    columns[name][start + at] = bytes(value) if isinstance(value, memoryview) else value
        return _LoadedRun(rows, columns, taken)

    def _cut(self, plan: EpochPlan, number: int, loaded: _LoadedRun, lane: int, place: int) -> Batch:
        start = loaded.taken * loaded.rows.size
        end = start + loaded.rows.size
        loaded.taken += 1
        columns = {name: values[start:end] for name, values in loaded.columns.items()}
        for values in loaded.columns.values():
            values[start:end] = [None] * (end - start)
        padding = loaded.rows.padding[start:end].tolist()
        return Batch(plan.buckets[plan.runs[number].bucket].bucket, plan.epoch, columns, padding, lane, place)
