"""The dataset card: what was packed, whose it is, how it is read; Markdown with the front matter of the Hub. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import yaml

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.schema import IMAGE_COLUMN, MAIN_SCHEMA, sidecar_schema, type_name

HUB_LICENCES = frozenset(
    "apache-2.0 mit cc0-1.0 cc-by-2.0 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-3.0 cc-by-nc-4.0 "
    "cc-by-nd-4.0 cc-by-nc-nd-4.0 cc-by-nc-sa-4.0 odbl odc-by pddl unlicense unknown other".split()
)
"""Names that the Hub knows; any other licence is `other` there, with its own name beside it."""

_SIZE_CATEGORIES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"),
                    (10_000_000, "1M<n<10M"), (100_000_000, "10M<n<100M"), (1_000_000_000, "100M<n<1B"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card tells beyond the configuration.

    Attributes:
        stats: as in `stats.json`.
        handoff: as in `HANDOFF.json`: prefixes, versions, fingerprints, checks.
        pictures: files beside the card that it shows, with their captions.
    """

    stats: Mapping[str, Any]
    handoff: Mapping[str, Any]
    pictures: Sequence[tuple[str, str]]


def write_card(dataset: DatasetConfig, facts: CardFacts, front_matter: Mapping[str, Any] | None = None) -> str:
    """Return the card.

    Args:
        dataset: its configuration: name, description, licence, owners, confidentiality.
        facts: what was counted.
        front_matter: more fields of the front matter, such as the configurations of a Hub repository.
    """
    head = {**_front_matter(dataset, int(facts.stats["rows"])), **(front_matter or {})}
    sections = [
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n",
        f"# {dataset.name}\n",
        _introduce(dataset, facts.stats),
        "".join(f"![{caption}]({name})\n\n" for name, caption in facts.pictures).rstrip() + "\n",
        _rights(dataset),
        _places(facts.handoff),
        _buckets(facts.stats),
        _columns(dataset, facts.stats),
        _rejects(facts.stats),
        _provenance(dataset, facts.handoff),
    ]
    return "\n".join(section for section in sections if section.strip())


def _front_matter(dataset: DatasetConfig, rows: int) -> dict[str, Any]:
    licence = (dataset.licence or "unknown").strip()
    known = licence.lower() in HUB_LICENCES
    head: dict[str, Any] = {"pretty_name": dataset.name, "license": licence.lower() if known else "other"}
    if not known:
        head["license_name"] = licence
    head["size_categories"] = [next((name for limit, name in _SIZE_CATEGORIES if rows < limit), "n>1T")]
    head["tags"] = ["image", *(f"{name}:{value}" for name, value in sorted(dataset.tags.items()))]
    return head


def _introduce(dataset: DatasetConfig, stats: Mapping[str, Any]) -> str:
    text = f"{dataset.description}\n\n" if dataset.description else ""
    return text + (
        f"{stats['rows']:,} images in {stats['shards']:,} shards, {describe_bytes(stats['image_bytes'])} of original "
        f"files, in {len(stats['buckets'])} of 135 buckets by size and aspect ratio. "
        f"Formats: {', '.join(f'{name} {count:,}' for name, count in stats['formats'].items()) or 'none'}.\n"
    )


def _rights(dataset: DatasetConfig) -> str:
    lines = [
        ("Licence", dataset.licence or "not told"),
        ("Owners", ", ".join(dataset.owners) or "not told"),
        ("Confidentiality", dataset.confidentiality or "not told"),
    ]
    return "## Rights\n\n" + "".join(f"- {name}: {text}\n" for name, text in lines)


def _places(handoff: Mapping[str, Any]) -> str:
    prefixes = {name: uri.removeprefix("file://") for name, uri in handoff["prefixes"].items()}
    resized = "".join(
        f"- Resized images: `{uri}/...`, the same paths, rows and order, WebP of the area of {name[8:]} x {name[8:]}\n"
        for name, uri in prefixes.items()
        if name.removeprefix("resized_").isdigit()
    )
    return f"""## Reading

- Shards: `{prefixes["output_prefix"]}/{{scale}}/{{ratio}}/shard-NNNNNN.parquet`, with the original bytes of each image
- Sidecars: `{prefixes["sidecar_prefix"]}/...`, the same paths, rows and order, without images
{resized}- Index of the row groups, for `dataset_packaging.reading`: `{prefixes["handoff_prefix"]}/blocks.parquet`

```python
import polars as pl

shards = pl.scan_parquet("{prefixes["output_prefix"]}/**/*.parquet")
sidecars = pl.scan_parquet("{prefixes["sidecar_prefix"]}/**/*.parquet")
```
"""


def _buckets(stats: Mapping[str, Any]) -> str:
    lines = [
        f"| {key} | {entry['rows']:,} | {entry['shards']:,} | {describe_bytes(entry['image_bytes'])} |\n"
        for key, entry in stats["buckets"].items()
    ]
    return "## Buckets\n\n| scale/ratio | rows | shards | images |\n|---|---:|---:|---:|\n" + "".join(lines)


def _columns(dataset: DatasetConfig, stats: Mapping[str, Any]) -> str:
    side = sidecar_schema(dataset.sidecar.extension_columns())
    fields = [*MAIN_SCHEMA, *(field for field in side if field.name not in MAIN_SCHEMA.names)]
    lines = []
    for field in fields:
        place = "shard" if field.name == IMAGE_COLUMN else "both" if field.name in MAIN_SCHEMA.names else "sidecar"
        rate = stats["null_rates"].get(field.name)
        nulls = "" if rate is None else f"{rate:.1%}"
        meaning = (field.metadata or {}).get(b"description", b"").decode()
        lines.append(f"| `{field.name}` | `{type_name(field.type)}` | {place} | {nulls} | {meaning} |\n")
    return "## Columns\n\n| name | type | in | null | meaning |\n|---|---|---|---:|---|\n" + "".join(lines)


def _rejects(stats: Mapping[str, Any]) -> str:
    ledger = stats["ledger"]
    rejected = ", ".join(f"{reason} {count:,}" for reason, count in ledger["rejected"].items()) or "none"
    return (
        "## Every row\n\n"
        f"{ledger['rows']:,} rows of the manifest = {ledger['packed']:,} packed + {sum(ledger['rejected'].values()):,} "
        f"rejected + {ledger['duplicates']:,} duplicates + {ledger['pending']:,} pending. Rejected: {rejected}.\n"
    )


def _provenance(dataset: DatasetConfig, handoff: Mapping[str, Any]) -> str:
    lines = [f"- Manifest: `{uri}`\n" for uri in dataset.manifest]
    lines += [f"- Merged: `{merge['source']}` into {', '.join(merge['columns'])}\n" for merge in handoff["merges"]]
    if handoff["reference"]:
        lines.append(f"- Reference of the sidecars: `{handoff['reference']}`\n")
    lines += [f"- {name}: {value}\n" for name, value in handoff["versions"].items()]
    lines += [f"- fingerprint of {name}: `{value}`\n" for name, value in handoff["fingerprints"].items()]
    checks = ", ".join(handoff["checks"])
    return (
        "## Provenance\n\n" + "".join(lines) + f"\nChecked before this was written, all without a finding: {checks}.\n"
    )


def describe_bytes(count: int) -> str:
    """Return a count of bytes with a decimal unit: `4.6 MB`; pure."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def hub_features(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return a schema as the `features` of a Hub card; the image column is a picture."""
    return [_hub_feature(field.name, field.type) for field in schema]


def _hub_feature(name: str, type_: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(type_):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        return {"name": name, "struct": [_hub_feature(field.name, field.type) for field in fields]}
    if pa.types.is_list(type_):
        inner = _hub_feature("item", type_.value_type)
        return {"name": name, "list": inner["dtype"] if "dtype" in inner else inner["struct"]}
    if name == IMAGE_COLUMN:
        return {"name": name, "dtype": "image"}
    return {"name": name, "dtype": {"double": "float64", "float": "float32"}.get(str(type_), str(type_))}
