"""Datasets that take a while, and commands that pack them in a process of their own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH_PX, HEIGHT_PX = 1600, 1200
ROWS_PER_SHARD = 5


def write_dataset(folder: Path, shards: int, name: str = "slow") -> Path:
    """Writes a dataset of so many shards, each a few tenths of a second of decoding; returns its YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(7).integers(0, 60, (HEIGHT_PX, WIDTH_PX, 3), dtype=np.uint8)
    ramp = np.linspace(0, 190, WIDTH_PX, dtype=np.uint8)[None, :, None]
    Image.fromarray(noise + ramp).save(folder / "picture.webp", quality=60, method=0)
    size = {"width": WIDTH_PX, "height": HEIGHT_PX}
    with (folder / f"{name}.jsonl").open("w") as file:
        for number in range(shards * ROWS_PER_SHARD):
            file.write(json.dumps({"id": f"row-{number:05d}", "s3_image_path": "picture.webp", **size}) + "\n")
    path = folder / f"{name}.yaml"
    path.write_text(
        f"name: {name}\nmanifest: {name}.jsonl\noutput_prefix: out/shards\n"
        "mapping: {direct: {image_key: id}, base_uri: .}\n"
        f"packing: {{shard_size: {ROWS_PER_SHARD}}}\n"
    )
    return path


def published_shards(dataset: Path) -> list[Path]:
    """Returns the shards that stand at this moment, in the order of their names."""
    return sorted((dataset.parent / "out/shards").rglob("shard-*.parquet"))


class PackProcess:
    """`dataset-packaging pack` in a process of its own; leaving the block ends it.

    Args:
        dataset: the YAML.
        environ: variables beside those of this process.
        prefix: a command that runs the command.
    """

    def __init__(self, dataset: Path, environ: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        self._dataset = dataset
        self._environ = {**os.environ, "DAGSTER_HOME": str(dataset.parent / "dagster_home"), **environ}
        self._prefix = prefix
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "PackProcess":
        command = [sys.executable, "-m", "dataset_packaging.cli.main", "pack", str(self._dataset), "--no-progress"]
        self._process = subprocess.Popen(
            [*self._prefix, *command],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = 200) -> None:
        """Asks `ready` until it says yes while the process runs. Raises AssertionError where it never does."""
        assert self._process is not None
        end = time.monotonic() + timeout_s
        while not ready():
            if self._process.poll() is not None:
                raise AssertionError(f"pack ended too early: {self.finish()}")
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.1)  # the state of other processes is seen only by looking

    def terminate(self) -> None:
        """Sends SIGTERM."""
        assert self._process is not None
        self._process.terminate()

    def finish(self, timeout_s: float = 240) -> tuple[int, str]:
        """Waits for the end; returns exit code and what was said on stderr."""
        assert self._process is not None
        _, said = self._process.communicate(timeout=timeout_s)
        return self._process.returncode, said


def pack(dataset: Path, environ: Mapping[str, str], prefix: Sequence[str] = ()) -> tuple[int, str]:
    """Packs to the end; returns exit code and stderr."""
    with PackProcess(dataset, environ, prefix) as process:
        return process.finish()
