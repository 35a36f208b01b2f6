"""Row groups and shards are bounded in bytes, and nobody ever holds more than one of them."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.config import parse_dataset
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.invariants import find_storage_faults
from dataset_packaging.core.schema import IMAGE_COLUMN, MAIN_SCHEMA
from dataset_packaging.errors import ConfigError
from dataset_packaging.imaging.verify import Verdict
from dataset_packaging.io.parquet import shard_writer
from dataset_packaging.packing.decoder import CheckedImage
from dataset_packaging.packing.shard_contents import ShardContents
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset, Row, pack

MEBIBYTE = 1 << 20
LARGEST_ARRAY_BYTES = 2**31 - 1
PAGE_AND_TEXT_BYTES = 4096  # of a row of these tests: page headers, and the other columns


def test_row_groups_are_cut_by_bytes_and_a_lone_row_has_its_shard(tmp_path: Path) -> None:
    """PQ-04: a default number of rows makes row groups of gigabytes from images."""
    target = 8192
    dataset = PhotoDataset(tmp_path, settings={"shard_size": 16, "row_group_bytes": target})
    dataset.add_photos(40)
    alone = dataset.add_photos(1, size=(400, 40))[0]
    pack(dataset)
    counts = []
    for key in dataset.shards():
        file = pq.ParquetFile(dataset.packed / "main" / key)
        for number in range(file.metadata.num_row_groups):
            sizes = [len(image) for image in file.read_row_group(number, [IMAGE_COLUMN])[IMAGE_COLUMN].to_pylist()]
            assert sum(sizes[:-1]) < target
            size = file.metadata.row_group(number).total_byte_size
            assert size <= target + max(sizes) + PAGE_AND_TEXT_BYTES * len(sizes)
        counts.append(file.metadata.num_row_groups)
    assert max(counts) > 1
    lone = pq.read_table(dataset.packed / "main" / "0_512" / "40000" / "shard-000000.parquet")
    assert lone["image_key"].to_pylist() == [alone.key]


def test_shards_are_cut_by_bytes_before_their_rows_are_full(tmp_path: Path) -> None:
    """PQ-04: `max_shard_bytes` bounds what the plan puts into one shard where sizes are known."""
    dataset = PhotoDataset(tmp_path, settings={"shard_size": 1000, "more": ""})
    for row in dataset.add_photos(12, size=(96, 96)):
        row.extra["bytes"] = dataset.image_path(row.path).stat().st_size
    config = dataset.config()
    bound = 4 * max(dataset.image_path(row.path).stat().st_size for row in dataset.rows if isinstance(row, Row))
    small = config.model_copy(update={"packing": config.packing.model_copy(update={"max_shard_bytes": bound})})
    pack(small)
    assert len(dataset.shards()) > 1
    for key in dataset.shards():
        images = pq.read_table(dataset.packed / "main" / key, columns=[IMAGE_COLUMN])[IMAGE_COLUMN].to_pylist()
        assert sum(map(len, images)) <= bound


def test_more_images_than_one_arrow_array_can_address_become_several() -> None:
    """PQ-03: 32-bit offsets overflow at 2 GiB; no array comes near, whatever the target of a row group."""
    image = memoryview(bytes(64 * MEBIBYTE))
    count = 36  # 2.25 GiB, all in one buffer
    groups: list[pa.Table] = []
    writer = SimpleNamespace(write_table=lambda table, row_group_size: groups.append(table))
    contents = _contents(count, row_group_bytes=LARGEST_ARRAY_BYTES, writer=writer)
    for row in range(count):
        contents.add(row, _checked(image))
    contents.flush()
    assert sum(len(group) for group in groups) == count
    assert contents.image_bytes == count * len(image) > LARGEST_ARRAY_BYTES
    for group in groups:
        assert all(chunk.nbytes <= LARGEST_ARRAY_BYTES for chunk in group[IMAGE_COLUMN].chunks)


@pytest.mark.parametrize("setting", ["images: {max_bytes: 2147483648}", "packing: {row_group_bytes: 2147483648}"])
def test_a_limit_above_what_an_array_can_hold_is_refused(setting: str, tmp_path: Path) -> None:
    """PQ-03: one image above 2 GiB could never be written; a larger limit would let it come that far."""
    text = f"name: large\nmanifest: a.jsonl\noutput_prefix: out\n{setting}\n"
    with pytest.raises(ConfigError, match="2147483647"):
        parse_dataset(text, "large.yaml", tmp_path, {})


def test_blobs_are_in_neither_statistics_nor_dictionary() -> None:
    """PQ-05: Arrow leaves blobs above 4,096 bytes out of the statistics by itself, and puts smaller ones in."""
    footers = {}
    for size in (100, 3000):
        sink = pa.BufferOutputStream()
        with shard_writer(sink, MAIN_SCHEMA, IMAGE_COLUMN) as writer:
            contents = _contents(50, row_group_bytes=MEBIBYTE, writer=writer)
            for row in range(50):
                contents.add(row, _checked(memoryview(bytes([row]) * size)))
            contents.flush()
        metadata = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata
        assert find_storage_faults(metadata) == []
        column = metadata.row_group(0).column(MAIN_SCHEMA.get_field_index(IMAGE_COLUMN))
        assert (column.statistics, column.compression) == (None, "ZSTD")
        assert not any("DICTIONARY" in encoding for encoding in column.encodings)
        footers[size] = metadata.serialized_size
    assert abs(footers[3000] - footers[100]) < 32  # numbers of a few more digits, no bytes of images


def _contents(count: int, row_group_bytes: int, writer: object) -> ShardContents:
    texts = {"image_key": [f"k{row}" for row in range(count)], "s3_image_path": ["s3://b/k"] * count}
    columns = {name: texts.get(name, [None] * count) for name in MAIN_SCHEMA.names if name != IMAGE_COLUMN}
    rows = pa.table(
        {name: pa.array(values, MAIN_SCHEMA.field(name).type) for name, values in columns.items()}
        | {"position": pa.array(range(count), pa.int32())}
    )
    return ShardContents(rows, Bucket.parse("0_512/10000"), ("m.jsonl",), row_group_bytes, writer)


def _checked(image: memoryview) -> CheckedImage:
    return CheckedImage(image, "", Verdict(None, "", "JPEG", "RGB", 1, 96, 96, 96, 96, 1, False, ()))
