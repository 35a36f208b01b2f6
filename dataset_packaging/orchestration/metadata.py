"""What the UI shows of a manifest, a bucket's shards and its sidecars."""

import math
from collections.abc import Mapping, Sequence

import dagster as dg
import pyarrow as pa

from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.invariants import Finding
from dataset_packaging.orchestration.pictures import draw_heat_map, show_jpeg, show_picture, show_svg
from dataset_packaging.packing.handoff import HandoffFiles
from dataset_packaging.packing.reports import (
    BucketResized,
    BucketShards,
    BucketSidecars,
    HandoffReport,
    ManifestReport,
    MergedCounts,
)

EXAMPLES_MAX = 20
EXAMPLE_CHARACTERS_MAX = 300

Metadata = dict[str, dg.MetadataValue]


def describe_columns(schema: pa.Schema) -> dg.MetadataValue:
    """Return the declared schema as Dagster shows it; pure. Descriptions come from the fields' own metadata."""
    columns = []
    for column in schema:
        described = (column.metadata or {}).get(b"description", b"").decode()
        constraints = dg.TableColumnConstraints(nullable=column.nullable)
        columns.append(dg.TableColumn(column.name, str(column.type), description=described, constraints=constraints))
    return dg.MetadataValue.table_schema(dg.TableSchema(columns=columns))


def describe_manifest(report: ManifestReport) -> Metadata:
    """Return what the manifest's materialisation shows: counts, predicted shards and bytes, the heat map; pure."""
    plans = report.buckets
    rows_by_bucket = {key: plan.rows for key, plan in plans.items()}
    metadata: Metadata = {
        "dagster/row_count": dg.MetadataValue.int(report.rows),
        "planned rows": dg.MetadataValue.int(sum(rows_by_bucket.values())),
        "duplicates": dg.MetadataValue.int(report.duplicates),
        "rejected": dg.MetadataValue.int(sum(report.rejected.values())),
        "pending": dg.MetadataValue.int(report.pending),
        "rejects by reason": count_table("reason", report.rejected),
        "buckets with rows": dg.MetadataValue.int(sum(1 for rows in rows_by_bucket.values() if rows)),
        "predicted shards": dg.MetadataValue.int(sum(plan.shards for plan in plans.values())),
        "predicted bytes": dg.MetadataValue.int(sum(plan.estimated_bytes for plan in plans.values())),
        "generation": dg.MetadataValue.int(report.generation),
        "unchanged": dg.MetadataValue.bool(report.unchanged),
        "heat map": dg.MetadataValue.md(show_svg(draw_heat_map(rows_by_bucket), "rows by bucket")),
    }
    if rows_by_bucket:
        metadata["largest buckets"] = _largest_buckets(rows_by_bucket)
    return metadata


def describe_bucket_shards(bucket: BucketShards, output_uri: str, sheet: bytes | None) -> Metadata:
    """Return what one partition of the shards shows; pure. Numbers are finite, so that they plot over time."""
    handled = bucket.rows + sum(bucket.rejects.values())
    pictures = {"contact sheet": dg.MetadataValue.md(show_jpeg(sheet, "contact sheet"))} if sheet else {}
    return {
        **pictures,
        "dagster/row_count": dg.MetadataValue.int(bucket.rows),
        "dagster/uri": dg.MetadataValue.text(output_uri),
        "bytes": dg.MetadataValue.int(bucket.bytes),
        "shards": dg.MetadataValue.int(bucket.shards),
        "shards written": dg.MetadataValue.int(bucket.shards_written),
        "row groups": dg.MetadataValue.int(bucket.row_groups),
        "rejected": dg.MetadataValue.int(sum(bucket.rejects.values())),
        "reject fraction": finite_float(sum(bucket.rejects.values()) / handled if handled else 0.0),
        "rejects by reason": count_table("reason", bucket.rejects),
        "moved": dg.MetadataValue.int(bucket.moved),
        "rows/s": finite_float(bucket.rows / bucket.seconds if bucket.seconds else 0.0),
        "empty": dg.MetadataValue.bool(bucket.rows == 0),
    }


def describe_requests(counts: Mapping[str, int], images: int = 0) -> Metadata:
    """Return what was done to the store; pure.

    Args:
        counts: See `Stores.stats`.
        images: That were read meanwhile; 0 where that says nothing.
    """
    shown = {"GET": "get", "HEAD": "head", "PUT": "put", "LIST": "list", "DELETE": "delete", "retries": "retries",
             "throttled": "throttled", "grant calls": "grant_calls"}  # fmt: skip
    told = {name: counts[count] for name, count in shown.items() if counts.get(count)}
    if not told:
        return {}
    gets = counts.get("source_get", 0)
    mean: Metadata = {"GET per image": finite_float(gets / images)} if gets and images else {}
    return {"requests of the step": count_table("request", told, "number"), **mean}


def describe_bucket_sidecars(bucket: BucketSidecars, output_uri: str, preview: Sequence[Mapping[str, str]]) -> Metadata:
    """Return what one partition of the sidecars shows; pure."""
    rows = {"preview": dg.MetadataValue.md(_preview_table(preview))} if preview else {}
    rates = {column: count / bucket.rows for column, count in bucket.null_counts.items() if bucket.rows}
    return {
        "dagster/row_count": dg.MetadataValue.int(bucket.rows),
        "dagster/uri": dg.MetadataValue.text(output_uri),
        "shards": dg.MetadataValue.int(bucket.shards),
        "shards written": dg.MetadataValue.int(bucket.shards_written),
        "null rates": _rate_table(rates),
        "empty": dg.MetadataValue.bool(bucket.rows == 0),
        **rows,
        **({"merged columns": _merge_table(bucket.merged)} if bucket.merged else {}),
    }


def describe_bucket_resized(bucket: BucketResized, output_uri: str) -> Metadata:
    """Return what one partition of a set of resized images shows; pure."""
    return {
        "dagster/row_count": dg.MetadataValue.int(bucket.rows),
        "dagster/uri": dg.MetadataValue.text(output_uri),
        "bytes": dg.MetadataValue.int(bucket.bytes),
        "shards": dg.MetadataValue.int(bucket.shards),
        "shards written": dg.MetadataValue.int(bucket.shards_written),
        "rows without an image": dg.MetadataValue.int(sum(bucket.failed.values())),
        "reasons": count_table("reason", {shorten(reason): count for reason, count in bucket.failed.items()}),
        "empty": dg.MetadataValue.bool(bucket.rows == 0),
    }


def describe_handoff(report: HandoffReport, told: HandoffFiles) -> Metadata:
    """Return what the handoff shows: its card, its sheets, where everything stands; pure."""
    pictures = {name: dg.MetadataValue.md(show_picture(data, name)) for name, data in told.pictures.items() if data}
    return {
        **pictures,
        "card": dg.MetadataValue.md(_without_links(told.card)),
        "dagster/row_count": dg.MetadataValue.int(report.rows),
        "dagster/uri": dg.MetadataValue.text(report.prefix),
        "shards": dg.MetadataValue.int(report.shards),
        "unchanged": dg.MetadataValue.bool(report.unchanged),
        "summary": dg.MetadataValue.json(told.summary),
    }


def _without_links(card: str) -> str:
    """Return a card without its front matter and without the pictures that stand beside it."""
    body = card.split("---\n", 2)[-1]
    return "\n".join(line for line in body.splitlines() if not line.startswith("![")).strip()


def describe_findings(bucket_key: str | None, findings: Sequence[Finding]) -> Metadata:
    """Return what a check shows: where, how many findings, and the first `EXAMPLES_MAX` of them; pure."""
    metadata: Metadata = {"findings": dg.MetadataValue.int(len(findings))}
    if bucket_key is not None:
        metadata["bucket"] = dg.MetadataValue.text(bucket_key)
    if findings:
        metadata["examples"] = dg.MetadataValue.md(
            "\n".join(f"- {describe_finding(f)}" for f in findings[:EXAMPLES_MAX])
        )
    return metadata


def describe_finding(finding: Finding) -> str:
    """Write a finding as one line: where, then what; pure."""
    return shorten(str(finding))


def shorten(text: str, characters: int = EXAMPLE_CHARACTERS_MAX) -> str:
    """Return the text on one line, cut to `characters`; pure."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def finite_float(value: float) -> dg.MetadataValue:
    """Return a number that plots; NaN and infinities become 0; pure."""
    return dg.MetadataValue.float(float(value) if math.isfinite(value) else 0.0)


def count_table(name: str, counts: Mapping[str, int], counted: str = "rows") -> dg.MetadataValue:
    """Return counts as a table, the largest first; pure."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return dg.MetadataValue.table(
        [dg.TableRecord({name: key, counted: count}) for key, count in ordered],
        dg.TableSchema([dg.TableColumn(name, "string"), dg.TableColumn(counted, "int")]),
    )


def _rate_table(rates: Mapping[str, float]) -> dg.MetadataValue:
    return dg.MetadataValue.table(
        [dg.TableRecord({"column": column, "null rate": round(rate, 4)}) for column, rate in rates.items()],
        dg.TableSchema([dg.TableColumn("column", "string"), dg.TableColumn("null rate", "float")]),
    )


def _preview_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Write rows as a table with a line for each column, which is how many columns of few rows can be read."""
    names = dict.fromkeys(name for row in rows for name in row)
    head = f"| column | {' | '.join(f'row {number}' for number in range(len(rows)))} |"
    lines = [head, "|---" * (len(rows) + 1) + "|"]
    for name in names:
        lines.append(f"| {name} | {' | '.join(_cell(row.get(name, '')) for row in rows)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    escaped = shorten(text, 60).replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`")
    return escaped.replace("<", "&lt;").replace("[", "\\[")


def _merge_table(merged: Mapping[str, MergedCounts]) -> dg.MetadataValue:
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "column": column,
                    "matched": counts.matched,
                    "unmatched": counts.unmatched,
                    "taken": counts.taken,
                    "bad values": counts.bad_values,
                }
            )
            for column, counts in merged.items()
        ],
        dg.TableSchema(
            [
                dg.TableColumn("column", "string"),
                *(dg.TableColumn(name, "int") for name in ("matched", "unmatched", "taken", "bad values")),
            ]
        ),
    )


def _largest_buckets(rows_by_bucket: Mapping[str, int]) -> dg.MetadataValue:
    order = {bucket.key: bucket.index for bucket in BUCKETS}
    largest = sorted(rows_by_bucket, key=lambda key: (-rows_by_bucket[key], order[key]))[:EXAMPLES_MAX]
    return count_table("bucket", {key: rows_by_bucket[key] for key in largest})
