"""Notices what Ray keeps to itself: a head that is gone, a cluster without workers. Knows nothing of Ray."""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from dataset_packaging.errors import WorkerFailed

CHECK_S = 2.0
"""A look is taken at most so often."""

CONNECT_TIMEOUT_S = 2.0

ANSWER_TIMEOUT_S = 2.0
"""How long a look waits for what the cluster says of its nodes."""

HEAD_PATIENCE_S = 20.0
"""How long the head may be away: a busy one answers later, a dead one never does."""


class Head:
    """The node that a cluster cannot live without.

    Args:
        address: host:port, with or without a scheme.
        clock: seconds that only go forward.
        patience_s: how long it may be away.
    """

    def __init__(
        self, address: str, clock: Callable[[], float] = time.monotonic, patience_s: float = HEAD_PATIENCE_S
    ) -> None:
        self.address = address
        self._patience_s = patience_s
        host, _, port = address.rpartition("://")[2].rpartition(":")
        self._place = (host.strip("[]"), int(port))
        self._clock = clock
        self._seen_s = clock()

    def answers(self) -> bool:
        """Tells whether it takes a connection now. Raises WorkerFailed once it has not for its patience."""
        now = self._clock()
        try:
            socket.create_connection(self._place, CONNECT_TIMEOUT_S).close()
        except OSError as error:
            away_s = now - self._seen_s
            if away_s > self._patience_s:
                raise WorkerFailed(
                    f"the head of the Ray cluster at {self.address} is lost, it has not answered for {away_s:.0f} s "
                    f"({error}); what is finished is kept: see that it is up and RAY_ADDRESS right, and run again"
                ) from error
            return False
        self._seen_s = now
        return True

    def require(self) -> None:
        """Returns once it answers: what is asked of a lost one blocks for minutes. Raises WorkerFailed as `answers`."""
        self._seen_s = self._clock()
        while not self.answers():
            time.sleep(CHECK_S / 4)  # only asking again tells whether a head is back


class ClusterWatch:
    """Looks after one cluster between the waits of its driver.

    Args:
        head: of the cluster.
        read_resources: returns CPU and memory (bytes) of all nodes that are alive; asked only while the head answers.
        wait_s: how long a run waits for a first worker, or for another one where all are gone.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        head: Head,
        read_resources: Callable[[], Mapping[str, float]],
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.head = head
        self._read_resources = read_resources
        self._wait_s = wait_s
        self._clock = clock
        self._looked_s = self._cpus_seen_s = clock()
        self._resources = read_resources()
        self._asked: Future[Mapping[str, float]] | None = None

    @property
    def cpus(self) -> int:
        """CPUs at the last look."""
        return int(self._resources.get("CPU", 0))

    @property
    def memory_bytes(self) -> int:
        """Memory at the last look."""
        return int(self._resources.get("memory", 0))

    def look(self) -> None:
        """Asks for the head and for the CPUs, if the last look is old enough.

        Raises WorkerFailed where the head has been away for its patience, or all CPUs for `wait_s`.
        """
        now = self._clock()
        if now - self._looked_s < CHECK_S:
            return
        self._looked_s = now
        if not self.head.answers():
            return
        resources = self._ask()
        if resources is None:
            return
        self._resources = resources
        away_s = now - self._cpus_seen_s
        if self.cpus:
            self._cpus_seen_s = now
        elif away_s > self._wait_s:
            raise WorkerFailed(
                f"the Ray cluster at {self.head.address} has no worker: for {away_s:.0f} s no node with a CPU has been "
                "alive; what is finished is kept: start workers and run again"
            )

    def _ask(self) -> Mapping[str, float] | None:
        """Returns what the cluster says of itself, or None where it does not in time.

        Asked in a thread of its own: Ray waits for ever where the head is lost between its answer and the question.
        """
        if self._asked is None:
            asked = self._asked = Future()
            threading.Thread(target=_answer, args=(asked, self._read_resources), name="resources", daemon=True).start()
        try:
            resources = self._asked.result(ANSWER_TIMEOUT_S)
        except TimeoutError:
            return None
        self._asked = None
        return resources


def _answer(asked: "Future[Mapping[str, float]]", read_resources: Callable[[], Mapping[str, float]]) -> None:
    try:
        asked.set_result(read_resources())
    except Exception as error:  # handed on to whoever asked
        asked.set_exception(error)
