"""What stands of a set of resized images against what the shards want: one state per shard. Reads only."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.crops import CROPS_VERSION
from dataset_packaging.core.layout import ResizedLayout
from dataset_packaging.core.receipts import ResizedReceipt, decode_resized_receipt, encode_receipt
from dataset_packaging.core.shard_plan import combined_fingerprint
from dataset_packaging.errors import NotFound
from dataset_packaging.imaging.resize import RESIZE_VERSION
from dataset_packaging.io.store import ObjectInfo
from dataset_packaging.packing.fingerprints import WRITER_VERSION, policy_fingerprint
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import LISTED_APART, BucketStatus, ShardState, same_object, shard_number

_READ_THREADS = 32


@dataclass(frozen=True, slots=True)
class ResizedState:
    """The resized images of a planned shard, and what stands at their place.

    Attributes:
        shard: state of the main shard.
        fingerprint: that a valid receipt must carry.
        receipt: what was found, valid or not; None where there is none that can be read.
        problem: why they must be made, in words; empty where they are done.
        present: whether there is an object, be it the right one or not.
    """

    shard: ShardState
    fingerprint: str
    receipt: ResizedReceipt | None
    problem: str
    present: bool


@dataclass(frozen=True, slots=True)
class ResizedBucket:
    """The resized images of a bucket.

    Attributes:
        bucket: which.
        states: by number of the shard.
        surplus: files that the plan does not have.
        foreign: other objects in the bucket's folder.
    """

    bucket: Bucket
    states: tuple[ResizedState, ...]
    surplus: tuple[str, ...]
    foreign: tuple[str, ...]


def resized_fingerprint(dataset: DatasetConfig, size: int, main_sha256: str) -> str:
    """Returns the fingerprint that a receipt of resized images must carry. Pure."""
    versions = (RESIZE_VERSION, CROPS_VERSION, WRITER_VERSION, dataset.packing.row_group_bytes)
    return combined_fingerprint(str(size), main_sha256, policy_fingerprint(dataset), *map(str, versions))


def read_resized(
    run: Run, size: int, statuses: Sequence[BucketStatus], *, restamp: bool = False
) -> list[ResizedBucket]:
    """Compares the resized images of some buckets with their shards, receipts and objects.

    With `restamp`, the receipt of an object that proved to be the same by its sha256 gets the new tag.
    """
    layout = run.resized_layout(size)
    whole = len(statuses) > LISTED_APART
    folders: list[Bucket | None] = [None] if whole else [status.bucket for status in statuses]
    objects = {info.uri: info for folder in folders for info in run.stores.list(layout.shards_prefix(folder))}
    receipts = {info.uri for folder in folders for info in run.stores.list(layout.receipts_prefix(folder))}
    with ThreadPoolExecutor(_READ_THREADS, "receipts") as pool:
        shards = [shard for status in statuses for shard in status.shards]
        states = iter(list(pool.map(lambda shard: _state(run, layout, shard, objects, receipts, restamp), shards)))
    below: dict[str, list[str]] = defaultdict(list)
    for uri in objects:
        below[f"{uri.rpartition('/')[0]}/"].append(uri)
    found = []
    for status in statuses:
        own = tuple(itertools.islice(states, len(status.shards)))
        planned = {state.shard.shard.number for state in own}
        numbers = {uri: shard_number(uri.rpartition("/")[2]) for uri in below[layout.shards_prefix(status.bucket)]}
        surplus = tuple(uri for uri, number in numbers.items() if number is not None and number not in planned)
        foreign = tuple(uri for uri, number in numbers.items() if number is None)
        found.append(ResizedBucket(status.bucket, own, surplus, foreign))
    return found


def _state(
    run: Run, layout: ResizedLayout, main: ShardState, objects: dict[str, ObjectInfo], receipts: set[str], restamp: bool
) -> ResizedState:
    bucket, number = main.shard.bucket, main.shard.number
    info = objects.get(layout.shard_uri(bucket, number))
    if main.problem or main.receipt is None:
        return ResizedState(main, "", None, f"the main shard is not done: {main.problem}", info is not None)
    fingerprint = resized_fingerprint(run.dataset, layout.size, main.receipt.object.sha256)
    uri = layout.receipt_uri(bucket, number)
    receipt = _read_receipt(run, uri) if uri in receipts else None

    def found(problem: str) -> ResizedState:
        return ResizedState(main, fingerprint, receipt, problem, info is not None)

    if receipt is None:
        if uri in receipts:
            return found("its receipt cannot be read")
        return found("not made yet" if info is None else "its receipt is missing")
    named = receipt.dataset, receipt.bucket, receipt.number, receipt.size
    if named != (run.dataset.name, bucket.key, number, layout.size):
        return found(f"its receipt is of shard {receipt.number} of {receipt.bucket} of {receipt.dataset}")
    stamped = same_object(run.stores, info, receipt.object)
    if stamped is None:
        return found("the object is missing" if info is None else "the object is not the one of its receipt")
    if receipt.fingerprint != fingerprint:
        return found("its shard or settings have changed")
    if restamp and stamped != receipt.object:
        run.stores.put(uri, encode_receipt(replace(receipt, object=stamped)))
    return found("")


def _read_receipt(run: Run, uri: str) -> ResizedReceipt | None:
    try:
        return decode_resized_receipt(run.stores.get(uri))
    except NotFound:
        return None
