"""`inspect`: what a shard or a prefix holds, from its footers; a contact sheet of some pictures."""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dataset_packaging.cli.outcome import EXIT_DONE, EXIT_FINDINGS, JsonValue, Outcome
from dataset_packaging.cli.shard_survey import (
    ColumnFigures,
    Footer,
    ShardSurvey,
    bucket_of_uri,
    read_pictures,
    read_survey,
)
from dataset_packaging.cli.storage import load_stores, open_stores, read_s3_options, require_uri
from dataset_packaging.cli.tables import (
    Column,
    format_bytes,
    format_count,
    format_fraction,
    format_items,
    number_columns,
    render_table,
)
from dataset_packaging.errors import ConfigError
from dataset_packaging.io.store import ObjectInfo, Stores

_SHEET_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_ROW_GROUPS_SHOWN = 40
_PROBLEMS_SHOWN = 20


def run(args: argparse.Namespace) -> Outcome:
    """Show a shard or a prefix; reads footers, and image pages only for a contact sheet."""
    sheet = _require_sheet_path(args.contact_sheet) if args.contact_sheet else None
    stores = load_stores(args.dataset) if args.dataset else open_stores(read_s3_options(args))
    survey = read_survey(stores, require_uri(args.target).rstrip("/"), args.max_footers)
    drawn = _draw_sheet(stores, survey, sheet) if sheet else ""
    text = "\n".join(section for section in _render_sections(survey) if section) + drawn
    exit_code = EXIT_FINDINGS if survey.problems else EXIT_DONE
    return Outcome(exit_code, text, _summarize(survey, sheet))


def _require_sheet_path(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in _SHEET_FORMATS:
        raise ConfigError(f"--contact-sheet: expected a name that ends in .png or .jpg, got {text!r}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--contact-sheet: there is no folder {path.absolute().parent}")
    return path


def _draw_sheet(stores: Stores, survey: ShardSurvey, sheet: Path) -> str:
    from dataset_packaging.packing.contact_sheet import TILE_COUNT_MAX, draw_contact_sheet

    pictures = read_pictures(stores, survey.footers, TILE_COUNT_MAX)
    image_format = _SHEET_FORMATS[sheet.suffix.lower()]
    sheet.write_bytes(draw_contact_sheet(pictures, image_format="PNG" if image_format == "PNG" else "JPEG"))
    return f"\ncontact sheet: {sheet}\n"


@dataclass(slots=True)
class _ColumnSum:
    """One column, summed over files."""

    type: str
    nullable: bool
    codecs: set[str] = field(default_factory=set)
    encodings: set[str] = field(default_factory=set)
    has_statistics: bool = False
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0

    def add(self, figures: ColumnFigures) -> None:
        self.codecs.update(figures.codecs)
        self.encodings.update(figures.encodings)
        self.has_statistics |= figures.has_statistics
        self.compressed_bytes += figures.compressed_bytes
        self.uncompressed_bytes += figures.uncompressed_bytes


def _sum_columns(footers: tuple[Footer, ...]) -> dict[str, _ColumnSum]:
    columns: dict[str, _ColumnSum] = {}
    for footer in footers:
        for figures in footer.columns:
            columns.setdefault(figures.name, _ColumnSum(figures.type, figures.nullable)).add(figures)
    return columns


def _render_sections(survey: ShardSurvey) -> Iterator[str]:
    yield _render_head(survey)
    yield _render_columns(survey)
    if len(survey.objects) == 1:
        yield _render_row_groups(survey.footers)
    else:
        yield _render_buckets(survey)
    yield _render_problems(survey)


def _render_head(survey: ShardSurvey) -> str:
    about = "about " if survey.is_partial else ""
    groups = [size for footer in survey.footers for size in footer.row_group_bytes]
    lines = [
        survey.target_uri,
        f"{format_items(len(survey.objects), 'file')}, {about}{format_items(survey.rows, 'row')}, "
        f"{format_bytes(survey.size_bytes)}",
    ]
    if survey.is_partial:
        lines.append(f"footers read: {format_count(len(survey.footers))}, evenly spread; rows are estimated from them")
    if groups:
        lines.append(
            f"{format_items(len(groups), 'row group')} of {format_bytes(min(groups))} to {format_bytes(max(groups))}, "
            f"written by {', '.join(sorted({footer.created_by for footer in survey.footers}))}"
        )
    return "\n".join(lines) + "\n"


def _render_columns(survey: ShardSurvey) -> str:
    columns = _sum_columns(survey.footers)
    total_bytes = sum(column.compressed_bytes for column in columns.values())
    rows = [
        (
            name,
            column.type.replace("list<element: ", "list<") + ("" if column.nullable else " not null"),
            ", ".join(sorted(column.codecs)),
            "dictionary" if any("DICTIONARY" in encoding for encoding in column.encodings) else "",
            "yes" if column.has_statistics else "no",
            format_bytes(column.compressed_bytes),
            format_fraction(column.compressed_bytes, total_bytes),
        )
        for name, column in columns.items()
    ]
    headings = (Column("column"), Column("type", cut=True), Column("codec"), Column("coding"), Column("min/max"))
    return render_table((*headings, *number_columns("size", "share")), rows)


def _render_row_groups(footers: tuple[Footer, ...]) -> str:
    groups = [group for footer in footers for group in zip(footer.row_group_rows, footer.row_group_bytes, strict=True)]
    rows = [
        (str(number), format_count(row_count), format_bytes(size_bytes))
        for number, (row_count, size_bytes) in enumerate(groups[:_ROW_GROUPS_SHOWN])
    ]
    table = render_table(number_columns("row group", "rows", "bytes"), rows)
    hidden = len(groups) - len(rows)
    return table + (f"and {hidden} more row groups\n" if hidden else "")


def _count_buckets(survey: ShardSurvey) -> dict[str, tuple[int, int, int]]:
    """Count shards, rows (of the footers read) and bytes by bucket, in the order of the buckets."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    rows = {footer.info.uri: footer.rows for footer in survey.footers}
    for info in sorted(survey.objects, key=_bucket_order):
        bucket = bucket_of_uri(info.uri)
        line = counts[bucket.key if bucket else "(no bucket)"]
        line[0] += 1
        line[1] += rows.get(info.uri, 0)
        line[2] += info.size_bytes
    return {key: (shards, row_count, size_bytes) for key, (shards, row_count, size_bytes) in counts.items()}


def _bucket_order(info: ObjectInfo) -> tuple[int, str]:
    bucket = bucket_of_uri(info.uri)
    return (bucket.index if bucket else -1, info.uri)


def _render_buckets(survey: ShardSurvey) -> str:
    heading = "rows read" if survey.is_partial else "rows"
    rows = [
        (key, format_count(shards), format_count(row_count), format_bytes(size_bytes))
        for key, (shards, row_count, size_bytes) in _count_buckets(survey).items()
    ]
    return render_table((Column("bucket"), *number_columns("shards", heading, "bytes")), rows)


def _render_problems(survey: ShardSurvey) -> str:
    lines = [f"problem: {problem}" for problem in survey.problems[:_PROBLEMS_SHOWN]]
    if len(survey.problems) > _PROBLEMS_SHOWN:
        lines.append(f"and {len(survey.problems) - _PROBLEMS_SHOWN} more problems")
    if survey.strangers:
        lines.append(f"note: no Parquet files, but below the prefix: {', '.join(survey.strangers)}")
    return "\n".join(lines) + "\n" if lines else ""


def _summarize(survey: ShardSurvey, sheet: Path | None) -> dict[str, JsonValue]:
    columns = _sum_columns(survey.footers)
    return {
        "target": survey.target_uri,
        "shards": len(survey.objects),
        "rows": survey.rows,
        "rows_estimated": survey.is_partial,
        "bytes": survey.size_bytes,
        "footers_read": len(survey.footers),
        "row_groups": sum(len(footer.row_group_rows) for footer in survey.footers),
        "largest_row_group_bytes": max(
            (max(footer.row_group_bytes, default=0) for footer in survey.footers), default=0
        ),
        "columns": [
            {
                "name": name,
                "type": column.type,
                "nullable": column.nullable,
                "codecs": [*sorted(column.codecs)],
                "encodings": [*sorted(column.encodings)],
                "statistics": column.has_statistics,
                "compressed_bytes": column.compressed_bytes,
                "uncompressed_bytes": column.uncompressed_bytes,
            }
            for name, column in columns.items()
        ],
        "buckets": {
            key: {"shards": shards, "rows": row_count, "bytes": size_bytes}
            for key, (shards, row_count, size_bytes) in _count_buckets(survey).items()
        },
        "problems": [*survey.problems],
        "strangers": [*survey.strangers],
        "contact_sheet": str(sheet) if sheet else None,
    }
