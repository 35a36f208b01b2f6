"""Manifests as lines, on real files: MAN-01, MAN-02 and MAN-08 of the fault list."""

import gzip
import struct
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_packaging.config import S3Config
from dataset_packaging.errors import ManifestError
from dataset_packaging.io.jsonl import (
    MAX_LINE_BYTES,
    Block,
    BlockReader,
    SourceFile,
    expand_sources,
    plan_blocks,
    require_a_row,
)
from dataset_packaging.io.store import StorageConfig, Stores

SKIPPABLE_FRAME = struct.pack("<II", 0x184D2A5F, 5) + b"hello"
ROWS = [b'{"n":%d,"caption":"a dog"}' % number for number in range(2000)]
TEXT = b"".join(row + b"\n" for row in ROWS)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


CHECKED_FRAME = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)


@pytest.fixture
def stores() -> Stores:
    return Stores(StorageConfig(S3Config(), None, ()))


def source(stores: Stores, path: Path, content: bytes) -> SourceFile:
    path.write_bytes(content)
    (found,) = expand_sources(stores, [f"file://{path}"])
    return found


def numbered_lines(stores: Stores, blocks: list[Block]) -> list[tuple[int, bytes]]:
    """All lines with their numbers in the file, as the ingest counts them."""
    lines, before = [], 0
    for block in blocks:
        reader = BlockReader(stores, block)
        lines += [(before + number, line) for number, line in reader]
        before += reader.line_count
    return lines


def read(stores: Stores, path: Path, content: bytes, block_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    return numbered_lines(stores, plan_blocks(stores, source(stores, path, content), block_bytes))


def test_only_a_line_feed_ends_a_line(stores: Stores, tmp_path: Path) -> None:
    """MAN-01: captions with U+2028, U+2029, U+0085, form feed and a lone CR stay whole."""
    rows = [
        '{"caption":"a\u2028b\u2029c\u0085d"}'.encode(),
        b'{"caption":"x\x0cy\rz\x0b"}',
        b'{"caption":"\x1c\x1d\x1e"}',
    ]
    expected = list(enumerate(rows, start=1))
    assert read(stores, tmp_path / "a", b"\n".join(rows)) == expected
    assert read(stores, tmp_path / "b", b"\n".join(rows) + b"\n") == expected
    assert read(stores, tmp_path / "c", b"\r\n".join(rows) + b"\r\n") == expected


def test_blank_lines_are_skipped_and_counted(stores: Stores, tmp_path: Path) -> None:
    """MAN-01: line numbers in errors are those that an editor shows."""
    assert read(stores, tmp_path / "a", b"\n\n{1}\n  \t\n\r\n{2}\n\n") == [(3, b"{1}"), (6, b"{2}")]


def test_a_byte_order_mark_is_no_part_of_the_first_row(stores: Stores, tmp_path: Path) -> None:
    for number, content in enumerate(
        [b"\xef\xbb\xbf{1}\n", gzip.compress(b"\xef\xbb\xbf{1}", mtime=0), zstd(b"\xef\xbb\xbf{1}\n")]
    ):
        assert read(stores, tmp_path / str(number), content) == [(1, b"{1}")]
    assert read(stores, tmp_path / "later", b"{1}\n\xef\xbb\xbf{2}\n")[1] == (2, b"\xef\xbb\xbf{2}")


@given(
    st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), max_size=30),
    st.integers(1, 40),
    st.booleans(),
)
@settings(deadline=None)
def test_every_line_belongs_to_exactly_one_block(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], block_bytes: int, ends: bool
) -> None:
    stores, path = Stores(StorageConfig(S3Config(), None, ())), tmp_path_factory.getbasetemp() / "split"
    content = b"# " + b"\n".join(lines) + b"\n" * ends
    whole = read(stores, path, content, len(content))
    assert whole == [
        (number, line.removesuffix(b"\r"))
        for number, line in enumerate(content.split(b"\n"), start=1)
        if line.removesuffix(b"\r").strip()
    ]
    blocks = plan_blocks(stores, source(stores, path, content), block_bytes)
    assert [block.start for block in blocks] == list(range(0, len(content), block_bytes))
    assert numbered_lines(stores, blocks) == whole


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        gzip.compress(TEXT),
        gzip.compress(TEXT[:30_000]) + gzip.compress(TEXT[30_000:]),
        gzip.compress(TEXT) + b"\0" * 512,
        gzip.compress(b"", mtime=0) + gzip.compress(TEXT),
        zstd(TEXT),
        zstd(TEXT[:30_000]) + zstd(TEXT[30_000:]),
        SKIPPABLE_FRAME + zstd(TEXT) + SKIPPABLE_FRAME,
        zstd(b"") + zstd(TEXT),
        CHECKED_FRAME,
    ],
    ids=[
        "plain",
        "gzip",
        "members",
        "padding",
        "empty-member",
        "zstd",
        "frames",
        "skippable",
        "empty-frame",
        "checked-frame",
    ],
)
@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz", "m.jsonl.zst"])
def test_the_content_decides_about_compression(stores: Stores, tmp_path: Path, content: bytes, name: str) -> None:
    """MAN-02 and MAN-08: all members and frames count, padding is fine, the suffix says nothing."""
    assert [line for _, line in read(stores, tmp_path / name, content)] == ROWS


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(TEXT)[:-1],
        gzip.compress(TEXT)[:-9],
        gzip.compress(TEXT)[:200],
        gzip.compress(TEXT) + b"trailing junk, long enough for a header",
        gzip.compress(TEXT) + gzip.compress(TEXT)[:20],
        gzip.compress(TEXT)[:100] + b"\xff" * 50 + gzip.compress(TEXT)[150:],
        gzip.compress(TEXT)[:-6] + b"\0\0" + gzip.compress(TEXT)[-4:],
        b"\x1f\x8b\x08",
        zstd(TEXT)[:-1],
        zstd(TEXT)[:20],
        zstd(TEXT) + zstd(TEXT)[:-1],
        zstd(TEXT) + zstd(TEXT)[:3],
        zstd(TEXT) + b"trailing junk",
        zstd(TEXT) + SKIPPABLE_FRAME[:-1],
        CHECKED_FRAME[:60] + b"\xff" * 20 + CHECKED_FRAME[80:],
    ],
    ids=range(15),
)
def test_a_damaged_stream_is_an_error_never_a_shorter_manifest(stores: Stores, tmp_path: Path, content: bytes) -> None:
    """MAN-02 and MAN-08."""
    with pytest.raises(ManifestError, match=r"^file:///.*/m: the (gzip|zstd) stream is damaged after line \d+ "):
        read(stores, tmp_path / "m", content)


def test_a_line_of_any_length_takes_bounded_memory(stores: Stores, tmp_path: Path) -> None:
    long_line = b'{"x":"' + b"x" * (MAX_LINE_BYTES + 5_000_000) + b'"}'
    file = source(stores, tmp_path / "m", zstd(long_line + b"\n{2}\n"))
    del long_line
    tracemalloc.start()
    lines = [(number, len(line)) for number, line in BlockReader(stores, plan_blocks(stores, file)[0])]
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines == [(1, MAX_LINE_BYTES), (2, 3)]
    assert peak_bytes < 4 * MAX_LINE_BYTES


def test_a_long_line_is_counted_as_one_across_blocks(stores: Stores, tmp_path: Path) -> None:
    content = b'{"x":"' + b"x" * 5_000 + b'"}\n{2}\n'
    assert [number for number, _ in read(stores, tmp_path / "m", content, 64)] == [1, 2]


def test_sources_stand_in_the_order_of_the_list_and_globs_by_key(stores: Stores, tmp_path: Path) -> None:
    for name in [
        "b-10.jsonl",
        "b-9.jsonl",
        "b-1.txt",
        "a.jsonl",
        "sub/b-1.jsonl",
        "sub/deep/b-2.jsonl",
        "x[1].jsonl",
        "x#1",
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}\n")
    uri = f"file://{tmp_path}"

    def names(*patterns: str) -> list[str]:
        return [file.uri.removeprefix(f"{uri}/") for file in expand_sources(stores, [f"{uri}/{p}" for p in patterns])]

    assert names("b-*.jsonl", "a.jsonl", "b-9.jsonl") == ["b-10.jsonl", "b-9.jsonl", "a.jsonl"]
    assert names("*/b-?.jsonl") == ["sub/b-1.jsonl"]
    assert names("**/b-[12].jsonl") == ["sub/b-1.jsonl", "sub/deep/b-2.jsonl"]
    assert names("x[1].jsonl") == ["x[1].jsonl"]
    assert names("x#1") == ["x#1"]
    for missing in ("nothing.jsonl", "c-*.jsonl", "sub"):
        with pytest.raises(ManifestError, match=rf"nothing is found at {uri}/{missing}".replace("*", r"\*")):
            names("a.jsonl", missing)


@pytest.mark.parametrize("content", [b"", b"\n \n\r\n", gzip.compress(b"\n", mtime=0), zstd(b"")])
def test_a_manifest_without_a_row_is_refused(stores: Stores, tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ManifestError, match="the manifest is empty: no line in file:///"):
        require_a_row(stores, [source(stores, tmp_path / "m", content)])


def test_a_manifest_whose_first_row_comes_late_is_accepted(stores: Stores, tmp_path: Path) -> None:
    require_a_row(stores, [source(stores, tmp_path / "a", b"\n\n"), source(stores, tmp_path / "b", b"\n\n{1}")])


def test_the_same_lines_come_from_a_real_s3_server(s3_bucket: str, s3_environ: dict[str, str]) -> None:
    stores = Stores(StorageConfig(S3Config(), None, ()))
    stores.put(f"s3://{s3_bucket}/in/m-1.jsonl", TEXT)
    stores.put(f"s3://{s3_bucket}/in/m-2#a b.jsonl", zstd(TEXT))
    plain, packed = expand_sources(stores, [f"s3://{s3_bucket}/in/m-*.jsonl"])
    assert numbered_lines(stores, plan_blocks(stores, plain, 10_000)) == list(enumerate(ROWS, start=1))
    assert numbered_lines(stores, plan_blocks(stores, packed)) == list(enumerate(ROWS, start=1))
