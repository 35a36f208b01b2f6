"""Where the tests of the pipeline write: in memory where there is room, since they write many small files durably."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 << 30


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder of the test's own; gone when it ends."""
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    with tempfile.TemporaryDirectory(prefix="test-", dir=_MEMORY if has_room else None) as folder:
        yield Path(folder)
