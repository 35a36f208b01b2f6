"""Where tasks run: in this process, or on a Ray cluster. The only module that imports Ray.

A task is a module-level function of one plain argument that returns plain data. Whatever happens to it comes back as a
`TaskResult`; an executor raises only where nothing can run at all.
"""

import contextlib
import os
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from dataset_packaging.config import RuntimeConfig, set_ray_environment
from dataset_packaging.errors import DecoderStuck, PackagingError, WorkerFailed
from dataset_packaging.io.store import shared_counts
from dataset_packaging.packing.cluster_watch import HEAD_PATIENCE_S, ClusterWatch, Head
from dataset_packaging.packing.log_relay import LogLine, collected_logs, log_again

Item = TypeVar("Item")
Value = TypeVar("Value")

FailureKind = Literal["raised", "worker_died", "out_of_memory", "node_lost"]

_OBJECT_STORE_BYTES = 256 << 20
"""Results are counts: what passes through shared memory is small whatever the dataset."""

GROUP_THREADS = 2
"""Items of one task that run side by side."""

MAX_LOST_WORKERS = 3
"""Times that a task may lose its worker before that counts as its own fault."""

MAX_LOST_NODES = 10
"""Times that a task may lose its node."""

SMALLEST_WORKER_BYTES = 6 << 30
"""What a worker may allocate at the least: its base, its look-ahead and the largest decode."""

_DIED_OF = "(most often killed by the kernel, where memory runs out: give each worker more)"
"""Ray does not know why a process of its own is gone, and neither does anybody but the kernel's log."""

_POLL_S = 0.5
"""How long a wait inside Ray may last: an interruption of the run is noticed only between two waits."""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a task has no value.

    Attributes:
        kind: `raised` (the function), `worker_died` (its process), `out_of_memory`, `node_lost` (not the task's fault).
        class_name: of the exception where it happened.
        message: one line.
        traceback: text from the worker; may be empty.
        error: the exception itself where it is one of this package.
    """

    kind: FailureKind
    class_name: str
    message: str
    traceback: str = ""
    error: PackagingError | None = None


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[Item, Value]):
    """The end of one task: a value or a failure."""

    item: Item
    value: Value | None
    failure: TaskFailure | None

    def require_value(self) -> Value:
        """Returns the value, or raises the task's own error, or `WorkerFailed` with the original class name."""
        if self.failure is None:
            return self.value  # type: ignore[return-value]
        if self.failure.error is not None:
            raise self.failure.error
        raise WorkerFailed(f"{self.failure.class_name}: {self.failure.message}")


class Executor(Protocol):
    """Runs tasks with a bounded number in flight."""

    @property
    def slots(self) -> int:
        """How many tasks can run at once."""
        ...

    @property
    def worker_memory_bytes(self) -> int:
        """What a task may allocate, so that an allocation without end fails in its worker alone; 0: no limit."""
        ...

    @property
    def counts(self) -> Counter[str]:
        """What all tasks so far did to their stores (see `Stores.stats`), those apart whose worker was lost."""
        ...

    def map(
        self,
        function: Callable[[Item], Value],
        items: Iterable[Item],
        *,
        max_in_flight: int | None = None,
        weigh: Callable[[Item], float] | None = None,
    ) -> Iterator[TaskResult[Item, Value]]:
        """Yields results as tasks end, in no particular order.

        Items are taken from the iterable only as places become free. Closing the iterator, or an exception in the
        consumer, cancels what is in flight.

        Args:
            function: of one item; the same item may be tried again.
            items: plain data.
            max_in_flight: tasks at once; None: so many that no slot waits for the driver.
            weigh: what part of a task of decent size an item is; items that follow each other share a task, in which
                two run side by side, until they weigh 1. None: each item is a task.
        """
        ...


_End = tuple[Value | None, TaskFailure | None]
"""How one item ended."""


def _run_task(function: Callable[[Item], Value], item: Item) -> tuple[Value | None, TaskFailure | None]:
    """Runs one task; the broad except around one task (the other one stands around one image)."""
    try:
        return function(item), None
    except MemoryError as error:
        return None, TaskFailure("out_of_memory", type(error).__name__, str(error), traceback.format_exc())
    except Exception as error:
        own = error if isinstance(error, PackagingError) else None
        return None, TaskFailure("raised", type(error).__name__, _first_line(error), traceback.format_exc(), own)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")


def _last_line(error: BaseException) -> str:
    return str(error).strip().rpartition("\n")[2]


def _run_group(function: Callable[[Item], Value], items: Sequence[Item]) -> "list[_End[Value]]":
    """Runs the items of one task; two at a time, so that one computes while the other waits for a store."""
    if len(items) == 1:
        return [_run_task(function, items[0])]
    with ThreadPoolExecutor(GROUP_THREADS, "item") as pool:
        return list(pool.map(lambda item: _run_task(function, item), items))


def _run_counted(function: Callable[[Item], Value], items: Sequence[Item]) -> "tuple[list[_End[Value]], Counter[str]]":
    """Runs the items of one task; returns their ends, and what this process did to its stores meanwhile."""
    before = shared_counts().read()
    ends = _run_group(function, items)
    done = Counter(shared_counts().read())
    done.subtract(before)
    return ends, done


def _run_in_worker(
    function: Callable[[Item], Value], items: Sequence[Item]
) -> "tuple[list[_End[Value]], Counter[str], list[LogLine]]":
    """Runs a task in a process that can be given up: a decode that hangs cannot be stopped in any other way."""
    with collected_logs() as lines:
        ends, counts = _run_counted(function, items)
    if any(failure is not None and isinstance(failure.error, DecoderStuck) for _, failure in ends):
        os._exit(1)
    return ends, counts, lines


def _grouped(items: Iterable[Item], weigh: Callable[[Item], float] | None) -> Iterator[tuple[Item, ...]]:
    """Yields the items of each task; lazily: what is in a task is decided when it is asked for."""
    group: list[Item] = []
    weight = 0.0
    for item in items:
        group.append(item)
        weight += 1.0 if weigh is None else weigh(item)
        if weight >= 1.0:
            yield tuple(group)
            group, weight = [], 0.0
    if group:
        yield tuple(group)


def map_surviving(
    executor: Executor,
    function: Callable[[Item], Value],
    items: Iterable[Item],
    weigh: Callable[[Item], float] | None = None,
) -> Iterator[TaskResult[Item, Value]]:
    """Does what `Executor.map` does, and gives tasks that lost their worker or their node to another one.

    For tasks that are safe to repeat. A task that loses more than MAX_LOST_WORKERS workers or MAX_LOST_NODES nodes
    comes back with its failure.
    """
    losses: dict[int, int] = {}
    waiting = items
    while True:
        lost: list[Item] = []
        for result in executor.map(function, waiting, weigh=weigh):
            failure = result.failure
            limit = 0 if failure is None else _LOSSES_ALLOWED.get(failure.kind, 0)
            losses[id(result.item)] = losses.get(id(result.item), 0) + 1
            if losses[id(result.item)] <= limit:
                lost.append(result.item)  # which keeps the id from being given to another item
                continue
            del losses[id(result.item)]
            yield result
        if not lost:
            return
        waiting = lost


_LOSSES_ALLOWED: dict[FailureKind, int] = {
    "worker_died": MAX_LOST_WORKERS,
    "out_of_memory": MAX_LOST_WORKERS,
    "node_lost": MAX_LOST_NODES,
}


class SerialExecutor:
    """Runs each task in this process when its result is asked for; a decode that hangs or crashes takes it along."""

    slots = 1
    worker_memory_bytes = 0

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def map(
        self,
        function: Callable[[Item], Value],
        items: Iterable[Item],
        *,
        max_in_flight: int | None = None,
        weigh: Callable[[Item], float] | None = None,
    ) -> Iterator[TaskResult[Item, Value]]:
        """See `Executor.map`; results come in the order of the items."""
        for group in _grouped(items, weigh):
            ends, counts = _run_counted(function, group)
            self.counts.update(counts)
            for item, (value, failure) in zip(group, ends, strict=True):
                yield TaskResult(item, value, failure)


class RayExecutor:
    """Runs tasks on Ray: a private local cluster, or one that is joined by its address.

    Made by `ray_executor`, which owns the connection.

    Args:
        ray: the module, connected.
        watch: of the cluster that it is connected to.
        can_grow: whether nodes may join while it is used.
    """

    def __init__(self, ray: Any, watch: ClusterWatch, *, can_grow: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self._ray = ray
        self._watch = watch
        self._can_grow = can_grow

    @property
    def slots(self) -> int:
        """CPUs of the cluster as they were seen last, at least 1."""
        return max(1, self._watch.cpus)

    @property
    def worker_memory_bytes(self) -> int:
        """A worker's share of the cluster's memory, at least SMALLEST_WORKER_BYTES."""
        return max(SMALLEST_WORKER_BYTES, self._watch.memory_bytes // self.slots)

    @property
    def _in_flight(self) -> int:
        """One task more than slots, so that none waits for the driver.

        Where nodes may join it is twice the slots: what waits is the demand that an autoscaler answers with nodes, and
        each of its answers doubles it.
        """
        return 2 * self.slots if self._can_grow else self.slots + 1

    def map(
        self,
        function: Callable[[Item], Value],
        items: Iterable[Item],
        *,
        max_in_flight: int | None = None,
        weigh: Callable[[Item], float] | None = None,
    ) -> Iterator[TaskResult[Item, Value]]:
        """See `Executor.map`; by default a few tasks more than slots are in flight.

        Where the process of several items dies, each of them is tried again in a task of its own: a death is the fault
        of one of them. Raises WorkerFailed where the head of the cluster is lost, or no worker is left and none comes.
        """
        self._watch.head.require()
        remote = self._ray.remote(num_cpus=1, max_retries=0)(_run_in_worker).options(name=function.__name__)
        waiting = _grouped(items, weigh)
        alone: deque[Item] = deque()
        live: dict[Any, tuple[Item, ...]] = {}
        try:
            while True:
                while len(live) < (max_in_flight or self._in_flight):
                    group = (alone.popleft(),) if alone else next(waiting, ())
                    if not group:
                        break
                    live[remote.remote(function, group)] = group
                if not live:
                    return
                for reference in self._wait(list(live)):
                    group = live.pop(reference)
                    ends = self._ends(reference)
                    if isinstance(ends, TaskFailure) and len(group) > 1:
                        alone.extend(group)
                        continue
                    told = [(None, ends)] if isinstance(ends, TaskFailure) else ends
                    for item, (value, failure) in zip(group, told, strict=True):
                        yield TaskResult(item, value, failure)
        finally:
            self._cancel(live)

    def _wait(self, references: list[Any]) -> list[Any]:
        try:
            ready: list[Any] = self._ray.wait(references, timeout=_POLL_S)[0]
            self._watch.look()
        except ConnectionError as error:
            raise WorkerFailed(
                f"the connection to the Ray cluster is lost ({_first_line(error)}); what is finished is kept: "
                "run again when its head is back"
            ) from error
        except SystemError as error:
            # An interruption of the run that arrives inside Ray's C code surfaces as SystemError.
            if error.__cause__ is not None:
                raise error.__cause__ from None
            raise
        return ready

    def _ends(self, reference: Any) -> "list[_End[Any]] | TaskFailure":
        """Returns how each item of a task ended, or what became of the task where it brought nothing back."""
        exceptions = self._ray.exceptions
        try:
            ends: list[_End[Any]]
            ends, counts, lines = self._ray.get(reference)
            self.counts.update(counts)
            log_again(lines)
            return ends
        except exceptions.OutOfMemoryError as error:
            kind: FailureKind = "out_of_memory"
            cause: Exception = error
        except (exceptions.NodeDiedError, exceptions.ObjectLostError, exceptions.OwnerDiedError) as error:
            kind, cause = "node_lost", error
        except exceptions.RayTaskError as error:
            # Not of the task's function, which raises nothing: the worker could not load or unpack it.
            last_line = _last_line(error)
            kind = "out_of_memory" if "MemoryError" in last_line else "raised"
            return TaskFailure(kind, type(error).__name__, last_line, str(error))
        except exceptions.WorkerCrashedError as error:
            return TaskFailure("worker_died", type(error).__name__, f"{_first_line(error)} {_DIED_OF}")
        except exceptions.RayError as error:
            kind, cause = "worker_died", error
        return TaskFailure(kind, type(cause).__name__, _first_line(cause))

    def _cancel(self, live: dict[Any, Any]) -> None:
        for reference in live:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)
        deadline = time.monotonic() + 3
        pending = list(live)
        # Of a cluster that is lost nothing can be cancelled, nor waited for: what lost it must stay the error.
        with contextlib.suppress(Exception):
            while pending and time.monotonic() < deadline:
                _, pending = self._ray.wait(pending, num_returns=len(pending), timeout=_POLL_S)


def available_cpus() -> int:
    """Returns the CPUs that this process may use: the smaller of its affinity mask and its cgroup's quota."""
    affinity = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max") as file:  # noqa: PTH123
        quota, period = file.read().split()
        if quota != "max":
            return max(1, min(affinity, int(quota) // int(period)))
    return affinity


def available_memory_bytes() -> int:
    """Returns the memory that this process may use: the smaller of the machine's and its cgroup's limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:  # noqa: PTH123
            return min(physical, int(file.read()))
    return physical


@contextlib.contextmanager
def ray_executor(runtime: RuntimeConfig) -> Iterator[RayExecutor]:
    """Connects to Ray for the duration of the block and yields the executor.

    A local cluster is sized from the container's real limits and is gone afterwards; from a joined cluster only this
    driver's tasks are. Raises WorkerFailed where Ray cannot be started or reached.
    """
    set_ray_environment()
    import ray

    local = runtime.ray_address == "local"
    options: dict[str, Any] = {}
    if local:
        options = {
            "num_cpus": runtime.ray_cpus or available_cpus(),
            "object_store_memory": runtime.ray_object_store_bytes or _OBJECT_STORE_BYTES,
            "_memory": runtime.ray_memory_bytes or available_memory_bytes(),
            "include_dashboard": False,
        }
    patience_s = min(HEAD_PATIENCE_S, runtime.ray_wait_s)
    if ":" in runtime.ray_address:
        Head(runtime.ray_address, patience_s=patience_s).require()
    try:
        ray.init(address=runtime.ray_address, log_to_driver=True, logging_level="ERROR", **options)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        hint = "is there room in /tmp and /dev/shm?" if local else "is the head node up, and RAY_ADDRESS right?"
        message = _first_line(error) or type(error).__name__
        if message.endswith(":"):  # what went wrong at the head comes as a traceback below
            message = f"{message} {_last_line(error)}"
        raise WorkerFailed(f"Ray at {runtime.ray_address!r} cannot be used: {message}; {hint}") from error
    try:
        through_client = runtime.ray_address.startswith("ray://")
        address = runtime.ray_address if through_client else ray.get_runtime_context().gcs_address
        head = Head(address, patience_s=patience_s)
        yield RayExecutor(ray, ClusterWatch(head, ray.cluster_resources, runtime.ray_wait_s), can_grow=not local)
    finally:
        ray.shutdown()
