"""A sample of a manifest's lines and of the images that they name: what `init` looks at."""

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import zstandard

from dataset_packaging.cli.shard_survey import spread_evenly
from dataset_packaging.core.records import MappedRows
from dataset_packaging.errors import StoreError
from dataset_packaging.imaging.header import read_header
from dataset_packaging.io.jsonl import Block, BlockReader, SourceFile, expand_sources, plan_blocks
from dataset_packaging.io.store import Stores

SAMPLED_IMAGES = 8
_SAMPLED_PLACES = 8
_SAMPLE_BYTES_MAX = 64 << 20
_SMALLEST_BLOCK_BYTES = 1 << 20
_LARGEST_IMAGE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """Some lines of a manifest, in its order.

    Attributes:
        lines: Without their line ends.
        files: How many files the manifest has.
        size_bytes: Their size in all, as stored.
        is_whole: Whether these are all lines.
        estimated_rows: Lines of all files. Of compressed files it follows from how well the sample compresses, which
            may be wrong by a fifth.
    """

    lines: tuple[bytes, ...]
    files: int
    size_bytes: int
    is_whole: bool
    estimated_rows: int


@dataclass(frozen=True, slots=True)
class ImageEvidence:
    """What a few images of the sample say about the manifest.

    Attributes:
        looked_for: Images that were asked for.
        found: Of these, those that were there.
        failure: What the store said of the first that was not; empty if all were.
        sizes_compared: Images whose width and height the manifest gives.
        sizes_same: Of these, those that have them.
        checks_compared: Images whose `sha256`, `md5` or `bytes` the manifest gives, by that name.
        checks_same: Of these, those that have them.
    """

    looked_for: int
    found: int
    failure: str
    sizes_compared: int
    sizes_same: int
    checks_compared: dict[str, int]
    checks_same: dict[str, int]


def read_sample(stores: Stores, manifest_uri: str, wanted: int) -> Sample:
    """Read about `wanted` lines from up to eight places, evenly spread over the files and, where plain, within them.

    A compressed file is read from its start. Memory: at most 64 MiB of lines.

    Raises:
        ManifestError: Nothing is there, or what is there is not readable.
    """
    sources = expand_sources(stores, [manifest_uri])
    size_bytes = sum(source.size_bytes for source in sources)
    blocks = list(_choose_blocks(stores, [sources[index] for index in spread_evenly(len(sources), _SAMPLED_PLACES)]))
    lines: list[bytes] = []
    is_whole = len(sources) <= _SAMPLED_PLACES
    room_bytes = _SAMPLE_BYTES_MAX
    for number, block in enumerate(blocks):
        share = (wanted - len(lines)) // (len(blocks) - number)
        share_bytes = room_bytes // (len(blocks) - number)
        for _, line in BlockReader(stores, block):
            if share <= 0 or share_bytes <= 0:
                is_whole = False
                break
            lines.append(line)
            share -= 1
            share_bytes -= len(line)
            room_bytes -= len(line)
    rows = len(lines) if is_whole else _estimate_rows(lines, blocks, size_bytes)
    return Sample(tuple(lines), len(sources), size_bytes, is_whole, rows)


def _estimate_rows(lines: Sequence[bytes], blocks: Sequence[Block], size_bytes: int) -> int:
    text = b"\n".join(lines) + b"\n"
    kinds = {block.compression for block in blocks}
    if kinds == {"none"}:
        stored_bytes = len(text)
    else:
        stored_bytes = len(zlib.compress(text) if "gzip" in kinds else zstandard.compress(text))
    return max(len(lines), round(size_bytes * len(lines) / max(stored_bytes, 1)))


def find_base_uri(stores: Stores, relative_paths: Sequence[str], candidates: Sequence[str]) -> tuple[str, int]:
    """Find the folder below which most of these paths are objects.

    Asks for at most `SAMPLED_IMAGES` objects in each folder, and stops at the first folder that has them all.

    Returns:
        The folder and how many of the asked-for objects it has; the first candidate and 0 where none has any.
    """
    chosen = [relative_paths[index] for index in spread_evenly(len(relative_paths), SAMPLED_IMAGES)]
    best = (candidates[0], 0)
    for folder in candidates:
        found = sum(is_there(stores, folder + path) for path in chosen)
        if found > best[1]:
            best = (folder, found)
        if found == len(chosen):
            break
    return best


def read_image_evidence(stores: Stores, rows: MappedRows) -> ImageEvidence:
    """Read a few of the sampled images, evenly spread, and compare them with what the manifest says of them.

    Args:
        stores: Where they stand.
        rows: The sample, mapped with every field that says a size or a hash.
    """
    found, failure = 0, ""
    compared = {"sizes": 0, "sha256": 0, "md5": 0, "bytes": 0}
    same = dict.fromkeys(compared, 0)
    chosen = spread_evenly(len(rows.s3_image_path), SAMPLED_IMAGES)
    for row in chosen:
        try:
            data = _read_image(stores, rows.s3_image_path[row])
        except StoreError as error:
            failure = failure or str(error)
            continue
        found += 1
        for name, agrees in _compare(data, rows, row):
            compared[name] += 1
            same[name] += agrees
    sizes = compared.pop("sizes"), same.pop("sizes")
    return ImageEvidence(len(chosen), found, failure, *sizes, compared, same)


def _choose_blocks(stores: Stores, sources: Sequence[SourceFile]) -> Iterator[Block]:
    places = max(1, _SAMPLED_PLACES // max(len(sources), 1))
    for source in sources:
        blocks = plan_blocks(stores, source, max(_SMALLEST_BLOCK_BYTES, source.size_bytes // places + 1))
        yield from (blocks[index] for index in spread_evenly(len(blocks), places))


def is_there(stores: Stores, uri: str) -> bool:
    """Say whether an object can be reached."""
    try:
        stores.head(uri)
    except StoreError:
        return False
    return True


def _read_image(stores: Stores, uri: str) -> memoryview | None:
    """Read an image; None where it is too large to be fetched for a look."""
    if stores.head(uri).size_bytes > _LARGEST_IMAGE_BYTES:
        return None
    return stores.get(uri)


def _compare(data: memoryview | None, rows: MappedRows, row: int) -> Iterator[tuple[str, bool]]:
    """Yield each thing that the manifest says of a row's image, and whether it is so."""
    if data is None:
        return
    width_px, height_px = rows.width_px[row], rows.height_px[row]
    header = read_header(data)
    if width_px and height_px and header.width_px:
        yield "sizes", {width_px, height_px} == {header.width_px, header.height_px}
    sha256, md5, size_bytes = rows.expected_sha256[row], rows.expected_md5[row], rows.expected_bytes[row]
    if sha256:
        yield "sha256", sha256.lower() == hashlib.sha256(data).hexdigest()
    if md5:
        yield "md5", md5.lower() == hashlib.md5(data, usedforsecurity=False).hexdigest()
    if size_bytes is not None:
        yield "bytes", size_bytes == len(data)
