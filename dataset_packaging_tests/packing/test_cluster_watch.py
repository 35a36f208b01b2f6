"""How a driver learns that its cluster is gone, without a cluster: a listening socket is the head."""

import socket
import threading
from collections.abc import Iterator

import pytest

from dataset_packaging.errors import WorkerFailed
from dataset_packaging.packing import cluster_watch
from dataset_packaging.packing.cluster_watch import CHECK_S, HEAD_PATIENCE_S, ClusterWatch, Head


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_head_that_takes_connections_is_there(listening: socket.socket, scheme: str) -> None:
    assert Head(scheme + address_of(listening)).answers()


def test_a_short_absence_is_forgiven_and_a_long_one_named(listening: socket.socket, clock: Clock) -> None:
    head = Head(address_of(listening), clock)
    listening.close()
    assert not head.answers()
    clock.now_s += HEAD_PATIENCE_S
    assert not head.answers()
    clock.now_s += 1
    with pytest.raises(WorkerFailed, match=rf"head of the Ray cluster at {head.address} is lost.*21 s.*refused"):
        head.answers()


def test_a_driver_that_did_not_look_for_long_does_not_take_that_for_absence(
    listening: socket.socket, clock: Clock
) -> None:
    watch = ClusterWatch(Head(address_of(listening), clock), lambda: {"CPU": 4.0, "memory": 8e9}, 60, clock)
    clock.now_s += 3600
    watch.look()
    assert (watch.cpus, watch.memory_bytes) == (4, 8_000_000_000)


def test_a_head_that_never_answers_is_named_before_anything_is_asked_of_it(
    listening: socket.socket,
) -> None:
    address = address_of(listening)
    listening.close()
    with pytest.raises(WorkerFailed, match="is lost"):
        Head(address, patience_s=0.1).require()


def test_cpus_are_counted_again_as_nodes_come_and_go(listening: socket.socket, clock: Clock) -> None:
    counts = iter([2.0, 6.0, 0.0])
    watch = ClusterWatch(Head(address_of(listening), clock), lambda: {"CPU": next(counts)}, 60, clock)
    seen = [watch.cpus]
    for _ in range(2):
        watch.look()  # too early to look again
        clock.now_s += CHECK_S
        watch.look()
        seen.append(watch.cpus)
    assert seen == [2, 6, 0]


def test_a_cluster_without_workers_is_waited_for_as_long_as_was_said(listening: socket.socket, clock: Clock) -> None:
    counts = iter([2.0, 0.0, 0.0, 0.0])
    watch = ClusterWatch(Head(address_of(listening), clock), lambda: {"CPU": next(counts)}, 60, clock)
    for _ in range(2):
        clock.now_s += 30
        watch.look()
    clock.now_s += CHECK_S
    with pytest.raises(WorkerFailed, match="has no worker: for 62 s"):
        watch.look()


def test_a_head_that_is_lost_before_it_tells_of_its_nodes_holds_nobody_up(
    listening: socket.socket, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself waits for ever then."""
    monkeypatch.setattr(cluster_watch, "ANSWER_TIMEOUT_S", 0.1)
    told = threading.Event()
    answers = iter([{"CPU": 4.0}])

    def read_resources() -> dict[str, float]:
        return next(answers, None) or (told.wait(), {"CPU": 8.0})[1]

    watch = ClusterWatch(Head(address_of(listening), clock), read_resources, 60, clock)
    clock.now_s += CHECK_S
    watch.look()
    assert watch.cpus == 4
    listening.close()
    clock.now_s += HEAD_PATIENCE_S + 1
    with pytest.raises(WorkerFailed, match="is lost"):
        watch.look()
    told.set()
