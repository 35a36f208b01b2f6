"""Bucket index to shards: which row goes where, and the fingerprint of what a shard will hold. Pure.

A plan only grows. Rows that have a place keep it; new rows open new shards after the last one. A place that its row
left (moved to another bucket, retried into a new shard, removed from the manifest) becomes a tombstone and is never
given to another row.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dataset_packaging.core.bucketing import Bucket

U64 = npt.NDArray[np.uint64]

ESTIMATED_BYTES_PER_PX = 0.35
"""For rows of which nobody told a byte count: typical of photographs at JPEG quality 85 to 92."""


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """One line of the plan.

    Attributes:
        bucket: where the shard stands.
        number: 0-based, without gaps within the bucket.
        rows: places in the shard, tombstones included.
        live_rows: places that hold a row to pack; 0 <= live_rows <= rows.
        estimated_bytes: of the images of the live rows.
        estimated_px: of the images of the live rows; 0 where unknown.
        fingerprint: hex; of everything planned that reaches the shard's bytes, the configuration apart.
        sidecar_fingerprint: hex; of everything planned that reaches only the sidecar's bytes.
    """

    bucket: Bucket
    number: int
    rows: int
    live_rows: int
    estimated_bytes: int
    estimated_px: int
    fingerprint: str
    sidecar_fingerprint: str


@dataclass(slots=True)
class ShardAssigner:
    """Gives new rows of one bucket their shard and position, in the order in which they come.

    A shard is closed when it holds `shard_size` rows or when the next row would take it above `max_shard_bytes`; a
    single row above the limit gets a shard of its own. Memory is constant.

    Attributes:
        shard_size: rows per shard, at least 1.
        max_shard_bytes: a target for the estimated image bytes of a shard.
        next_number: the number of the first new shard: the count of the shards that exist.
    """

    shard_size: int
    max_shard_bytes: int
    next_number: int
    _rows: int = field(default=0)
    _bytes: int = field(default=0)

    def assign(self, estimated_bytes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Returns (shard number, position in the shard) of each row; both have the shape of `estimated_bytes`."""
        count = len(estimated_bytes)
        shard = np.empty(count, np.int32)
        position = np.empty(count, np.int32)
        total = np.concatenate(([0], np.cumsum(estimated_bytes)))
        start = 0
        while start < count:
            room = min(count - start, self.shard_size - self._rows)
            budget = self.max_shard_bytes - self._bytes
            fit = int(np.searchsorted(total[start + 1 : start + room + 1] - total[start], budget, side="right"))
            if fit == 0 and self._rows == 0:
                fit = 1
            if fit:
                shard[start : start + fit] = self.next_number
                position[start : start + fit] = np.arange(self._rows, self._rows + fit)
                self._rows += fit
                self._bytes += int(total[start + fit] - total[start])
                start += fit
            if self._rows == self.shard_size or fit < room:
                self._close()
        return shard, position

    @property
    def shard_count(self) -> int:
        """The number of shards of the bucket so far, the open one included."""
        return self.next_number + (self._rows > 0)

    def _close(self) -> None:
        self.next_number += 1
        self._rows = self._bytes = 0


@dataclass(slots=True)
class ShardTotals:
    """What accumulates per shard of one bucket while its rows stream by, in any order.

    Row hashes are folded by addition of a mix of hash and position, so that a fingerprint does not depend on the order
    in which rows arrive and needs 40 bytes per shard, not 16 per row.
    """

    rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    live_rows: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    estimated_bytes: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    estimated_px: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    main: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    side: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))

    def add_live(
        self,
        shard: npt.NDArray[np.int32],
        position: npt.NDArray[np.int32],
        main_hash: U64,
        side_hash: U64,
        estimated_bytes: npt.NDArray[np.int64],
        estimated_px: npt.NDArray[np.int64],
    ) -> None:
        """Adds rows that will be packed; all arrays have one entry per row."""
        if not len(shard):
            return
        self._grow(int(shard.max()) + 1)
        np.add.at(self.live_rows, shard, 1)
        np.add.at(self.estimated_bytes, shard, estimated_bytes)
        np.add.at(self.estimated_px, shard, estimated_px)
        np.add.at(self.main, shard, fold(main_hash, position))
        np.add.at(self.side, shard, fold(side_hash, position))
        np.maximum.at(self.rows, shard, position.astype(np.int64) + 1)

    def add_tombstones(
        self,
        shard: npt.NDArray[np.int32],
        position: npt.NDArray[np.int32],
        main_hash: U64,
        side_hash: U64,
        absent: npt.NDArray[np.bool_],
    ) -> None:
        """Adds empty places.

        Args:
            shard: shard numbers.
            position: positions in the shard.
            main_hash: the hash that the row had when its shard was planned.
            side_hash: the same of the values that reach only the sidecar.
            absent: whether the row never stood in the shard's file (moved or rejected there): its hashes still count,
                so that the files that were written without it stay valid. A removed row does not count: its shard
                must be written anew.
        """
        if not len(shard):
            return
        self._grow(int(shard.max()) + 1)
        np.add.at(self.main, shard[absent], fold(main_hash[absent], position[absent]))
        np.add.at(self.side, shard[absent], fold(side_hash[absent], position[absent]))
        np.maximum.at(self.rows, shard, position.astype(np.int64) + 1)

    def planned(self, bucket: Bucket) -> list[PlannedShard]:
        """Returns the shards of the bucket, by number."""
        return [
            PlannedShard(
                bucket,
                number,
                int(self.rows[number]),
                int(self.live_rows[number]),
                int(self.estimated_bytes[number]),
                int(self.estimated_px[number]),
                shard_fingerprint(int(self.main[number])),
                shard_fingerprint(int(self.side[number])),
            )
            for number in range(len(self.rows))
        ]

    def _grow(self, count: int) -> None:
        if count <= len(self.rows):
            return
        capacity = max(count, len(self.rows))
        for name in ("rows", "live_rows", "estimated_bytes", "estimated_px", "main", "side"):
            old = getattr(self, name)
            new = np.zeros(capacity, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)


def fold(row_hash: U64, position: npt.NDArray[np.int32]) -> U64:
    """Returns one 64-bit mix per row; its sum over a shard identifies which rows stand where.

    The finalizer of SplitMix64 (Steele, Lea and Flood 2014) makes sums of mixes collide no more often than random.
    """
    with np.errstate(over="ignore"):
        mix = row_hash + (position.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mix = (mix ^ (mix >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mix = (mix ^ (mix >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        folded: U64 = mix ^ (mix >> np.uint64(31))
        return folded


def shard_fingerprint(folded: int) -> str:
    """Returns the hex text of a folded sum."""
    return f"{folded:016x}"


def combined_fingerprint(*parts: str) -> str:
    """Returns one hex fingerprint of several texts, in order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()
