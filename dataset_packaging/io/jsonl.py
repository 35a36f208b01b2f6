"""Manifests as lines: which files, which blocks of them, and the lines of one block as a stream.

The content of a file decides about compression, never its name. A compressed stream that is cut or followed by junk is
an error, never a shorter manifest. Only LF ends a line: captions may hold any other separator.
"""

import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from typing import BinaryIO, Literal

import zstandard
from isal import igzip, isal_zlib

from dataset_packaging.core.other_formats import describe_binary
from dataset_packaging.core.uris import glob_expression
from dataset_packaging.errors import ManifestError, NotFound
from dataset_packaging.io.store import ObjectInfo, Stores

Compression = Literal["none", "gzip", "zstd"]

BLOCK_BYTES = 64 << 20
MAX_LINE_BYTES = 64 << 20
"""A longer line is cut here and handed on: no parser takes it for JSON, and memory stays bounded."""

_READ_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_BOM = b"\xef\xbb\xbf"
_IsalError: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]  # the stubs have an instance
_DAMAGES = (EOFError, gzip.BadGzipFile, _IsalError, zstandard.ZstdError)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A manifest file as it stands in the store."""

    uri: str
    size_bytes: int
    tag: str


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a manifest file that one task reads: the lines that start in bytes `[start, end)`.

    Attributes:
        source_uri: the file.
        index: 0-based within the file.
        start: first byte; for compressed files always 0.
        end: byte after the last; for compressed files always the file's length.
        compression: told by the first bytes.
    """

    source_uri: str
    index: int
    start: int
    end: int
    compression: Compression


def expand_sources(stores: Stores, patterns: Sequence[str]) -> list[SourceFile]:
    """Returns the files of a manifest: in the order of the list, those of a glob by key, each once.

    `*`, `?` and `[...]` are wildcards that stay within one part of a path, `**` is one that does not. A pattern that
    matches nothing may still be the very name of an object. Raises ManifestError where nothing is found.
    """
    found: dict[str, SourceFile] = {}
    for pattern in patterns:
        files = find_files(stores, pattern)
        if not files:
            raise ManifestError(
                f"manifest: nothing is found at {pattern}; expected a JSONL file, or a glob that matches some"
            )
        for file in files:
            found.setdefault(file.uri, file)
    return list(found.values())


def find_files(stores: Stores, pattern: str) -> list[SourceFile]:
    """Returns what a URI or a glob names, in order of keys; see `expand_sources`. Empty where nothing is found."""
    files = _matching(stores, pattern) or _named(stores, pattern)
    return [SourceFile(info.uri, info.size_bytes, info.tag) for info in files]


def _named(stores: Stores, uri: str) -> list[ObjectInfo]:
    try:
        return [stores.head(uri)]
    except NotFound:
        return []


def _matching(stores: Stores, pattern: str) -> list[ObjectInfo]:
    wildcard = re.search(r"[*?\[]", pattern)
    if wildcard is None:
        return []
    fits = re.compile(glob_expression(pattern), re.DOTALL).fullmatch
    return [info for info in stores.list(pattern[: wildcard.start()]) if fits(info.uri)]


def plan_blocks(stores: Stores, source: SourceFile, block_bytes: int = BLOCK_BYTES) -> list[Block]:
    """Returns the blocks of a file: byte ranges of a plain one, the whole of a compressed one; none of an empty one."""
    if not source.size_bytes:
        return []
    head = bytes(stores.get_range(source.uri, 0, 4))
    compression = compression_of(head)
    step = block_bytes if compression == "none" else source.size_bytes
    return [
        Block(source.uri, index, start, min(start + step, source.size_bytes), compression)
        for index, start in enumerate(range(0, source.size_bytes, step))
    ]


def require_a_row(stores: Stores, sources: Sequence[SourceFile]) -> None:
    """Makes sure that the manifest holds a line that is not blank. Reads up to the first one.

    Raises ManifestError where it does not, where a stream is damaged before its first line, or where the file is of
    another kind altogether.
    """
    for source in sources:
        for block in plan_blocks(stores, source):
            first = next(iter(BlockReader(stores, block)), None)
            if first is not None and (told := describe_binary(first[1])):
                raise ManifestError(f"the manifest {source.uri} does not hold JSON lines: {told}")
            if first is not None:
                return
    names = ", ".join(source.uri for source in sources)
    raise ManifestError(f"the manifest is empty: no line in {names}; expected one JSON object per line")


def compression_of(head: bytes) -> Compression:
    """Tells the compression by the first four bytes. Pure."""
    if head.startswith(_GZIP_MAGIC):
        return "gzip"
    if head == _ZSTD_MAGIC or (len(head) == 4 and int.from_bytes(head, "little") in _SKIPPABLE):
        return "zstd"
    return "none"


class BlockReader:
    """The lines of one block, once: (1-based number within the block, bytes without the line end).

    A byte order mark at the start of the file and the CR of a CRLF are stripped; blank lines are counted and not
    yielded. Memory: one read buffer and one line of at most `MAX_LINE_BYTES`.

    Attributes:
        line_count: physical lines seen so far; all of the block once the iteration has ended.
    """

    def __init__(self, stores: Stores, block: Block) -> None:
        self._stores = stores
        self._block = block
        self.line_count = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        with self._stores.open(self._block.source_uri) as file:
            stream = _decompressed(file, self._block)
            try:
                yield from self._lines(stream)
            except _DAMAGES as error:
                raise ManifestError(
                    f"{self._block.source_uri}: the {self._block.compression} stream is damaged after line "
                    f"{self.line_count} of its block ({error or type(error).__name__}); expected whole members: "
                    "upload the file again"
                ) from error

    def _lines(self, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
        block = self._block
        position = block.start
        if block.compression == "none" and block.start:
            # The line that is under way at the start belongs to the block before.
            stream.seek(block.start - 1)
            position = block.start - 1 + _skip_line(stream)
        for line, size in _split_lines(stream):
            if block.compression == "none" and position >= block.end:
                return
            self.line_count += 1
            if position == 0 and line.startswith(_BOM):
                line = line[len(_BOM) :]
            position += size
            line = line.removesuffix(b"\r")
            if line and not line.isspace():
                yield self.line_count, line


def _split_lines(stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yields each line without its line feed, cut at MAX_LINE_BYTES, and how many bytes the whole of it takes."""
    begun, passed_over = bytearray(), 0
    while data := stream.read(_READ_BYTES):
        *lines, rest = data.split(b"\n")
        for line in lines:
            if begun:
                begun += line
                passed_over += max(0, len(begun) - MAX_LINE_BYTES)
                del begun[MAX_LINE_BYTES:]
                line, begun = bytes(begun), bytearray()
            yield line, len(line) + passed_over + 1
            passed_over = 0
        begun += rest
        if len(begun) > MAX_LINE_BYTES:
            passed_over += len(begun) - MAX_LINE_BYTES
            del begun[MAX_LINE_BYTES:]
    if begun:
        yield bytes(begun), len(begun) + passed_over


def _skip_line(stream: BinaryIO) -> int:
    size = 0
    while part := stream.readline(_READ_BYTES):
        size += len(part)
        if part.endswith(b"\n"):
            break
    return size


def _decompressed(file: BinaryIO, block: Block) -> BinaryIO:
    if block.compression == "gzip":
        return BufferedReader(igzip.open(file, "rb"), _READ_BYTES)  # type: ignore[no-untyped-call]
    if block.compression == "zstd":
        return BufferedReader(_ZstdFrames(file), _READ_BYTES)
    return file if isinstance(file, BufferedReader) else BufferedReader(file, _READ_BYTES)  # type: ignore[type-var]


class _ZstdFrames(RawIOBase):
    """All frames of a zstd file as one stream; a frame that is cut, or bytes that are no frame, raise."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = zstandard.ZstdDecompressor().decompressobj()
        self._in_frame = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            if not self._advance():
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _advance(self) -> bool:
        data = self._decoder.unused_data if self._decoder.eof else b""
        if self._decoder.eof:
            self._decoder = zstandard.ZstdDecompressor().decompressobj()
            self._in_frame = False
        data = data or self._file.read(_READ_BYTES)
        if not data:
            if self._in_frame:
                raise EOFError("the last frame is cut")
            return False
        self._in_frame = True
        self._ready = memoryview(self._decoder.decompress(data))
        return True
