"""PyTorch's DataLoader over a `BatchReader`: workers take lanes, and the place can be saved. Needs torch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from dataset_packaging.reading.batches import Batch, BatchReader


class TorchBatches(IterableDataset[Any]):  # type: ignore[misc]  # the type checker does not read torch
    """The batches of a reader as a dataset for `DataLoader(..., batch_size=None)`; each worker takes its own lanes.

    Args:
        reader: gives the batches.
        transform: turns a batch into what is trained on, in the worker; None: the batch itself.
    """

    def __init__(self, reader: BatchReader, transform: Callable[[Batch], Any] | None = None) -> None:
        self.reader = reader
        self.transform = transform

    def __iter__(self) -> Iterator[tuple[int, int, int, Any]]:
        """Yield (epoch, lane, number, batch or what the transform makes of it)."""
        worker = get_worker_info()
        lanes = range(self.reader.settings.lanes)
        if worker is not None:
            lanes = lanes[worker.id :: worker.num_workers]
        for batch in self.reader.iterate(lanes):
            yield batch.epoch, batch.lane, batch.number, batch if self.transform is None else self.transform(batch)


class TrainingLoader:
    """Iterates over the batches of one rank with worker processes; one `for` is one epoch.

    Args:
        reader: gives the batches; `lanes` should be a multiple of the workers.
        num_workers: processes; 0 reads in this one.
        transform: turns a batch into what is trained on, in the worker; must be picklable.
        prefetch_factor: batches that each worker is ahead.
        pin_memory: as DataLoader has it.
    """

    def __init__(
        self,
        reader: BatchReader,
        num_workers: int = 0,
        transform: Callable[[Batch], Any] | None = None,
        prefetch_factor: int = 2,
        pin_memory: bool = False,
    ) -> None:
        self.reader = reader
        self.num_workers = num_workers
        self.transform = transform
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory

    def __len__(self) -> int:
        return len(self.reader)

    def __iter__(self) -> Iterator[Any]:
        self.reader.index  # noqa: B018  (read once here, so that workers get it)
        loader = DataLoader(
            TorchBatches(self.reader, self.transform),
            batch_size=None,
            num_workers=self.num_workers,
            collate_fn=_as_it_is,
            prefetch_factor=self.prefetch_factor if self.num_workers else None,
            pin_memory=self.pin_memory,
        )
        for epoch, lane, number, batch in loader:
            self.reader.mark_place(epoch, lane, number)
            yield batch
        self.reader.next_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Return where training stands: after the last batch that was yielded."""
        return self.reader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another loader stood; see `BatchReader.load_state_dict`."""
        self.reader.load_state_dict(state)


def _as_it_is(batch: Any) -> Any:
    return batch
