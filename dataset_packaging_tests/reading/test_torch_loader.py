"""PyTorch's own DataLoader over packed shards: processes, places, transforms."""

import io
from collections import Counter
from pathlib import Path

import pytest
import torch
from PIL import Image

from dataset_packaging.reading import Batch, BatchReader, PackedDataset, ReadSettings
from dataset_packaging.reading.torch_loader import TorchBatches, TrainingLoader
from dataset_packaging_tests.small_dataset import pack, small_dataset, write_rows

ROWS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch")
    write_rows(folder, ROWS)
    pack(small_dataset(folder))
    return folder


def reader(folder: Path, **fields: object) -> BatchReader:
    return BatchReader(
        PackedDataset(str(folder / "out/main")), ReadSettings(**{"batch_size": 3, "run_bytes": 500} | fields)
    )


def as_tensors(batch: Batch) -> tuple[list[str], torch.Tensor]:
    pictures = [Image.open(io.BytesIO(image)) for image in batch["image"]]
    pixels = [torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8) for picture in pictures]
    shapes = [(picture.height, picture.width, 3) for picture in pictures]
    return batch["image_key"], torch.stack([p.view(shape) for p, shape in zip(pixels, shapes, strict=True)])


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_every_row_comes_once_over_any_number_of_workers(folder: Path, workers: int, lanes: int) -> None:
    loader = TrainingLoader(reader(folder, lanes=lanes), num_workers=workers)
    seen = Counter(key for batch in loader for key in batch["image_key"])
    assert seen == Counter({f"key-{number:04d}": 1 for number in range(ROWS)})
    assert len(loader) == len(reader(folder, lanes=lanes))


def test_workers_do_not_change_the_batches(folder: Path) -> None:
    def batches(workers: int) -> list[list[str]]:
        return [batch["image_key"] for batch in TrainingLoader(reader(folder, lanes=2), num_workers=workers)]

    assert batches(0) == batches(2)


@pytest.mark.parametrize("workers", [0, 2])
def test_training_goes_on_where_it_stopped_with_workers_ahead(folder: Path, workers: int) -> None:
    """What workers have prefetched but nobody has seen comes again."""
    whole = [batch["image_key"] for batch in TrainingLoader(reader(folder, lanes=2), num_workers=workers)]
    first = TrainingLoader(reader(folder, lanes=2), num_workers=workers)
    steps = iter(first)
    begun = [next(steps)["image_key"] for _ in range(5)]
    state = first.state_dict()
    del steps
    second = TrainingLoader(reader(folder, lanes=2), num_workers=2 - workers)
    second.load_state_dict(state)
    rest = [batch["image_key"] for batch in second]
    assert sorted(begun + rest) == sorted(whole)


def test_a_transform_runs_in_the_workers(folder: Path) -> None:
    for keys, pixels in TrainingLoader(reader(folder), num_workers=1, transform=as_tensors):
        assert pixels.shape[0] == len(keys)
        assert pixels.shape[1:] in {(64, 64, 3), (64, 96, 3), (600, 600, 3)}


def test_the_plain_dataset_works_in_a_plain_loader(folder: Path) -> None:
    loader = torch.utils.data.DataLoader(TorchBatches(reader(folder), as_tensors), batch_size=None)
    assert sum(pixels.shape[0] for _, _, _, (_, pixels) in loader) == ROWS
