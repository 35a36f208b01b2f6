"""What an executor promises, on a real Ray cluster and in this process."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dataset_packaging.config import read_runtime
from dataset_packaging.errors import NotFound, WorkerFailed
from dataset_packaging.packing.executor import (
    SMALLEST_WORKER_BYTES,
    Executor,
    RayExecutor,
    SerialExecutor,
    map_surviving,
    ray_executor,
)
from dataset_packaging_tests.packing import ray_tasks


@pytest.fixture(scope="module")
def on_ray() -> Iterator[RayExecutor]:
    with ray_executor(read_runtime({**os.environ, "RAY_ADDRESS": "local"})) as executor:
        yield executor


@pytest.fixture(params=["serial", "ray"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return SerialExecutor() if request.param == "serial" else request.getfixturevalue("on_ray")


def test_every_item_gets_one_result(executor: Executor) -> None:
    results = {result.item: result.require_value() for result in executor.map(ray_tasks.double, range(20))}
    assert results == {number: 2 * number for number in range(20)}


@pytest.mark.parametrize(
    ("task", "class_name", "message"),
    [
        (ray_tasks.raise_foreign, "TwoArgumentError", "E42: task 7"),
        (ray_tasks.raise_denied, "ClientError", "AccessDenied"),
    ],
)
def test_a_foreign_exception_comes_back_as_plain_data_with_its_class(
    executor: Executor, task: Callable[[int], int], class_name: str, message: str
) -> None:
    """RAY-01: an exception that cannot be pickled must not hide the cause or kill the driver."""
    (result,) = executor.map(task, [7])
    assert result.failure is not None
    assert (result.failure.kind, result.failure.class_name) == ("raised", class_name)
    assert message in result.failure.message
    with pytest.raises(WorkerFailed, match=f"{class_name}: .*{message}"):
        result.require_value()


def test_an_exception_of_this_package_is_raised_as_it_is(executor: Executor) -> None:
    (result,) = executor.map(ray_tasks.raise_own, [3])
    with pytest.raises(NotFound) as caught:
        result.require_value()
    assert (caught.value.uri, caught.value.detail) == ("s3://bucket/3", "gone")


def test_a_dead_worker_costs_its_own_task_only(on_ray: RayExecutor) -> None:
    """RAY-04: the death of a worker is told, not retried in silence."""
    kinds = {
        result.item: result.failure.kind if result.failure else None for result in on_ray.map(ray_tasks.die, range(4))
    }
    assert kinds == {0: None, 1: "worker_died", 2: None, 3: "worker_died"}


def test_items_are_taken_only_as_places_become_free(executor: Executor) -> None:
    """RAY-03: submitting everything at once fills the object store."""
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(50):
            taken += 1
            yield number

    for finished, _ in enumerate(executor.map(ray_tasks.double, items(), max_in_flight=3), 1):
        assert taken - finished <= 3


def test_no_more_tasks_run_at_once_than_there_are_slots(on_ray: RayExecutor, tmp_path: Path) -> None:
    running = [result.require_value() for result in on_ray.map(ray_tasks.mark_running, [str(tmp_path)] * 12)]
    assert max(running) <= on_ray.slots


def test_leaving_early_cancels_what_is_in_flight(on_ray: RayExecutor, tmp_path: Path) -> None:
    """DAG-02: after a cancelled run nothing is at work any more."""
    marks = [tmp_path / f"task-{number}" for number in range(2)]
    results = on_ray.map(ray_tasks.touch_and_wait, [str(mark) for mark in marks], max_in_flight=2)

    class StopTheRunError(Exception):
        pass

    original_wait = on_ray._wait

    def wait_until_running(references: list[object]) -> list[object]:
        if any(mark.exists() for mark in marks):
            raise StopTheRunError
        return original_wait(references)

    on_ray._wait = wait_until_running  # type: ignore[method-assign]
    try:
        started = time.monotonic()
        with pytest.raises(StopTheRunError):
            next(results)
        assert time.monotonic() - started < 60
    finally:
        on_ray._wait = original_wait  # type: ignore[method-assign]
    # The slots are free again: a task that needs one ends at once.
    assert [result.require_value() for result in on_ray.map(ray_tasks.double, [21])] == [42]
    assert not any(mark.with_suffix(".late").exists() for mark in marks)


def test_small_items_share_a_task_and_each_has_its_own_end(executor: Executor) -> None:
    """SCALE: a task for every tiny shard would cost more than the shards; one that fails must not fail its group."""
    results = list(executor.map(ray_tasks.tell_task, range(40), weigh=lambda number: 0.1 if number < 30 else 1.0))
    assert sorted(result.item for result in results) == list(range(40))
    failed = {result.item: result.failure.class_name for result in results if result.failure is not None}
    assert failed == {7: "NotFound"}


def test_a_dead_worker_costs_no_other_item_of_its_group(on_ray: RayExecutor) -> None:
    """RAY-04: the items of a task that died are tried again one by one, and only the culprit is told as dead."""
    results = on_ray.map(ray_tasks.die_of_seven, range(10), weigh=lambda _: 0.1)
    kinds = {result.item: result.failure.kind if result.failure else None for result in results}
    assert kinds == {number: "worker_died" if number == 7 else None for number in range(10)}


def test_a_task_whose_worker_dies_is_given_to_another(on_ray: RayExecutor, tmp_path: Path) -> None:
    """DAG-13: a dead worker costs a retry of its own task, and nothing else."""
    marks = [str(tmp_path / f"mark-{number}") for number in range(4)]
    results = {result.item: result for result in map_surviving(on_ray, ray_tasks.die_once, marks)}
    assert {item: result.require_value() for item, result in results.items()} == {mark: mark for mark in marks}


def test_a_task_that_kills_every_worker_comes_back_with_its_failure(on_ray: RayExecutor) -> None:
    """RAY-04: attempts are bounded."""
    results = {result.item: result for result in map_surviving(on_ray, ray_tasks.die, [1, 2])}
    assert results[2].require_value() == 2
    assert results[1].failure is not None
    assert results[1].failure.kind == "worker_died"
    with pytest.raises(WorkerFailed, match="killed by the kernel, where memory runs out"):
        results[1].require_value()


def test_a_task_that_finds_no_memory_is_no_fault_of_the_program(executor: Executor) -> None:
    (result,) = executor.map(ray_tasks.starve, [1])
    assert result.failure is not None
    assert result.failure.kind == "out_of_memory"


def test_a_worker_that_finds_no_memory_to_unpack_its_task_is_no_fault_of_the_program(on_ray: RayExecutor) -> None:
    """A decoder that starved there may still hold what it took: the task must go to another worker."""
    (result,) = on_ray.map(ray_tasks.touch_and_wait, [ray_tasks.Large()])  # type: ignore[list-item]
    assert result.failure is not None
    assert result.failure.kind == "out_of_memory"


def test_a_worker_with_a_decoder_that_hangs_is_given_up(on_ray: RayExecutor, tmp_path: Path) -> None:
    """Its thread cannot be stopped; the next task must find another process."""
    mark = tmp_path / "pid"
    (result,) = on_ray.map(ray_tasks.hang, [str(mark)])
    assert result.failure is not None
    assert result.failure.kind == "worker_died"
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(mark.read_text())).wait(timeout=60)


def test_a_worker_may_not_take_the_memory_of_the_whole_machine(on_ray: RayExecutor) -> None:
    """RAY-05."""
    assert on_ray.worker_memory_bytes >= SMALLEST_WORKER_BYTES
    assert SerialExecutor().worker_memory_bytes == 0


TELL_RESOURCES = """
import json, os
from dataset_packaging.config import read_runtime
from dataset_packaging.packing.executor import available_memory_bytes, ray_executor
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
with ray_executor(read_runtime()):
    import ray
    print(json.dumps([ray.cluster_resources(), available_memory_bytes()]))
"""


@pytest.mark.parametrize("given", [False, True], ids=["from the container", "from the settings"])
def test_a_local_ray_has_the_limits_of_the_container_or_of_the_settings(given: bool) -> None:
    """RAY-05: CPUs are those that this process may use, not those of the host; settings win."""
    settings = {"CPUS": "3", "MEMORY_BYTES": str(3 << 30), "OBJECT_STORE_BYTES": str(90 << 20)} if given else {}
    environ = {**os.environ, "RAY_ADDRESS": "local"} | {
        f"DATASET_PACKAGING_RAY_{name}": value for name, value in settings.items()
    }
    told = subprocess.run(
        [sys.executable, "-c", TELL_RESOURCES], env=environ, capture_output=True, text=True, check=True
    )
    resources, memory_bytes = json.loads(told.stdout.splitlines()[-1])
    assert resources["CPU"] == (3 if given else 1)
    assert resources["memory"] == (3 << 30 if given else memory_bytes)
    assert resources["object_store_memory"] <= 256 << 20
