"""What stands below the prefixes: names, schemas, encodings, checksums, row groups."""

import itertools
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dataset_packaging_tests.checker.contract import BUCKETS, NOT_NULL, REASONS, Dataset
from dataset_packaging_tests.checker.pages import DICTIONARY_PAGE, read_pages

_SHARD = re.compile(r"(?P<bucket>[^/]+/[^/]+)/shard-(?P<number>\d{6})\.parquet")
_REJECT_COLUMNS = ("image_key", "s3_image_path", "manifest_uri", "line", "reason", "detail")


@dataclass(frozen=True, slots=True)
class Reject:
    """One row of the reject table."""

    manifest: Path
    line: int
    reason: str
    key: str | None


def shard_keys(folder: Path, findings: list[str]) -> list[str]:
    """Returns the relative paths of all shards below a prefix; whatever else stands there is a finding."""
    keys: list[str] = []
    numbers: dict[str, list[int]] = {}
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        key = path.relative_to(folder).as_posix()
        found = _SHARD.fullmatch(key)
        if found is None or found["bucket"] not in BUCKETS:
            findings.append(f"{folder.name}/{key}: is no shard of any bucket")
            continue
        keys.append(key)
        numbers.setdefault(found["bucket"], []).append(int(found["number"]))
    for bucket, present in numbers.items():
        if sorted(present) != list(range(len(present))):
            findings.append(f"{folder.name}/{bucket}: numbers are {sorted(present)}, not 0 to {len(present) - 1}")
    return keys


def check_file(dataset: Dataset, path: Path, columns: dict[str, pa.DataType], findings: list[str]) -> bool:
    """Checks one file's declared schema and how it is written; returns whether its rows can be read."""
    name = "/".join(path.parts[-4:])
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            parquet = pq.ParquetFile(path, page_checksum_verification=True)
            findings.extend(f"{name}: {text}" for text in _schema_findings(parquet.schema_arrow, columns))
            with memoryview(mapped) as data:
                findings.extend(f"{name}: {text}" for text in sorted(set(_encoding_findings(parquet, data))))
            for group in range(parquet.num_row_groups):
                for batch in parquet.iter_batches(64, row_groups=[group]):
                    batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as broken:
        findings.append(f"{name}: cannot be read: {str(broken).splitlines()[0]}")
        return False
    if "image" in columns:
        findings.extend(f"{name}: {text}" for text in _row_group_findings(dataset, parquet))
    return True


def _schema_findings(found: pa.Schema, columns: dict[str, pa.DataType]) -> Iterator[str]:
    if found.names != list(columns):
        yield f"schema: columns are {found.names}, not {list(columns)}"
        return
    for field in found:
        if field.type != columns[field.name]:
            yield f"schema: {field.name} is {field.type}, not {columns[field.name]}"
        if field.name in NOT_NULL and field.nullable:
            yield f"schema: {field.name} is declared nullable"


def _encoding_findings(parquet: pq.ParquetFile, data: memoryview) -> Iterator[str]:
    for group in range(parquet.metadata.num_row_groups):
        for index in range(parquet.metadata.num_columns):
            chunk = parquet.metadata.row_group(group).column(index)
            name = chunk.path_in_schema
            if chunk.compression != "ZSTD":
                yield f"column {name} is {chunk.compression}, not ZSTD"
            pages = list(read_pages(data, chunk))
            if any(page.checksum_holds is None for page in pages):
                yield f"column {name} has pages without checksum"
            if any(page.checksum_holds is False for page in pages):
                yield f"column {name} has a page whose checksum is wrong"
            if name == "image":
                if chunk.is_stats_set or chunk.has_column_index:
                    yield "the image column has statistics"
                if any(page.kind == DICTIONARY_PAGE for page in pages) or "DICTIONARY" in str(chunk.encodings):
                    yield "the image column has a dictionary"


def _row_group_findings(dataset: Dataset, parquet: pq.ParquetFile) -> Iterator[str]:
    if parquet.metadata.num_rows > dataset.shard_rows:
        yield f"{parquet.metadata.num_rows} rows, more than shard_size"
    sizes = [
        parquet.read_row_group(group, columns=["image"]).column("image").nbytes
        for group in range(parquet.num_row_groups)
    ]
    largest = max((_largest_image(parquet, group) for group in range(parquet.num_row_groups)), default=0)
    for group, size in enumerate(sizes):
        if size > dataset.row_group_bytes + largest + 8 * dataset.shard_rows:
            yield f"row group {group} has {size} bytes of images, above row_group_bytes and one image"
    for group, (size, following) in enumerate(itertools.pairwise(sizes)):
        if size + following < dataset.row_group_bytes:
            yield f"row groups {group} and {group + 1} are small enough to be one"


def _largest_image(parquet: pq.ParquetFile, group: int) -> int:
    column = parquet.read_row_group(group, columns=["image"]).column("image")
    return max((len(value.as_buffer()) for value in column if value.is_valid), default=0)


def check_same_schema(folder: Path, keys: list[str], findings: list[str]) -> None:
    """All shards of a prefix declare the same schema, descriptions of the fields included."""
    first: pa.Schema | None = None
    for key in keys:
        schema = pq.read_schema(folder / key)
        first = first or schema
        same = all(a.equals(b, check_metadata=True) for a, b in zip(first, schema, strict=False))
        if not same or first.names != schema.names:
            findings.append(f"{folder.name}/{key}: declares another schema than {keys[0]}")


def read_rejects(dataset: Dataset, findings: list[str]) -> list[Reject]:
    """Reads the whole reject table."""
    rejects = []
    for path in sorted((dataset.work / "rejects").rglob("*.parquet")):
        table = pq.read_table(path)
        if missing := [column for column in _REJECT_COLUMNS if column not in table.column_names]:
            findings.append(f"rejects/{path.name}: has no column {missing}")
            continue
        for row in table.select(list(_REJECT_COLUMNS)).to_pylist():
            if row["reason"] not in REASONS:
                findings.append(f"rejects/{path.name}: {row['reason']!r} is no reason")
            manifest = Path(str(row["manifest_uri"]).removeprefix("file://"))
            rejects.append(Reject(manifest, row["line"], row["reason"], row["image_key"]))
    return rejects


def read_pairs(dataset: Dataset, key: str) -> Iterator[tuple[dict[str, object], dict[str, object] | None]]:
    """Yields each row of a main shard with the row of the sidecar at the same position, if there is one."""
    sidecar_path = dataset.sidecar / key
    sidecar: list[dict[str, object]] = pq.read_table(sidecar_path).to_pylist() if sidecar_path.exists() else []
    position = 0
    parquet = pq.ParquetFile(dataset.output / key)
    for batch in parquet.iter_batches(16):
        for row in batch.to_pylist():
            yield row, sidecar[position] if position < len(sidecar) else None
            position += 1
