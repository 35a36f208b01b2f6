"""Reading packed datasets for training: batches of one bucket across ranks and workers, and single rows.

Imports neither torch nor what packs datasets; `dataset_packaging.reading.torch_loader` is for PyTorch's DataLoader.
"""

from dataset_packaging.io.block_index import BlockIndex, load_block_index, read_block_index, write_block_index
from dataset_packaging.reading.batches import Batch, BatchReader, PackedDataset
from dataset_packaging.reading.epoch_plan import BucketReport, ReadSettings
from dataset_packaging.reading.rows import RowReader

__all__ = [
    "Batch",
    "BatchReader",
    "BlockIndex",
    "BucketReport",
    "PackedDataset",
    "ReadSettings",
    "RowReader",
    "load_block_index",
    "read_block_index",
    "write_block_index",
]
