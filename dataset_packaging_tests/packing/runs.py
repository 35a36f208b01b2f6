"""Runs of the pipeline in processes of their own: to be killed, on the serial executor or on Ray."""

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from multiprocessing.context import ForkServerContext
from pathlib import Path

import psutil

from dataset_packaging.config import load_dataset, read_runtime
from dataset_packaging.io import s3_sink
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.executor import Executor, ray_executor
from dataset_packaging.packing.reports import RunOptions
from dataset_packaging_tests.packing import injection
from dataset_packaging_tests.packing.injection import Kill
from dataset_packaging_tests.packing.photo_dataset import pack

REPOSITORY = Path(__file__).parents[2]
SITE = Path(__file__).parent / "injected_site"


def _fork_server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def pack_until_killed(
    yaml: Path,
    root: str,
    kill: Kill,
    options: RunOptions = RunOptions(),  # noqa: B008
    *,
    environ: Mapping[str, str] | None = None,
    part_bytes: int = s3_sink.PART_BYTES,
) -> int:
    """Packs in another process, serially; returns its exit code, negative where a signal ended it.

    Args:
        yaml: the dataset.
        root: URI below which steps count.
        kill: whom and when.
        options: of the run.
        environ: variables to set.
        part_bytes: size of the parts of uploads.
    """
    arguments = (yaml, root, kill, options, dict(environ or {}), part_bytes)
    process = _fork_server().Process(target=_pack_watched, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _pack_watched(
    yaml: Path, root: str, kill: Kill, options: RunOptions, environ: dict[str, str], part_bytes: int
) -> None:
    os.environ.update(environ)
    s3_sink.PART_BYTES = part_bytes
    with injection.watch(Stores, root, replace(kill, driver_pid=os.getpid())):
        pack(load_dataset(yaml), options)


def on_ray() -> AbstractContextManager[Executor]:
    """Opens a private Ray cluster of two slots."""
    return ray_executor(read_runtime({**os.environ, "RAY_ADDRESS": "local", "DATASET_PACKAGING_RAY_CPUS": "2"}))


def pack_on_ray(
    yaml: Path,
    folder: Path,
    *,
    root: str = "",
    kill: Kill | None = None,
    decoder: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Packs in another process on Ray, with what is injected into every Python process of the run."""
    folder.mkdir(exist_ok=True)
    wish = folder / "injected.json"
    told = None if kill is None else asdict(kill) | {"hits": str(kill.hits)}
    wish.write_text(json.dumps({"kill": told, "root": root, "decoder": decoder}))
    environ = {
        **os.environ,
        "INJECTED": str(wish),
        "PYTHONPATH": os.pathsep.join([str(SITE), str(REPOSITORY)]),
        "RAY_ADDRESS": "local",
    }
    run = subprocess.run(
        [sys.executable, "-m", __name__, str(yaml), str(wish)],
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    # Workers end when they notice that their driver is gone; until then they may still be writing.
    alive = psutil.wait_procs(list(_processes_of(wish)), timeout=60)[1]
    assert not alive
    return run


def _processes_of(wish: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("INJECTED") == str(wish):
                yield process


def main(yaml: str, wish: str) -> None:
    """Packs on Ray; a kill learns who the driver is before any worker starts. Prints what was done as JSON."""
    path = Path(wish)
    told = json.loads(path.read_text())
    if told["kill"] is not None:
        told["kill"]["driver_pid"] = os.getpid()
        path.write_text(json.dumps(told))
    packed = pack(load_dataset(yaml), executor=on_ray)
    total = packed.ledger.total
    print(json.dumps({"written": packed.written, "problems": packed.problems, "rejected": total.rejected}))


KILLED = -signal.SIGKILL

if __name__ == "__main__":
    main(*sys.argv[1:])
