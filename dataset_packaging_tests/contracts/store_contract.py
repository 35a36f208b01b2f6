"""What every store promises, as tests: subclass `StoreContract`, give it a `store` and a `root_uri` to write below."""

import contextlib
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.errors import NotFound, ObjectTooLarge, UnsupportedKey
from dataset_packaging.io.store import Store

ODD_KEYS = [
    "plain.jpg",
    "a b.jpg",
    "a+b.jpg",
    "a%20b.jpg",
    "a%2Fb.jpg",
    "a%252Fb.jpg",
    "a#1.jpg",
    "a?x=1.jpg",
    "a b+c%20d;e.jpg",
    "ä.jpg",  # NFC
    "a\u0308.jpg",  # NFD: another object
    "日本語/画像.jpg",
    "emoji-\U0001f600.jpg",
    "quote'\"<>&.jpg",
    "a\\b.jpg",
    "[b.jpg",
    "{a}*~^|.jpg",
    " leading.jpg",
    "trailing ",
    "x//y.jpg",
    "/leading-slash.jpg",
    "trailing-slash/",
    ".",
    "..",
    "./x.jpg",
    "../x.jpg",
    "x/../y.jpg",
    "x/./y.jpg",
    "...",
    "..x/y..",
    "tab\there.jpg",
    "newline\nhere.jpg",
    "cr\rhere.jpg",
    "\x01\x1f.jpg",
    "del\x7f.jpg",
    "\x85\u2028.jpg",
    "CON",
    "a=b&c=d,e:f@g$h!.jpg",
    "k" * 200 + ".jpg",
]


class StoreContract:
    """Inherit and provide the fixtures `store` and `root_uri` (fresh for each test, no slash at its end)."""

    # objects

    def test_what_was_put_is_read_back_with_its_tag(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/a/b.bin"
        written = store.put(uri, b"hello")
        data, info = store.get_with_info(uri)
        assert (bytes(data), info) == (b"hello", written)
        assert (info.uri, info.size_bytes) == (uri, 5)
        assert info.tag
        assert '"' not in info.tag
        assert store.head(uri) == info
        assert bytes(store.get(uri)) == b"hello"

    def test_every_kind_of_buffer_is_written_whole(self, store: Store, root_uri: str) -> None:
        buffers = [
            b"abcd",
            bytearray(b"abcd"),
            memoryview(b"abcd"),
            memoryview(bytearray(b"xabcdx"))[1:5],
            memoryview(pa.array([1684234849], pa.int32()).buffers()[1]),
        ]
        for index, buffer in enumerate(buffers):
            store.put(f"{root_uri}/{index}", buffer)
            assert bytes(store.get(f"{root_uri}/{index}"))[:4] == b"abcd"

    def test_an_empty_object_is_an_object(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/empty"
        store.put(uri, b"")
        assert bytes(store.get(uri)) == b""
        assert store.head(uri).size_bytes == 0
        assert bytes(store.get_range(uri, 0, 10)) == b""

    def test_put_replaces_and_changes_the_tag(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/x"
        first = store.put(uri, b"1")
        second = store.put(uri, b"2")
        assert bytes(store.get(uri)) == b"2"
        assert first.tag != second.tag

    def test_ranges_end_where_the_object_ends(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/x"
        store.put(uri, b"0123456789")
        assert bytes(store.get_range(uri, 0, 4)) == b"0123"
        assert bytes(store.get_range(uri, 8, 4)) == b"89"
        assert bytes(store.get_range(uri, 10, 4)) == b""
        assert bytes(store.get_range(uri, 50, 4)) == b""
        assert bytes(store.get_range(uri, 3, 0)) == b""

    def test_a_range_comes_with_what_is_known_of_the_whole(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/x"
        written = store.put(uri, b"0123456789")
        for start, length, expected in ((0, 4, b"0123"), (8, 4, b"89"), (10, 4, b""), (3, 0, b"")):
            data, info = store.get_range_with_info(uri, start, length)
            assert (bytes(data), info) == (expected, written)
        written = store.put(uri, b"")
        assert store.get_range_with_info(uri, 0, 10)[1] == written

    def test_what_is_too_large_is_not_read(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/x"
        store.put(uri, b"0123456789")
        assert bytes(store.get(uri, max_bytes=10)) == b"0123456789"
        with pytest.raises(ObjectTooLarge, match="10 bytes, 9 are allowed"):
            store.get(uri, max_bytes=9)

    def test_a_missing_object_is_not_found(self, store: Store, root_uri: str) -> None:
        store.put(f"{root_uri}/folder/x", b"1")
        reads: list[Callable[[str], object]] = [store.get, store.head, store.get_with_info]
        reads += [lambda uri: store.get_range(uri, 0, 1), lambda uri: store.open(uri).read()]
        for uri in (f"{root_uri}/nothing", f"{root_uri}/folder", f"{root_uri}/folder/x/y"):
            for read in reads:
                with pytest.raises(NotFound) as caught:
                    read(uri)
                assert uri in str(caught.value)
                assert caught.value.uri == uri

    def test_delete_is_idempotent_and_leaves_neighbours(self, store: Store, root_uri: str) -> None:
        store.put(f"{root_uri}/a", b"1")
        store.put(f"{root_uri}/ab", b"2")
        store.delete(f"{root_uri}/a")
        store.delete(f"{root_uri}/a")
        store.delete(f"{root_uri}/nowhere/a")
        with pytest.raises(NotFound):
            store.get(f"{root_uri}/a")
        assert bytes(store.get(f"{root_uri}/ab")) == b"2"

    def test_open_reads_and_seeks_like_a_file(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/big"
        body = bytes(range(256)) * 40_000  # 10 MB: several range reads
        store.put(uri, body)
        with store.open(uri) as file:
            assert file.read(10) == body[:10]
            assert file.seek(-5, 2) == len(body) - 5
            assert file.read() == body[-5:]
            assert file.read(1) == b""
            assert file.seek(1000) == 1000
            assert file.tell() == 1000
            assert file.read(5_000_000) == body[1000:5_001_000]
            file.seek(0)
            assert file.read() == body
        assert file.closed

    # odd keys: faults.md S3-01, S3-06

    @pytest.mark.parametrize("key", ODD_KEYS, ids=ascii)
    def test_an_odd_key_names_its_own_object_or_is_refused(self, store: Store, root_uri: str, key: str) -> None:
        decoys = {key.strip("/"), key.strip(), key.replace("//", "/"), key.replace("%20", " "), key.replace("+", " ")}
        decoys |= {"x/y.jpg", "y.jpg", "x.jpg"}
        for decoy in decoys - {key, "", ".", ".."}:
            with contextlib.suppress(UnsupportedKey):
                store.put(f"{root_uri}/{decoy}", f"decoy {decoy}".encode())
        uri = f"{root_uri}/{key}"
        try:
            written = store.put(uri, b"mine")
        except UnsupportedKey:
            return
        assert written.uri == uri
        assert bytes(store.get(uri)) == b"mine"
        assert store.head(uri) == written
        assert bytes(store.get_range(uri, 1, 2)) == b"in"
        assert [info for info in store.list(uri) if info.uri == uri] == [written]
        for decoy in decoys - {key, "", ".", ".."}:
            try:
                assert bytes(store.get(f"{root_uri}/{decoy}")) == f"decoy {decoy}".encode()
            except (UnsupportedKey, NotFound):
                continue
        store.delete(uri)
        with pytest.raises(NotFound):
            store.head(uri)

    # listing

    def test_list_takes_a_string_prefix_and_is_sorted_by_bytes(self, store: Store, root_uri: str) -> None:
        keys = ["a/x", "a-b", "a.b/c", "ab/d", "a/0/1", "B", "é", "z/😀", "z/￿"]
        for key in keys:
            store.put(f"{root_uri}/{key}", key.encode())

        def listed(prefix: str) -> list[str]:
            return [info.uri.removeprefix(f"{root_uri}/") for info in store.list(f"{root_uri}/{prefix}")]

        assert listed("") == sorted(keys, key=str.encode)
        assert listed("a") == ["a-b", "a.b/c", "a/0/1", "a/x", "ab/d"]
        assert listed("a/") == ["a/0/1", "a/x"]
        assert listed("nothing") == []
        assert listed("nothing/at/all/") == []

    def test_list_tells_size_and_the_tag_that_head_tells(self, store: Store, root_uri: str) -> None:
        written = [store.put(f"{root_uri}/f/{n}", b"x" * n) for n in range(3)]
        assert list(store.list(f"{root_uri}/f/")) == written

    # conditional writes

    def test_put_if_absent_never_replaces(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/lock"
        info = store.put_if_absent(uri, b"first")
        assert info is not None
        assert info == store.head(uri)
        assert store.put_if_absent(uri, b"second") is None
        assert bytes(store.get(uri)) == b"first"

    def test_put_if_match_needs_the_very_tag(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/current"
        assert store.put_if_match(uri, b"0", "no-such-tag") is None
        with pytest.raises(NotFound):
            store.head(uri)
        first = store.put(uri, b"1")
        second = store.put_if_match(uri, b"2", first.tag)
        assert second is not None
        assert second == store.head(uri)
        assert store.put_if_match(uri, b"3", first.tag) is None
        assert bytes(store.get(uri)) == b"2"

    def test_of_many_writers_one_wins(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/race"
        barrier = threading.Barrier(8)

        def create(n: int) -> bool:
            barrier.wait()
            return store.put_if_absent(uri, f"{n}".encode()) is not None

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(create, range(8))) == 1
        tag = store.head(uri).tag

        def replace(n: int) -> bool:
            barrier.wait()
            return store.put_if_match(uri, f"replaced {n}".encode(), tag) is not None

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(replace, range(8))) == 1
        assert bytes(store.get(uri)).startswith(b"replaced")

    # the sink: faults.md PQ-01, S3-10

    @pytest.mark.parametrize("size_bytes", [0, 1, 40_000_000])
    def test_a_sink_publishes_the_whole_object(self, store: Store, root_uri: str, size_bytes: int) -> None:
        uri = f"{root_uri}/deep/er/object"
        piece = bytes(range(251)) * 1000
        body = (piece * (size_bytes // len(piece) + 1))[:size_bytes]
        with store.open_sink(uri) as sink:
            for start in range(0, size_bytes, 3_000_000):
                part = bytearray(body[start : start + 3_000_000])
                assert sink.write(part) == len(part)
                part[:] = bytes(len(part))  # the buffer is the caller's again
            assert sink.tell() == size_bytes
            sink.flush()
            assert not sink.closed
            with pytest.raises(NotFound):
                store.head(uri)
        assert sink.closed
        assert store.head(uri) == sink.info
        assert bytes(store.get(uri)) == body

    @pytest.mark.parametrize("size_bytes", [0, 10, 40_000_000])
    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
    def test_an_exception_inside_a_sink_leaves_no_object(
        self, store: Store, root_uri: str, size_bytes: int, error: type[BaseException]
    ) -> None:
        """PQ-01, S3-10."""
        uri = f"{root_uri}/shard.parquet"
        with pytest.raises(error), store.open_sink(uri) as sink:  # noqa: PT012
            sink.write(bytes(size_bytes))
            raise error
        assert sink.closed
        with pytest.raises(NotFound):
            store.head(uri)
        assert list(store.list(f"{root_uri}/")) == []
        assert store.abort_uploads(root_uri) == 0

    def test_an_exception_inside_a_sink_keeps_the_old_object(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/shard.parquet"
        before = store.put(uri, b"old")
        with pytest.raises(RuntimeError), store.open_sink(uri) as sink:  # noqa: PT012
            sink.write(bytes(20_000_000))
            raise RuntimeError
        assert store.head(uri) == before
        with store.open_sink(uri) as sink:
            sink.write(b"new")
        assert bytes(store.get(uri)) == b"new"

    def test_pyarrow_writes_to_a_sink_and_reads_from_open(self, store: Store, root_uri: str) -> None:
        uri = f"{root_uri}/t.parquet"
        table = pa.table({"n": pa.array(range(1000)), "image": [os.urandom(20_000) for _ in range(1000)]})
        with store.open_sink(uri) as sink, pq.ParquetWriter(sink, table.schema, use_dictionary=False) as writer:
            for start in range(0, 1000, 100):
                writer.write_table(table.slice(start, 100))
        with store.open(uri) as file:
            reader = pq.ParquetFile(file)
            assert reader.num_row_groups == 10
            assert reader.read().equals(table)
        assert sink.info.size_bytes > 20_000_000

    def test_a_batch_that_fails_publishes_no_short_shard(self, store: Store, root_uri: str) -> None:
        """PQ-01: leaving the writer by an exception writes a footer; the object must not appear."""
        uri = f"{root_uri}/t.parquet"
        table = pa.table({"n": range(10)})
        with (  # noqa: PT012
            pytest.raises(RuntimeError),
            store.open_sink(uri) as sink,
            pq.ParquetWriter(sink, table.schema) as writer,
        ):
            writer.write_table(table)
            raise RuntimeError
        with pytest.raises(NotFound):
            store.head(uri)

    # many at once

    def test_many_threads_share_a_store(self, store: Store, root_uri: str) -> None:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda n: store.put(f"{root_uri}/{n}", f"{n}".encode() * 1000), range(100)))
            bodies = list(pool.map(lambda n: bytes(store.get(f"{root_uri}/{n}")), range(100)))
        assert bodies == [f"{n}".encode() * 1000 for n in range(100)]


class PicklableContract(StoreContract):
    """For stores that travel to workers."""

    def test_it_survives_pickling(self, store: Store, root_uri: str) -> None:
        store.put(f"{root_uri}/x", b"1")
        copy: Store = pickle.loads(pickle.dumps(store))
        assert bytes(copy.get(f"{root_uri}/x")) == b"1"
