"""What stands in the store against what the plan wants: one state per shard.

Reads only, but for restamping receipts where that is asked for.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import Layout, shard_name
from dataset_packaging.core.receipts import (
    ShardReceipt,
    SidecarReceipt,
    StoredObject,
    decode_receipt,
    decode_sidecar_receipt,
    encode_receipt,
)
from dataset_packaging.core.shard_plan import PlannedShard
from dataset_packaging.errors import NotFound
from dataset_packaging.io.store import ObjectInfo, Stores
from dataset_packaging.packing.fingerprints import main_fingerprint, sidecar_fingerprint
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.source_versions import SourceVersions

_READ_THREADS = 32
_HASH_BYTES = 8 << 20


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
        shards: states, by number.
        sidecars: states, by number; a sidecar whose shard is not done is not done either.
        surplus: objects named like shards that the plan does not have.
        foreign: other objects below the bucket's folders.
    """

    bucket: Bucket
    shards: tuple[ShardState, ...]
    sidecars: tuple[SidecarState, ...]
    surplus: tuple[str, ...]
    foreign: tuple[str, ...]


def read_bucket_status(
    run: Run, bucket: Bucket, planned: Sequence[PlannedShard], *, restamp: bool = False
) -> BucketStatus:
    """Compares the plan of one bucket with receipts and objects.

    An object whose size or tag differs from its receipt is read and hashed: the sha256 decides. With `restamp`, the
    receipt of an object that proved to be the same gets the new tag.
    """
    stores, layout, dataset = run.stores, run.layout, run.dataset
    problem = run.sidecar_sources.problem()
    nothing = SourceVersions((), ())
    versions = [nothing if problem else run.sidecar_sources.versions(bucket, shard.number) for shard in planned]
    objects = {info.uri: info for info in stores.list(layout.shards_prefix(bucket))}
    facts = {info.uri: info for info in stores.list(f"{layout.work_prefix}/facts/{bucket.key}/")}
    sidecars = {info.uri: info for info in stores.list(layout.sidecars_prefix(bucket))}
    with ThreadPoolExecutor(_READ_THREADS, "receipts") as pool:
        states = tuple(
            pool.map(lambda shard: _shard_state(stores, layout, dataset, shard, objects, facts, restamp), planned)
        )
        sidecar_states = tuple(
            pool.map(
                lambda state, version: _sidecar_state(run, state, version, problem, sidecars, restamp), states, versions
            )
        )
    expected = {layout.shard_uri(bucket, shard.number) for shard in planned}
    expected |= {layout.sidecar_uri(bucket, shard.number) for shard in planned}
    others = [uri for uri in (*objects, *sidecars) if uri not in expected]
    surplus = tuple(uri for uri in others if is_shard_name(uri.rpartition("/")[2]))
    return BucketStatus(bucket, states, sidecar_states, surplus, tuple(sorted(set(others) - set(surplus))))


def is_shard_name(name: str) -> bool:
    """Tells whether a file is named as a shard."""
    number = name.removeprefix("shard-").removesuffix(".parquet")
    return number.isdigit() and name == f"{shard_name(int(number))}.parquet"


def _shard_state(
    stores: Stores,
    layout: Layout,
    dataset: DatasetConfig,
    shard: PlannedShard,
    objects: dict[str, ObjectInfo],
    facts: dict[str, ObjectInfo],
    restamp: bool,
) -> ShardState:
    fingerprint = main_fingerprint(dataset, shard)
    info = objects.get(layout.shard_uri(shard.bucket, shard.number))
    receipt_uri = layout.receipt_uri(shard.bucket, shard.number)
    try:
        receipt = decode_receipt(stores.get(receipt_uri))
    except NotFound:
        problem = "not packed yet" if info is None else "its receipt is missing"
        return ShardState(shard, fingerprint, None, problem, info is not None)
    if receipt is None:
        return ShardState(shard, fingerprint, None, "its receipt cannot be read", True)
    if receipt.dataset != dataset.name or (receipt.bucket, receipt.number) != (shard.bucket.key, shard.number):
        return ShardState(shard, fingerprint, None, f"its receipt is of {receipt.dataset} {receipt.bucket}", True)
    if info is None:
        return ShardState(shard, fingerprint, receipt, "the object is missing", True)
    stamped = _same_object(stores, info, receipt.object)
    if stamped is None:
        return ShardState(shard, fingerprint, receipt, "the object is not the one of its receipt", True)
    if layout.facts_uri(shard.bucket, shard.number) not in facts:
        return ShardState(shard, fingerprint, receipt, "its facts are missing", True)
    if restamp and stamped != receipt.object:
        receipt = replace(receipt, object=stamped)
        stores.put(receipt_uri, encode_receipt(receipt))
    if receipt.fingerprint != fingerprint:
        return ShardState(shard, fingerprint, receipt, "its planned rows or settings have changed")
    return ShardState(shard, fingerprint, receipt, "")


def _same_object(stores: Stores, info: ObjectInfo, stored: StoredObject) -> StoredObject | None:
    """Returns the stored object with the tag of now, or None where its bytes are others."""
    if info.size_bytes != stored.size_bytes:
        return None
    if info.tag == stored.tag:
        return stored
    digest = hashlib.sha256()
    with stores.open(info.uri) as file:
        while data := file.read(_HASH_BYTES):
            digest.update(data)
    return replace(stored, tag=info.tag) if digest.hexdigest() == stored.sha256 else None


def _sidecar_state(
    run: Run,
    state: ShardState,
    versions: SourceVersions,
    source_problem: str,
    objects: dict[str, ObjectInfo],
    restamp: bool,
) -> SidecarState:
    shard, stores, layout = state.shard, run.stores, run.layout
    if state.problem or state.receipt is None:
        return SidecarState(shard, "", None, f"the main shard is not done: {state.problem}", False)
    info = objects.get(layout.sidecar_uri(shard.bucket, shard.number))
    receipt_uri = layout.sidecar_receipt_uri(shard.bucket, shard.number)
    if source_problem:
        return SidecarState(shard, "", None, source_problem, info is not None)
    main_sha256 = state.receipt.object.sha256
    fingerprint = sidecar_fingerprint(run.dataset, shard, state.fingerprint, main_sha256, versions)

    def found(receipt: SidecarReceipt | None, problem: str) -> SidecarState:
        return SidecarState(shard, fingerprint, receipt, problem, info is not None)

    try:
        receipt = decode_sidecar_receipt(stores.get(receipt_uri))
    except NotFound:
        return found(None, "not written yet" if info is None else "its receipt is missing")
    if receipt is None:
        return found(None, "its receipt cannot be read")
    if info is None:
        return found(receipt, "the object is missing")
    stamped = _same_object(stores, info, receipt.object)
    if stamped is None:
        return found(receipt, "the object is not the one of its receipt")
    if receipt.fingerprint != fingerprint:
        return found(receipt, "its shard, planned values, sources or settings have changed")
    if restamp and stamped != receipt.object:
        stores.put(receipt_uri, encode_receipt(replace(receipt, object=stamped)))
    return found(receipt, "")


def iter_receipts(
    stores: Stores, layout: Layout, shards: Iterable[PlannedShard]
) -> Iterator[tuple[PlannedShard, ShardReceipt | None]]:
    """Yields each shard with its receipt, or None where there is none that can be read; objects are not looked at."""

    def read(shard: PlannedShard) -> ShardReceipt | None:
        try:
            return decode_receipt(stores.get(layout.receipt_uri(shard.bucket, shard.number)))
        except NotFound:
            return None

    planned = list(shards)
    with ThreadPoolExecutor(_READ_THREADS, "receipts") as pool:
        for start in range(0, len(planned), 512):
            chunk = planned[start : start + 512]
            yield from zip(chunk, pool.map(read, chunk), strict=True)
