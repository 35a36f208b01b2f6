"""One sidecar: index rows and facts to a row-aligned Parquet object and its receipt. Runs in a task.

No image is read. The order of durability is object, then receipt; names and bytes are fixed, so that repeating is safe.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.invariants import PACKAGING_FIELDS
from dataset_packaging.core.layout import GenerationLayout, Layout
from dataset_packaging.core.receipts import ShardReceipt, SidecarReceipt, StoredObject, encode_receipt
from dataset_packaging.core.records import merge_packaging
from dataset_packaging.core.schema import sidecar_schema
from dataset_packaging.core.shard_plan import PlannedShard
from dataset_packaging.errors import IndexDamaged, NotFound, ObjectDamaged
from dataset_packaging.io.parquet import read_table, shard_writer
from dataset_packaging.io.store import StorageConfig, shared_stores
from dataset_packaging.packing.crop_fields import add_crop_fields
from dataset_packaging.packing.index_schema import FACTS_SCHEMA, record_fields
from dataset_packaging.packing.merge_sidecar import PROVENANCE_KEY, MergeInput, encode_provenance, merge_columns
from dataset_packaging.packing.planned_rows import read_planned_rows


@dataclass(frozen=True, slots=True)
class SidecarTask:
    """One sidecar to write.

    Attributes:
        dataset: its configuration.
        generation: the published generation whose index holds the rows.
        shard: the line of the plan.
        receipt: of the main shard.
        fingerprint: of everything that reaches the sidecar's bytes; goes to its receipt.
        merges: what it takes from each merge source of the configuration.
    """

    dataset: DatasetConfig
    generation: GenerationLayout
    shard: PlannedShard
    receipt: ShardReceipt
    fingerprint: str
    merges: tuple[MergeInput, ...] = ()


@dataclass(frozen=True, slots=True)
class SidecarOutcome:
    """One sidecar that was written."""

    bucket: Bucket
    number: int
    rows: int
    null_counts: dict[str, int]


def write_sidecar(task: SidecarTask) -> SidecarOutcome:
    """Writes the sidecar of one shard and its receipt.

    Raises IndexDamaged where index, facts and receipt do not tell the same rows, MergeConflict and MergeSourceUnusable
    where a merge source does not fit.
    """
    stores = shared_stores(StorageConfig.of(task.dataset))
    layout = Layout(task.dataset.output_prefix, task.dataset.sidecar_prefix, task.dataset.work_prefix)
    bucket, number = task.shard.bucket, task.shard.number
    extensions = task.dataset.sidecar.extension_columns()
    fields = [field.name for field in record_fields(extensions)]
    rows = read_planned_rows(stores, task.generation, task.shard, ["shard", "position", "warnings", *fields])
    facts_uri = layout.facts_uri(bucket, number)
    try:
        facts = read_table(stores, facts_uri, FACTS_SCHEMA.names)
    except (NotFound, ObjectDamaged) as error:
        raise IndexDamaged(f"{error}; run pack again: the shard is rebuilt") from error
    at = pc.index_in(facts["position"], value_set=rows["position"].combine_chunks())
    if len(facts) != task.receipt.packed_rows or at.null_count:
        raise IndexDamaged(f"{facts_uri} does not agree with the plan; run pack again: the shard is rebuilt")
    packed = rows if np.array_equal(at.to_numpy(), np.arange(len(rows))) else rows.take(at)
    table = _sidecar_table(packed, facts, sidecar_schema(extensions))
    table, merged = merge_columns(stores, task.dataset, bucket, number, task.merges, table)
    table, crops = add_crop_fields(stores, task.dataset, bucket, number, table)
    data = pa.BufferOutputStream()
    with shard_writer(data, table.schema, None) as writer:
        writer.write_table(table, row_group_size=max(1, len(table)))
        if merged:
            writer.add_key_value_metadata({PROVENANCE_KEY: encode_provenance(merged)})
    payload = memoryview(data.getvalue())
    info = stores.put(layout.sidecar_uri(bucket, number), payload)
    nulls = {name: table[name].null_count for name in table.schema.names if table[name].null_count}
    stored = StoredObject(info.size_bytes, info.tag, hashlib.sha256(payload).hexdigest())
    receipt = SidecarReceipt(
        task.dataset.name, bucket.key, number, task.fingerprint, stored, len(table), nulls, merged, crops
    )
    stores.put(layout.sidecar_receipt_uri(bucket, number), encode_receipt(receipt))
    return SidecarOutcome(bucket, number, len(table), nulls)


def _sidecar_table(packed: pa.Table, facts: pa.Table, schema: pa.Schema) -> pa.Table:
    decoded: dict[str, Any] = {name: facts[name] for name in ("width", "height", "is_rgba")}
    meta_info = [
        merge_packaging(text, _packaging_block(warnings, found, *values))
        for text, warnings, found, *values in zip(
            packed["meta_info"].to_pylist(),
            packed["warnings"].to_pylist(),
            facts["warnings"].to_pylist(),
            *(facts[name].to_pylist() for name in _PACKAGING_FACTS),
            strict=True,
        )
    ]
    decoded["meta_info"] = pa.array(meta_info, pa.string())
    columns = [decoded[name] if name in decoded else packed[name] for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


_PACKAGING_FACTS = PACKAGING_FIELDS[:-1]
"""All but the warnings, which come last."""


def _packaging_block(manifest_warnings: list[str] | None, found: list[str] | None, *facts: object) -> dict[str, object]:
    """Returns the reserved object of `meta_info`."""
    warnings = [*(manifest_warnings or ()), *(found or ())]
    return {**dict(zip(_PACKAGING_FACTS, facts, strict=True)), "warnings": warnings}
