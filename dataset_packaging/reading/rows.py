"""Single rows of a packed dataset, found by the index of its row groups: one request each."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.reading.batches import PackedDataset
from dataset_packaging.reading.blocks import Block, BlockReader


class RowReader:
    """A packed dataset as a sequence of rows, by bucket, shard and place in the shard.

    Keeps the last row groups, so that neighbours cost no second request. One thread at a time.

    Args:
        dataset: where it stands.
        columns: to take from the shards (`image_key` always comes along); None: all.
        sidecar_columns: to take from the sidecars.
        kept_blocks: row groups to keep, at least 1.
    """

    def __init__(
        self,
        dataset: PackedDataset,
        columns: Sequence[str] | None = None,
        sidecar_columns: Sequence[str] = (),
        kept_blocks: int = 2,
    ) -> None:
        self.dataset = dataset
        self.columns = columns
        self.sidecar_columns = tuple(sidecar_columns)
        self.kept_blocks = kept_blocks
        self._kept: OrderedDict[int, Block] = OrderedDict()

    @cached_property
    def blocks(self) -> BlockReader:
        """Reads the row groups; the index is read when this is first asked for."""
        stores = self.dataset.stores()
        index = self.dataset.read_index(stores)
        return self.dataset.block_reader(stores, index, self.columns, self.sidecar_columns)

    @cached_property
    def _ends(self) -> Any:
        return np.cumsum(self.blocks.index.numbers("rows"))

    def __len__(self) -> int:
        return self.blocks.index.rows

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return row `number` of the dataset, negative ones from its end. Raises IndexError beyond it."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"row {number} of {len(self)}")
        number %= len(self)
        block = int(np.searchsorted(self._ends, number, "right"))
        first = int(self._ends[block]) - int(self.blocks.index.numbers("rows")[block])
        return self._row(block, number - first)

    def row(self, bucket: str, shard: int, position: int) -> dict[str, Any]:
        """Return the row at a position of a shard. Raises IndexError where there is none, ValueError for no bucket."""
        index = self.blocks.index
        at = index.of_bucket(Bucket.parse(bucket).key)
        first = index.numbers("first_row")[at]
        rows = index.numbers("rows")[at]
        inside = (index.numbers("shard")[at] == shard) & (first <= position) & (position < first + rows)
        if not inside.any():
            raise IndexError(f"there is no row {position} in shard {shard} of {bucket}")
        found = int(np.flatnonzero(inside)[0])
        return self._row(int(at[found]), position - int(first[found]))

    def _row(self, block: int, row: int) -> dict[str, Any]:
        if block not in self._kept:
            self._kept[block] = self.blocks.read(block)
            while len(self._kept) > self.kept_blocks:
                self._kept.popitem(last=False)
        self._kept.move_to_end(block)
        values = {name: column[row] for name, column in self._kept[block].columns.items()}
        return {name: bytes(v) if isinstance(v, memoryview) else v for name, v in values.items()}
