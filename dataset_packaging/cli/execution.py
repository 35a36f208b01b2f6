"""A pipeline for commands that run it themselves, with progress on stderr and workers on Ray."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate

from dataset_packaging.cli.progress import open_progress
from dataset_packaging.cli.streams import only_own_output
from dataset_packaging.config import DatasetConfig, RuntimeConfig, read_runtime
from dataset_packaging.errors import ConfigError
from dataset_packaging.packing.executor import SerialExecutor, ray_executor
from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging.packing.reports import SilentProgress

_SMALL_BYTES = 32 << 20


def read_execution_options(args: argparse.Namespace) -> RuntimeConfig:
    """Take the settings of the process, with those that the command line names in their place."""
    runtime = read_runtime()
    return runtime.model_copy(update={"ray_address": args.ray_address}) if args.ray_address else runtime


@contextmanager
def open_pipeline(args: argparse.Namespace, dataset: DatasetConfig, task_bytes: Iterable[int]) -> Iterator[Pipeline]:
    """Open the dataset's pipeline; Ray is started when the first task needs it and gone at the end.

    Args:
        args: Of the command.
        dataset: Its configuration.
        task_bytes: Sizes of what the tasks will read. Where they are little in all, and no cluster is named, the tasks
            run in this process: they end before Ray would have started.
    """
    runtime = read_execution_options(args)
    is_small = args.ray_address is None and not _exceeds(task_bytes, _SMALL_BYTES)
    with (
        only_own_output(enabled=not args.debug) as stream,
        open_progress(stream, enabled=not args.no_progress) as progress,
        Pipeline(dataset, _open_serial if is_small else lambda: ray_executor(runtime), progress, run_id="") as pipeline,
    ):
        yield pipeline


def _open_serial() -> AbstractContextManager[SerialExecutor]:
    return nullcontext(SerialExecutor())


def _exceeds(sizes_bytes: Iterable[int], limit_bytes: int) -> bool:
    """Tell whether sizes add up to more than the limit; stops as soon as they do."""
    return any(total > limit_bytes for total in accumulate(sizes_bytes))


def read_pipeline(dataset: DatasetConfig) -> Pipeline:
    """Build a pipeline that reads what landed and runs no tasks."""
    return Pipeline(dataset, _open_serial, SilentProgress(), run_id="")


def require_reasons(option: str, texts: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Read the reject reasons of a repeatable option, `a,b` being two; pure.

    Raises:
        ConfigError: One is not among the known ones.
    """
    reasons = [reason.strip() for text in texts for reason in text.split(",") if reason.strip()]
    for reason in reasons:
        if reason not in known:
            raise ConfigError(f"{option}: {reason!r} is no reject reason; expected one of {', '.join(known)}")
    return tuple(dict.fromkeys(reasons))
