"""Machines that run out of something: disk, shared memory, memory. In a mount namespace of the test's own."""

import os
import subprocess
from pathlib import Path

import pytest

from dataset_packaging_tests.checker import check
from dataset_packaging_tests.deploy.packs import pack, published_shards, write_dataset

LOCAL_RAY = {"RAY_ADDRESS": "local", "DATASET_PACKAGING_RAY_CPUS": "1"}


def with_small_disk(folder: Path, size: str) -> list[str]:
    """Returns a command that runs the next one where `folder` is a disk of this size; nobody else sees it."""
    enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*enter, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make a mount namespace: run the test as root")
    return [*enter, "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs "{folder}" && exec "$@"', "sh"]


def test_a_full_disk_is_named_and_the_next_run_resumes(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, shards=3)
    outputs = tmp_path / "out/shards"
    outputs.mkdir(parents=True)
    code, said = pack(dataset, LOCAL_RAY, with_small_disk(outputs, "1m"))
    assert code == 3
    assert "No space left on device" in said
    assert published_shards(dataset) == []
    assert pack(dataset, LOCAL_RAY) == (0, "")
    assert check(dataset) == []


def test_a_small_shared_memory_that_is_full_is_enough(tmp_path: Path) -> None:
    """RAY-05: containers have 64 MB of it unless told otherwise; here others have taken all of it."""
    dataset = write_dataset(tmp_path, shards=1)
    fill = ["sh", "-c", 'head -c 64M /dev/zero >/dev/shm/full 2>/dev/null; exec "$@"', "sh"]
    assert pack(dataset, LOCAL_RAY, [*with_small_disk(Path("/dev/shm"), "16m"), *fill]) == (0, "")
    assert check(dataset) == []


def test_workers_that_are_stopped_for_lack_of_memory_are_named(tmp_path: Path) -> None:
    """RAY-04: bounded attempts, and not taken for bad images."""
    dataset = write_dataset(tmp_path, shards=1)
    scarce = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "100"}
    code, said = pack(dataset, {**LOCAL_RAY, **scarce})
    assert code == 3
    assert "OutOfMemoryError" in said
    assert published_shards(dataset) == []
