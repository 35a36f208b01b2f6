"""Local files keep the store contract, and some promises of their own."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dataset_packaging.errors import NotFound, UnsupportedKey
from dataset_packaging.io.local_store import LocalStore
from dataset_packaging.io.store import Store
from dataset_packaging_tests.contracts.store_contract import StoreContract


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return LocalStore()

    @pytest.fixture
    def root_uri(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}"

    def test_unpublished_files_are_not_objects(self, store: Store, root_uri: str, tmp_path: Path) -> None:
        with store.open_sink(f"{root_uri}/a/x") as sink:
            sink.write(b"1")
            assert len(list_names(tmp_path / "a")) == 1
            assert list(store.list(f"{root_uri}/")) == []
        with pytest.raises(UnsupportedKey):
            store.put(f"{root_uri}/.tmp-x", b"")

    def test_what_a_killed_writer_left_is_swept_in_that_folder_only(
        self, store: Store, root_uri: str, tmp_path: Path
    ) -> None:
        code = (
            "import os, sys\nfrom dataset_packaging.io.local_store import LocalStore\n"
            "sink = LocalStore().open_sink(sys.argv[1]).__enter__(); sink.write(b'1'); os._exit(0)"
        )
        for folder in ("ds/deep", "ds-other"):
            subprocess.run([sys.executable, "-c", code, f"{root_uri}/{folder}/shard"], check=True)
        store.put(f"{root_uri}/ds/keep", b"1")
        assert store.abort_uploads(f"{root_uri}/ds") == 1
        assert list_names(tmp_path / "ds/deep") == []
        assert len(list_names(tmp_path / "ds-other")) == 1
        assert bytes(store.get(f"{root_uri}/ds/keep")) == b"1"

    def test_two_writes_in_one_clock_tick_have_two_tags(self, store: Store, root_uri: str) -> None:
        tags = [store.put(f"{root_uri}/x", b"1").tag for _ in range(200)]
        assert len(set(tags)) == len(tags)

    def test_links_are_followed_and_loops_are_not(self, store: Store, root_uri: str, tmp_path: Path) -> None:
        store.put(f"{root_uri}/real/x", b"1")
        (tmp_path / "linked").symlink_to(tmp_path / "real")
        (tmp_path / "real" / "loop").symlink_to(tmp_path)
        (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
        uris = {info.uri for info in store.list(f"{root_uri}/")}
        assert {f"{root_uri}/real/x", f"{root_uri}/linked/x"} <= uris

    def test_a_folder_that_cannot_be_read_is_not_an_empty_folder(self, root_uri: str, tmp_path: Path) -> None:
        (tmp_path / "shut").mkdir()
        (tmp_path / "shut" / "x").write_bytes(b"1")
        (tmp_path / "shut").chmod(0)
        code = (
            "import os, sys\nfrom dataset_packaging.io.local_store import LocalStore\n"
            "from dataset_packaging.errors import AccessDenied\n"
            "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
            "store, root = LocalStore(), sys.argv[1]\n"
            "for ask in (lambda: list(store.list(root)), lambda: store.get(root + 'shut/x')):\n"
            "    try: ask()\n"
            "    except AccessDenied as error: assert root in error.uri, error\n"
            "    else: sys.exit('not refused')\n"
        )
        for folder in [tmp_path, *tmp_path.parents]:
            if str(folder).startswith("/tmp/pytest"):
                folder.chmod(0o755)
        subprocess.run([sys.executable, "-c", code, f"{root_uri}/"], check=True)

    def test_a_replaced_file_goes_on_being_read_as_it_was(self, store: Store, root_uri: str) -> None:
        store.put(f"{root_uri}/x", b"old" * 10_000_000)
        with store.open(f"{root_uri}/x") as file:
            file.read(3)
            store.put(f"{root_uri}/x", b"new")
            assert file.read() == b"old" * 9_999_999

    def test_a_nul_in_the_path_is_refused(self, store: Store, root_uri: str) -> None:
        for act in (lambda u: store.put(u, b""), store.get, store.head):
            with pytest.raises(UnsupportedKey):
                act(f"{root_uri}/a\0b")

    def test_a_pipe_under_an_object_s_name_is_not_waited_for(self, store: Store, root_uri: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for uri in (f"{root_uri}/pipe", "file:///dev/zero"):
            for read in (store.get, store.open, lambda uri: store.get_range(uri, 0, 1)):
                with pytest.raises(NotFound):
                    read(uri)
        assert list(store.list(f"{root_uri}/")) == []

    def test_a_file_system_without_hard_links_keeps_the_promise(
        self, store: Store, root_uri: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)  # what FAT, and many a mounted bucket, answer
        assert store.put_if_absent(f"{root_uri}/x", b"1") is not None
        assert store.put_if_absent(f"{root_uri}/x", b"2") is None
        assert bytes(store.get(f"{root_uri}/x")) == b"1"
