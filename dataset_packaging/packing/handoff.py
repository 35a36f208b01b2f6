"""The handoff: everything that a training team asks for, written only when every check holds, below the work prefix.

`HANDOFF.json` is written last and deleted first: where it stands, all the rest is there and fits the dataset as it was
verified. Nothing is put below the prefixes of shards and sidecars, which readers open as folders.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow.parquet as pq

from dataset_packaging import __version__
from dataset_packaging.core.bucketing import SCALES
from dataset_packaging.core.invariants import MANIFEST_CHECKS, RESIZED_CHECKS, SHARD_CHECKS, SIDECAR_CHECKS, Finding
from dataset_packaging.core.ledger import Ledger
from dataset_packaging.core.schema import IMAGE_COLUMN, KEY_COLUMN, SCHEMA_VERSION, sidecar_schema
from dataset_packaging.core.shard_plan import combined_fingerprint
from dataset_packaging.errors import NotFound
from dataset_packaging.imaging.verify import POLICY_VERSION
from dataset_packaging.io.block_index import read_block_index, write_block_index
from dataset_packaging.packing.contact_sheet import COLUMN_COUNT, TILE_COUNT_MAX, draw_contact_sheet
from dataset_packaging.packing.dataset_card import CardFacts, describe_bytes, write_card
from dataset_packaging.packing.dataset_stats import BucketStats, count_bucket, describe_stats, plan_stats, sum_stats
from dataset_packaging.packing.generation import Published
from dataset_packaging.packing.ledger_step import read_ledger, read_statuses
from dataset_packaging.packing.plot_sheet import PlotData, draw_plot_sheet
from dataset_packaging.packing.reports import HandoffReport, StageClock
from dataset_packaging.packing.resized_status import read_resized
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.status import BucketStatus
from dataset_packaging.packing.verify_step import verify_dataset

HANDOFF_VERSION = 1
CHECKS = tuple(
    dict.fromkeys((*MANIFEST_CHECKS, *SHARD_CHECKS, *SIDECAR_CHECKS, "ledger_balance", "reject_fraction", "work_files"))
)
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Landed:
    """What stands: the plan, the states of all shards and sidecars, the balance."""

    current: Published
    statuses: list[BucketStatus]
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class HandoffFiles:
    """What a handoff shows to people.

    Attributes:
        card: as Markdown.
        pictures: plot sheet and contact sheets, by name.
        summary: what `HANDOFF.json` says.
    """

    card: str
    pictures: dict[str, bytes]
    summary: dict[str, Any]


def write_handoff(run: Run, *, deep: bool = False) -> HandoffReport:
    """Verifies the dataset and, where nothing is found, writes its handoff; else removes an earlier one.

    Safe to repeat: for the same dataset the same files are written, and none if they stand already.
    """
    clock = StageClock("verify", "shards", run.progress)
    with run.lease():
        verified = verify_dataset(run, deep=deep)
        landed = read_landed(run)
        findings = (*verified.findings, *_find_pending(landed.ledger))
        root = run.layout.handoff_prefix
        if findings:
            _delete_all(run, root)
            return HandoffReport(findings, False, root, (), verified.shards, verified.rows, clock.seconds)
        summary = summarize_landed(run, landed)
        if _read_summary(run) == json.loads(json.dumps(summary)):
            files = tuple(info.uri for info in run.stores.list(root))
            return HandoffReport((), True, root, files, verified.shards, verified.rows, clock.seconds)
        _delete_all(run, root)
        files = tuple(_write_files(run, landed, summary))
        return HandoffReport((), False, root, files, verified.shards, verified.rows, clock.seconds)


def read_handoff(run: Run) -> dict[str, Any] | None:
    """Returns what was handed off, or None where nothing is, or where the dataset has changed since."""
    found = _read_summary(run)
    if found is None:
        return None
    return found if found == json.loads(json.dumps(summarize_landed(run, read_landed(run)))) else None


def read_handoff_files(run: Run) -> HandoffFiles:
    """Returns what a handoff shows to people. Raises NotFound where none is written."""
    names = ["stats.png", *(f"contact_sheets/{scale}.jpg" for scale in SCALES)]
    found = {info.uri for info in run.stores.list(run.layout.handoff_prefix)}
    uris = {name: run.layout.handoff_uri(name) for name in names}
    return HandoffFiles(
        bytes(run.stores.get(run.layout.handoff_uri("README.md"))).decode(),
        {name: bytes(run.stores.get(uri)) for name, uri in uris.items() if uri in found},
        json.loads(bytes(run.stores.get(run.layout.handoff_uri("HANDOFF.json")))),
    )


def read_landed(run: Run) -> Landed:
    """Returns what stands of a dataset; reads receipts and lists objects."""
    current = run.require_current()
    statuses = read_statuses(run, current)
    return Landed(current, statuses, read_ledger(run, current, statuses))


def _find_pending(ledger: Ledger) -> list[Finding]:
    pending = ledger.total.pending
    if not pending:
        return []
    return [Finding("ledger_balance", None, None, f"{pending} rows are pending; run pack again before handing off")]


def _read_summary(run: Run) -> Any:
    try:
        return json.loads(bytes(run.stores.get(run.layout.handoff_uri("HANDOFF.json"))))
    except (NotFound, ValueError):
        return None


def _delete_all(run: Run, root: str) -> None:
    run.stores.delete(run.layout.handoff_uri("HANDOFF.json"))
    for info in list(run.stores.list(root)):
        run.stores.delete(info.uri)


def summarize_landed(run: Run, landed: Landed) -> dict[str, Any]:
    """Returns what `HANDOFF.json` says: the same dataset gives the same text."""
    dataset = run.dataset
    total = landed.ledger.total
    shards = [state.receipt for status in landed.statuses for state in status.shards if state.receipt]
    sidecars = [state.receipt for status in landed.statuses for state in status.sidecars if state.receipt]
    merges = [
        {"source": " ".join(merge.locations), "columns": sorted(merge.columns)} for merge in dataset.sidecar.merge
    ]
    return {
        "version": HANDOFF_VERSION,
        "dataset": dataset.name,
        "description": dataset.description,
        "licence": dataset.licence,
        "owners": list(dataset.owners),
        "confidentiality": dataset.confidentiality,
        "tags": dataset.tags,
        "rows": total.packed,
        "shards": len(shards),
        "generation": landed.current.summary.number,
        "prefixes": {
            "output_prefix": dataset.output_prefix,
            "sidecar_prefix": dataset.sidecar_prefix,
            "work_prefix": dataset.work_prefix,
            "handoff_prefix": run.layout.handoff_prefix.rstrip("/"),
            **{f"resized_{size}": run.resized_layout(size).root for size in dataset.resized},
        },
        "sources": [msgspec.to_builtins(source) for source in landed.current.summary.sources],
        "merges": merges,
        "reference": dataset.sidecar.reference,
        "versions": {"dataset_packaging": __version__, "schema": SCHEMA_VERSION, "image policy": POLICY_VERSION},
        "fingerprints": {
            "manifest": landed.current.summary.fingerprint,
            "shards": combined_fingerprint(*(f"{r.bucket} {r.number} {r.object.sha256}" for r in shards)),
            "sidecars": combined_fingerprint(*(f"{r.bucket} {r.number} {r.object.sha256}" for r in sidecars)),
            **{f"resized_{size}": _resized_fingerprint(run, landed, size) for size in dataset.resized},
        },
        "checks": [*CHECKS, *(RESIZED_CHECKS if dataset.resized else ())],
    }


def _resized_fingerprint(run: Run, landed: Landed, size: int) -> str:
    states = (state for bucket in read_resized(run, size, landed.statuses) for state in bucket.states)
    receipts = (state.receipt for state in states if state.receipt is not None)
    return combined_fingerprint(*(f"{r.bucket} {r.number} {r.object.sha256}" for r in receipts))


def describe_landed(run: Run, landed: Landed) -> tuple[list[BucketStats], dict[str, Any], dict[str, bytes]]:
    """Returns the counts of each bucket, `stats.json` as plain data, and the plot sheet by its name."""
    tasks = plan_stats(run.dataset, landed.statuses)
    counted = [result.require_value() for result in run.executor.map(count_bucket, tasks)] if tasks else []
    order = {status.bucket.key: number for number, status in enumerate(landed.statuses)}
    counted.sort(key=lambda bucket: order[bucket.bucket])
    columns = sidecar_schema(run.dataset.sidecar.extension_columns()).names
    stats = describe_stats(counted, columns, landed.ledger)
    return counted, stats, {"stats.png": draw_plot_sheet(_plot_data(run.dataset.name, counted, stats))}


def _write_files(run: Run, landed: Landed, summary: dict[str, Any]) -> Iterator[str]:
    """Writes the files of the handoff, `HANDOFF.json` last, and yields their URIs."""
    _, stats, pictures = describe_landed(run, landed)
    shown = [("stats.png", "Buckets, sizes, ratios, bytes and null rates")]
    for scale in SCALES:
        sheet = _draw_sheet(run, landed, scale)
        if sheet is not None:
            pictures[f"contact_sheets/{scale}.jpg"] = sheet
            shown.append((f"contact_sheets/{scale}.jpg", f"Images of scale {scale}"))
    blocks_uri = run.layout.handoff_uri("blocks.parquet")
    write_block_index(run.stores, blocks_uri, read_block_index(run.stores, run.dataset.output_prefix))
    yield blocks_uri
    files = {
        "stats.json": json.dumps(stats, indent=2, ensure_ascii=False).encode() + b"\n",
        **pictures,
        "README.md": write_card(run.dataset, CardFacts(stats, summary, shown)).encode(),
        "HANDOFF.json": json.dumps(summary, indent=2, ensure_ascii=False).encode() + b"\n",
    }
    for name, data in files.items():
        yield run.stores.put(run.layout.handoff_uri(name), data).uri


def _plot_data(name: str, counted: Sequence[BucketStats], stats: dict[str, Any]) -> PlotData:
    total = sum_stats(counted)
    size = describe_bytes(total.image_bytes)
    subtitle = f"{total.rows:,} images in {total.shards:,} shards, {size} of original files"
    rows = {bucket.bucket: bucket.rows for bucket in counted}
    return PlotData(name, subtitle, rows, total.histograms, stats["null_rates"])


def _draw_sheet(run: Run, landed: Landed, scale: str) -> bytes | None:
    """Draws pictures of one scale: the first ones of a few shards, spread over its buckets."""
    filled = [
        state.receipt
        for status in landed.statuses
        if status.bucket.scale == scale
        for state in status.shards
        if state.receipt is not None and state.receipt.packed_rows
    ]
    if not filled:
        return None
    count = min(len(filled), TILE_COUNT_MAX)
    chosen = [filled[number * len(filled) // count] for number in range(count)]
    each = -(-TILE_COUNT_MAX // count)
    uris = [(f"{run.dataset.output_prefix}/{r.bucket}/shard-{r.number:06d}.parquet", r.bucket) for r in chosen]
    pictures = itertools.chain.from_iterable(_read_pictures(run, uri, bucket, each) for uri, bucket in uris)
    return draw_contact_sheet(pictures, columns=COLUMN_COUNT)


def _read_pictures(run: Run, uri: str, bucket: str, count: int) -> Iterator[tuple[bytes, str]]:
    """Yields the first images of a shard; reads their pages only."""
    with run.stores.open(uri) as source:
        file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True)
        batches = file.iter_batches(count, row_groups=[0], columns=[IMAGE_COLUMN, KEY_COLUMN], use_threads=False)
        for row in next(batches).to_pylist():
            yield row[IMAGE_COLUMN], f"{bucket}\n{row[KEY_COLUMN]}"
