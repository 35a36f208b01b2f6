"""What stands in the store against what the plan wants: one state per shard.

Reads only, but for restamping receipts where that is asked for.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import BUCKETS, Bucket
from dataset_packaging.core.layout import Layout, shard_name
from dataset_packaging.core.receipts import (
    ShardReceipt,
    SidecarReceipt,
    StoredObject,
    decode_receipt,
    decode_sidecar_receipt,
    encode_receipt,
)
from dataset_packaging.core.shard_plan import PlannedShard, combined_fingerprint
from dataset_packaging.errors import NotFound
from dataset_packaging.io.store import ObjectInfo, Stores
from dataset_packaging.packing.fingerprints import main_fingerprint, sidecar_fingerprint
from dataset_packaging.packing.source_versions import SidecarSources, SourceVersions

_READ_THREADS = 32
_HASH_BYTES = 8 << 20

LISTED_APART = 4
"""Up to so many buckets are listed one by one; more are cheaper to list together."""

_BUCKET_KEYS = frozenset(bucket.key for bucket in BUCKETS)

Receipt = TypeVar("Receipt", ShardReceipt, SidecarReceipt)
Listing = dict[str, ObjectInfo]


@dataclass(frozen=True, slots=True)
class ShardState:
    """A planned shard and what stands at its place.

    Attributes:
        shard: the line of the plan.
        fingerprint: that a valid receipt must carry.
        receipt: what was found, valid or not; None where there is none that can be read.
        problem: why the shard must be written, in words; empty where it is done.
        damaged: whether the object is not what its receipt says, so that nothing of it may be used again.
    """

    shard: PlannedShard
    fingerprint: str
    receipt: ShardReceipt | None
    problem: str
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class SidecarState:
    """A planned sidecar and what stands at its place; fields as in `ShardState`.

    Attributes:
        present: whether there is an object, be it the right one or not.
    """

    shard: PlannedShard
    fingerprint: str
    receipt: SidecarReceipt | None
    problem: str
    present: bool


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """All shards of a bucket.

    Attributes:
        bucket: which.
        shards: states, by number.
        sidecars: states, by number; a sidecar whose shard is not done is not done either.
        surplus: main shards that the plan does not have.
        surplus_sidecars: sidecars that the plan does not have.
        foreign: other objects below the bucket's folders.
        numbers: of the main shards that stand there, planned or not.
    """

    bucket: Bucket
    shards: tuple[ShardState, ...]
    sidecars: tuple[SidecarState, ...]
    surplus: tuple[str, ...]
    surplus_sidecars: tuple[str, ...]
    foreign: tuple[str, ...]
    numbers: tuple[int, ...]

    @property
    def done(self) -> list[tuple[ShardState, ShardReceipt]]:
        """The shards that are durable, with their receipts."""
        return [(state, state.receipt) for state in self.shards if state.receipt is not None and not state.problem]


def shards_content(status: BucketStatus) -> str:
    """Returns a digest of what a bucket's done shards hold, and of all else that their sidecars are made from. Pure."""
    return combined_fingerprint(
        *(
            f"{receipt.number} {receipt.object.sha256} {state.fingerprint} {state.shard.sidecar_fingerprint}"
            for state, receipt in status.done
        )
    )


def sidecars_content(status: BucketStatus) -> str:
    """Returns a digest of what a bucket's done sidecars hold. Pure."""
    done = [state.receipt for state in status.sidecars if state.receipt is not None and not state.problem]
    return combined_fingerprint(*(f"{receipt.number} {receipt.object.sha256}" for receipt in done))


@dataclass(slots=True)
class StatusReader:
    """Reads states for one run; a receipt that has not changed since it was read is not read again.

    Attributes:
        stores: where everything stands.
        layout: of the dataset.
        dataset: its configuration.
        sidecar_sources: versions of what sidecars take from elsewhere.
    """

    stores: Stores
    layout: Layout
    dataset: DatasetConfig
    sidecar_sources: SidecarSources
    _shard_receipts: dict[str, tuple[str, ShardReceipt | None]] = field(default_factory=dict)
    _sidecar_receipts: dict[str, tuple[str, SidecarReceipt | None]] = field(default_factory=dict)

    def read(
        self, planned: Sequence[PlannedShard], buckets: Sequence[Bucket], *, restamp: bool = False
    ) -> list[BucketStatus]:
        """Compares the plan of some buckets with receipts and objects.

        An object whose size or tag differs from its receipt is read and hashed: the sha256 decides. With `restamp`,
        the receipt of an object that proved to be the same gets the new tag.
        """
        if not buckets:
            return []
        layout = self.layout
        with ThreadPoolExecutor(_READ_THREADS, "receipts") as pool:
            folders = (
                layout.shards_prefix,
                layout.facts_prefix,
                layout.sidecars_prefix,
                layout.receipts_prefix,
                layout.sidecar_receipts_prefix,
            )
            objects, facts, sidecars, receipts, sidecar_receipts = pool.map(
                lambda folder: self._list(folder, buckets), folders
            )
            wanted = set(buckets)
            shards = [shard for shard in planned if shard.bucket in wanted]
            states = list(pool.map(lambda shard: self._shard_state(shard, objects, facts, receipts, restamp), shards))
            source_problem = self.sidecar_sources.problem()
            versions = [
                SourceVersions((), ()) if source_problem else self.sidecar_sources.versions(shard.bucket, shard.number)
                for shard in shards
            ]
            sidecar_states = list(
                pool.map(
                    lambda state, version: (
                        SidecarState(state.shard, "", None, source_problem, self._sidecar_uri(state) in sidecars)
                        if source_problem and not state.problem
                        else self._sidecar_state(state, version, sidecars, sidecar_receipts, restamp)
                    ),
                    states,
                    versions,
                )
            )
        return _by_bucket(layout, buckets, states, sidecar_states, objects, sidecars)

    def read_receipts(self, planned: Sequence[PlannedShard]) -> list[ShardReceipt | None]:
        """Returns the valid receipt of each shard, or None; objects are not looked at."""
        buckets = list(dict.fromkeys(shard.bucket for shard in planned))
        listed = self._list(self.layout.receipts_prefix, buckets)
        with ThreadPoolExecutor(_READ_THREADS, "receipts") as pool:
            return list(pool.map(lambda shard: self._valid_receipt(shard, listed), planned))

    def _valid_receipt(self, shard: PlannedShard, listed: Listing) -> ShardReceipt | None:
        receipt = self._shard_receipt(self.layout.receipt_uri(shard.bucket, shard.number), listed)
        if receipt is None or receipt.fingerprint != main_fingerprint(self.dataset, shard):
            return None
        return receipt if self._is_own(receipt, shard) else None

    def _list(self, folder: Callable[[Bucket | None], str], buckets: Sequence[Bucket]) -> Listing:
        """Returns the objects below a folder of some buckets, or of all where they are many."""
        prefixes = [folder(None)] if len(buckets) > LISTED_APART else [folder(bucket) for bucket in buckets]
        return {info.uri: info for prefix in prefixes for info in self.stores.list(prefix)}

    def _shard_receipt(self, uri: str, listed: Listing) -> ShardReceipt | None:
        return _read_once(self.stores, uri, listed, self._shard_receipts, decode_receipt)

    def _sidecar_receipt(self, uri: str, listed: Listing) -> SidecarReceipt | None:
        return _read_once(self.stores, uri, listed, self._sidecar_receipts, decode_sidecar_receipt)

    def _is_own(self, receipt: ShardReceipt | SidecarReceipt, shard: PlannedShard) -> bool:
        named = receipt.dataset, receipt.bucket, receipt.number
        return named == (self.dataset.name, shard.bucket.key, shard.number)

    def _shard_state(
        self, shard: PlannedShard, objects: Listing, facts: Listing, receipts: Listing, restamp: bool
    ) -> ShardState:
        fingerprint = main_fingerprint(self.dataset, shard)
        info = objects.get(self.layout.shard_uri(shard.bucket, shard.number))
        receipt_uri = self.layout.receipt_uri(shard.bucket, shard.number)
        receipt = self._shard_receipt(receipt_uri, receipts)

        def state(problem: str, *, damaged: bool = False) -> ShardState:
            return ShardState(shard, fingerprint, receipt, problem, damaged)

        if receipt is None:
            if receipt_uri in receipts:
                return state("its receipt cannot be read", damaged=True)
            return state("not packed yet" if info is None else "its receipt is missing", damaged=info is not None)
        if not self._is_own(receipt, shard):
            stranger = f"its receipt is of shard {receipt.number} of {receipt.bucket} of {receipt.dataset}"
            return ShardState(shard, fingerprint, None, stranger, True)
        stamped = same_object(self.stores, info, receipt.object)
        if stamped is None:
            text = "the object is missing" if info is None else "the object is not the one of its receipt"
            return state(text, damaged=True)
        facts_info = facts.get(self.layout.facts_uri(shard.bucket, shard.number))
        facts_stamped = same_object(self.stores, facts_info, receipt.facts)
        if receipt.fingerprint != fingerprint:
            return state("its planned rows or settings have changed")
        if facts_stamped is None:
            return state("its facts are missing" if facts_info is None else "its facts are damaged")
        restamped = replace(receipt, object=stamped, facts=facts_stamped)
        if restamp and restamped != receipt:
            self.stores.put(receipt_uri, encode_receipt(restamped))
            return ShardState(shard, fingerprint, restamped, "")
        return state("")

    def _sidecar_uri(self, state: ShardState) -> str:
        return self.layout.sidecar_uri(state.shard.bucket, state.shard.number)

    def _sidecar_state(
        self, state: ShardState, versions: SourceVersions, objects: Listing, receipts: Listing, restamp: bool
    ) -> SidecarState:
        shard = state.shard
        info = objects.get(self._sidecar_uri(state))
        if state.problem or state.receipt is None:
            waiting = f"the main shard is not done: {state.problem}"
            return SidecarState(shard, "", None, waiting, info is not None)
        main_sha256 = state.receipt.object.sha256
        fingerprint = sidecar_fingerprint(self.dataset, shard, state.fingerprint, main_sha256, versions)
        receipt_uri = self.layout.sidecar_receipt_uri(shard.bucket, shard.number)
        receipt = self._sidecar_receipt(receipt_uri, receipts)

        def found(problem: str) -> SidecarState:
            return SidecarState(shard, fingerprint, receipt, problem, info is not None)

        if receipt is None:
            if receipt_uri in receipts:
                return found("its receipt cannot be read")
            return found("not written yet" if info is None else "its receipt is missing")
        if not self._is_own(receipt, shard):
            return found(f"its receipt is of shard {receipt.number} of {receipt.bucket} of {receipt.dataset}")
        stamped = same_object(self.stores, info, receipt.object)
        if stamped is None:
            return found("the object is missing" if info is None else "the object is not the one of its receipt")
        if receipt.fingerprint != fingerprint:
            return found("its shard, planned values, sources or settings have changed")
        if restamp and stamped != receipt.object:
            self.stores.put(receipt_uri, encode_receipt(replace(receipt, object=stamped)))
        return found("")


def _read_once(
    stores: Stores,
    uri: str,
    listed: Listing,
    known: dict[str, tuple[str, Receipt | None]],
    decode: Callable[[memoryview], Receipt | None],
) -> Receipt | None:
    """Returns the receipt that is listed, or None where there is none or it cannot be read."""
    info = listed.get(uri)
    if info is None:
        return None
    tag, receipt = known.get(uri, ("", None))
    if tag == info.tag:
        return receipt
    try:
        data, read = stores.get_with_info(uri)
    except NotFound:
        return None
    known[uri] = read.tag, decode(data)
    return known[uri][1]


def _by_bucket(
    layout: Layout,
    buckets: Sequence[Bucket],
    states: Sequence[ShardState],
    sidecar_states: Sequence[SidecarState],
    objects: Listing,
    sidecars: Listing,
) -> list[BucketStatus]:
    shards_of: dict[Bucket, list[ShardState]] = defaultdict(list)
    sidecars_of: dict[Bucket, list[SidecarState]] = defaultdict(list)
    files_of: dict[str, list[str]] = defaultdict(list)
    for state in states:
        shards_of[state.shard.bucket].append(state)
    for sidecar in sidecar_states:
        sidecars_of[sidecar.shard.bucket].append(sidecar)
    for uri in (*objects, *sidecars):
        files_of[f"{uri.rpartition('/')[0]}/"].append(uri)
    statuses = []
    for bucket in buckets:
        planned = {state.shard.number for state in shards_of[bucket]}
        main, main_foreign = _by_number(files_of[layout.shards_prefix(bucket)])
        side, side_foreign = _by_number(files_of[layout.sidecars_prefix(bucket)])
        statuses.append(
            BucketStatus(
                bucket,
                tuple(shards_of[bucket]),
                tuple(sidecars_of[bucket]),
                tuple(uri for number, uri in main.items() if number not in planned),
                tuple(uri for number, uri in side.items() if number not in planned),
                (*main_foreign, *side_foreign),
                tuple(sorted(main)),
            )
        )
    return statuses


def _by_number(uris: Sequence[str]) -> tuple[dict[int, str], list[str]]:
    """Returns the shards of one folder by number, and what else stands there."""
    numbers = {uri: shard_number(uri.rpartition("/")[2]) for uri in uris}
    shards = {number: uri for uri, number in numbers.items() if number is not None}
    return shards, [uri for uri, number in numbers.items() if number is None]


def shard_number(name: str) -> int | None:
    """Returns the number in the name of a shard, or None for another name. Pure."""
    digits = name.removeprefix("shard-").removesuffix(".parquet")
    if digits.isascii() and digits.isdigit() and name == f"{shard_name(int(digits))}.parquet":
        return int(digits)
    return None


def is_shard_key(key: str) -> bool:
    """Tells whether a path below a prefix is that of a shard in one of the buckets. Pure."""
    folder, _, name = key.rpartition("/")
    return folder in _BUCKET_KEYS and shard_number(name) is not None


def same_object(stores: Stores, info: ObjectInfo | None, stored: StoredObject) -> StoredObject | None:
    """Returns what is known of an object with the tag of now, or None where it is missing or its bytes are others."""
    if info is None or info.size_bytes != stored.size_bytes:
        return None
    if info.tag == stored.tag:
        return stored
    return replace(stored, tag=info.tag) if hash_object(stores, info.uri) == stored.sha256 else None


def hash_object(stores: Stores, uri: str) -> str:
    """Returns the hex sha256 of an object, read in pieces."""
    digest = hashlib.sha256()
    with stores.open(uri) as file:
        while data := file.read(_HASH_BYTES):
            digest.update(data)
    return digest.hexdigest()
