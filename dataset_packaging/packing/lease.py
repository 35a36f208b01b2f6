"""One run at a time: a lease in the work folder that its holder renews and that ends when the holder does."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dataset_packaging.errors import LeaseHeld, NotFound, StoreError
from dataset_packaging.io.store import Stores

LEASE_S = 90.0
"""A holder that has not renewed for so long is taken for dead."""

RENEW_S = 20.0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Who is at work.

    Attributes:
        run_id: the lease is re-entrant by it.
        host: of the holder's driver.
        process: pid and start time of the driver: on the same host its death ends the lease at once.
        expires_at_s: seconds since the epoch; clocks of hosts may differ by a minute without harm.
    """

    run_id: str
    host: str
    process: str
    expires_at_s: float


@dataclass(slots=True)
class Lease:
    """A lease that is held, as far as is known.

    Attributes:
        uri: of its object.
        nested: whether an outer block of the same run holds it and renews it.
        renewed_at_s: seconds since the epoch.
        lost: why it is not held any more; empty while it is.
    """

    uri: str
    nested: bool
    renewed_at_s: float = field(default_factory=time.time)
    lost: str = ""

    def require_held(self) -> None:
        """Raises LeaseHeld where the lease was lost: what another run has planned since must not be written over."""
        if not self.nested and not self.lost and time.time() - self.renewed_at_s > LEASE_S:
            self.lost = f"it was not renewed for {LEASE_S:.0f} s"
        if self.lost:
            raise LeaseHeld(f"the lease {self.uri} was lost ({self.lost}); nothing more is written: run again")


@contextlib.contextmanager
def hold_lease(stores: Stores, uri: str, run_id: str) -> Iterator[Lease]:
    """Holds the dataset's lease during the block, renewing it in a thread; entering twice with one run id is fine.

    Ask the lease before every step that others would see: a host that was suspended may have lost it.

    Raises LeaseHeld where another run is at work, naming it and when its lease would end.
    """
    tag, nested = _acquire(stores, uri, run_id)
    lease = Lease(uri, nested)
    if nested:
        yield lease
        return
    stop = threading.Event()
    keeper = threading.Thread(target=_keep, args=(stores, lease, run_id, tag, stop), daemon=True, name="lease")
    keeper.start()
    try:
        yield lease
    finally:
        stop.set()
        keeper.join()
        _release(stores, uri, run_id)


def _record(run_id: str) -> bytes:
    record = LeaseRecord(run_id, _host(), _process(os.getpid()), time.time() + LEASE_S)
    return msgspec.json.encode(record)


def _acquire(stores: Stores, uri: str, run_id: str) -> tuple[str, bool]:
    vanished: NotFound | None = None
    for _ in range(5):
        try:
            info = stores.put_if_absent(uri, _record(run_id))
            if info is not None:
                return info.tag, False
            data, held = stores.get_with_info(uri)
        except NotFound as error:  # released just now, or its new holder swept away the unpublished file of this try
            vanished = error
            continue
        vanished = None
        holder = _decode(data)
        if holder is not None and holder.run_id == run_id and _is_alive(holder):
            return held.tag, True
        if holder is not None and holder.run_id != run_id and _is_alive(holder):
            left = max(0.0, holder.expires_at_s - time.time())
            raise LeaseHeld(
                f"run {holder.run_id} on {holder.host} is at work on this dataset (lease {uri}, ends in {left:.0f} s "
                "unless renewed); wait for it, or terminate it and try again"
            )
        taken = stores.put_if_match(uri, _record(run_id), held.tag)
        if taken is not None:
            return taken.tag, False
    if vanished is not None:  # five times: nobody is at work, the folder cannot be made
        raise vanished
    raise LeaseHeld(f"another run took the lease {uri} just now; try again")


def _decode(data: bytes | memoryview) -> LeaseRecord | None:
    try:
        return msgspec.json.decode(data, type=LeaseRecord)
    except msgspec.DecodeError:
        return None


def _is_alive(holder: LeaseRecord) -> bool:
    """Tells whether a holder still counts: it renews its lease and, on this host, its process is there."""
    if holder.host == _host() and _process(int(holder.process.split(":")[0])) != holder.process:
        return False
    return holder.expires_at_s > time.time()


def _host() -> str:
    """Returns the name of this host with its boot and process namespace, so that equal pids are one process."""
    with contextlib.suppress(OSError):
        namespace = Path("/proc/self/ns/pid").readlink().name
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot[:8]}/{namespace}"
    return socket.gethostname()


def _process(pid: int) -> str:
    """Returns pid and start time: a pid that another process has now gives another text."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{pid}:{fields[19]}"
    return f"{pid}:gone" if pid != os.getpid() else f"{pid}:here"


def _keep(stores: Stores, lease: Lease, run_id: str, tag: str, stop: threading.Event) -> None:
    while not stop.wait(RENEW_S):
        asked_at_s = time.time()
        with contextlib.suppress(StoreError):  # tried again; `require_held` knows for how long
            renewed = stores.put_if_match(lease.uri, _record(run_id), tag)
            if renewed is None:
                lease.lost = "another run took it, since it had not been renewed in time"
                return
            tag, lease.renewed_at_s = renewed.tag, asked_at_s


def _release(stores: Stores, uri: str, run_id: str) -> None:
    with contextlib.suppress(StoreError):
        holder = _decode(stores.get(uri))
        if holder is not None and holder.run_id == run_id:
            stores.delete(uri)
