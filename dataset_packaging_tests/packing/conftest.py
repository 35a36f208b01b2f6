"""Where the tests of the pipeline write: in memory where there is room, since they write many small files durably."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 << 30


def scratch_folder() -> Path | None:
    """Returns a folder in memory, or None where there is none with enough room."""
    return _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES else None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own; gone when it ends."""
    with tempfile.TemporaryDirectory(prefix="test-", dir=scratch_folder()) as folder:
        yield Path(folder)
