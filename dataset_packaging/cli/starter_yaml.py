"""The starter YAML that `init` writes: it loads as it is, with the evidence for each line as a comment. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from dataset_packaging.config_yaml import read_yaml
from dataset_packaging.packing.proposal import Extension, MappedColumn, Proposal

DEFAULT_REJECTED_FRACTION = 0.01
_LARGEST_PROPOSED_FRACTION = 0.5  # beyond it something else is wrong, and a higher limit would hide it
_COMMENT_COLUMNS = 118
_UNUSED_SHOWN = 40
_PLAIN_SCALAR = re.compile(r"(?:s3://|file://)?[A-Za-z0-9_/.][A-Za-z0-9_./*-]*")


@dataclass(frozen=True, slots=True)
class StorageLines:
    """The `s3` block; None leaves a line out."""

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False


@dataclass(frozen=True, slots=True)
class Starter:
    """All that the starter says.

    Attributes:
        name: Of the dataset.
        manifest: As it stands in the file: absolute, or relative to the file's folder.
        output_prefix: The same.
        proposal: What the sample suggests.
        checked: Those of the proposal's `checked` columns that the sampled images agree with.
        base_uri: Where relative paths start; None where there are none.
        base_evidence: Why.
        sampled: What was looked at, for the first lines.
        formats: Image formats beyond the default ones, met in the sample.
        trust_sizes: False where sampled images have other sizes than the manifest says.
        rejected: Sampled rows that cannot be packed, by reason.
        sampled_rows: Sampled rows in all.
        storage: The `s3` block.
        findings: What a person should look at.
    """

    name: str
    manifest: str
    output_prefix: str
    proposal: Proposal
    checked: tuple[MappedColumn, ...]
    base_uri: str | None
    base_evidence: str
    sampled: str
    formats: tuple[str, ...]
    trust_sizes: bool
    rejected: Mapping[str, int]
    sampled_rows: int
    storage: StorageLines
    findings: tuple[str, ...]


def render_starter(starter: Starter) -> str:
    """Write the YAML text; pure."""
    sections = (
        _render_head(starter),
        _render_places(starter),
        _render_mapping(starter),
        _render_images(starter),
        _render_sidecar(starter.proposal.extensions),
        _render_storage(starter.storage),
        _render_unused(starter),
    )
    return "\n".join("\n".join(lines) + "\n" for section in sections if (lines := list(section)))


def limit_rejected_fraction(fraction: float) -> float:
    """Return the smallest limit in whole per cent, at least the default, with room for this fraction; pure."""
    if fraction <= 0.8 * DEFAULT_REJECTED_FRACTION:
        return DEFAULT_REJECTED_FRACTION
    return min(1.0, (int(fraction * 125) + 1) / 100)


def quote(text: str) -> str:
    """Write a text as a YAML scalar, in a block or in brackets, that is read back as exactly this text; pure.

    A text that holds `${` is the exception: it is replaced from the environment when the file is loaded.
    """
    if _PLAIN_SCALAR.fullmatch(text) and read_yaml(text, "quote", {}).value == yaml.safe_load(text) == text:
        return text
    return yaml.dump(text, default_style='"', allow_unicode=True, width=1 << 20).strip()


def _comment(text: str, indent: int = 0) -> Iterator[str]:
    """Wrap a comment; what cannot be printed has been replaced before."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    room = _COMMENT_COLUMNS - indent
    lead = "# "
    while clean:
        cut = len(clean) if len(clean) <= room else (clean.rfind(" ", 0, room) if " " in clean[:room] else room)
        yield " " * indent + lead + clean[:cut].rstrip()
        clean, lead = clean[cut:].lstrip(), "#   "


def _render_head(starter: Starter) -> Iterator[str]:
    yield from _comment(f"A starter, made by `dataset-packaging init` from {starter.sampled}.")
    yield from _comment(
        "Read the comments, change what is wrong, and see what would be done: dataset-packaging plan THIS_FILE"
    )
    for finding in starter.findings:
        yield from _comment(f"LOOK AT THIS: {finding}.")


def _render_places(starter: Starter) -> Iterator[str]:
    yield f"name: {quote(starter.name)}"
    yield f"manifest: {quote(starter.manifest)}"
    yield f"output_prefix: {quote(starter.output_prefix)}"
    yield from _comment(f"sidecar_prefix and work_prefix stand beside it: {starter.output_prefix}_sidecar and _work")


def _render_mapping(starter: Starter) -> Iterator[str]:
    proposal = starter.proposal
    mapped = {column.column for column in proposal.columns}
    yield "mapping:"
    yield "  constants:   # the same in every row"
    if "data_source" not in mapped:
        yield f"    data_source: {quote(starter.name)}"
    if "task" not in mapped:
        yield "    task: text to image generation"
    nothing = "" if proposal.key or proposal.path or proposal.columns else " {}"
    yield f"  direct:{nothing}   # column: [fields of the manifest, the first that is not null counts]"
    yield from _render_key(proposal)
    if proposal.path is None:
        yield from _comment("s3_image_path: [FIELD]     name the field that says where the image is", 4)
    else:
        yield from _render_column(proposal.path)
    for column in (*proposal.columns, *starter.checked):
        yield from _render_column(column)
    if starter.base_uri is not None:
        yield from _comment(starter.base_evidence, 2)
        yield f"  base_uri: {quote(starter.base_uri)}"
    if proposal.drop:
        yield "  # Huge and of no use here: stripped while loading."
        yield "  drop:"
        for field in proposal.drop:
            yield from _comment(field.evidence, 4)
            yield f"    - {quote(field.name)}"


def _render_key(proposal: Proposal) -> Iterator[str]:
    if proposal.key is None:
        yield from _comment("image_key: without a line here the path is the key of a row", 4)
    else:
        yield from _render_column(proposal.key)


def _render_column(column: MappedColumn) -> Iterator[str]:
    for line in column.evidence:
        yield from _comment(line, 4)
    sources = ", ".join(quote(source) for source in column.sources)
    if column.cast:
        yield f"    {column.column}: {{from: [{sources}], cast: {column.cast}}}"
    else:
        yield f"    {column.column}: [{sources}]"


def _render_images(starter: Starter) -> Iterator[str]:
    rejected = sum(starter.rejected.values())
    limit = limit_rejected_fraction(rejected / max(starter.sampled_rows, 1))
    lines: list[str] = []
    if not starter.trust_sizes:
        lines += ["  # Sampled images have other sizes than the manifest says.", "  dimensions: probe"]
    if starter.formats:
        formats = ", ".join(("JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP", *starter.formats))
        lines += [
            "  # Met in the sample beyond the default formats: " + ", ".join(starter.formats),
            f"  formats: [{formats}]",
        ]
    if DEFAULT_REJECTED_FRACTION < limit <= _LARGEST_PROPOSED_FRACTION:
        reasons = ", ".join(f"{reason} {count}" for reason, count in starter.rejected.items())
        evidence = (
            f"{rejected} of {starter.sampled_rows} sampled rows cannot be packed: {reasons}. With more rejects than "
            f"this part of all rows the dataset is not handed off; the default is {DEFAULT_REJECTED_FRACTION}."
        )
        lines += [*_comment(evidence, 2), f"  max_rejected_fraction: {limit:.2f}"]
    if lines:
        yield "images:"
        yield from lines


def _render_sidecar(extensions: Sequence[Extension]) -> Iterator[str]:
    if extensions:
        yield "sidecar:"
        yield "  schema_extensions:   # columns that only this dataset has"
        yield from (f"    - {{name: {quote(column.name)}, type: {quote(column.type)}}}" for column in extensions)


def _render_storage(storage: StorageLines) -> Iterator[str]:
    fields = {"endpoint": storage.endpoint, "region": storage.region, "profile": storage.profile}
    if any(fields.values()) or storage.anonymous:
        yield "s3:"
        yield from (f"  {name}: {quote(value)}" for name, value in fields.items() if value)
        if storage.anonymous:
            yield "  read: {anonymous: true}"


def _render_unused(starter: Starter) -> Iterator[str]:
    checked = {source for column in starter.checked for source in column.sources}
    unused = [field for field in starter.proposal.unused if field.name not in checked]
    if not unused:
        return
    yield "# Not mapped: these fields go to meta_info as they are, the largest first."
    for field in unused[:_UNUSED_SHOWN]:
        yield from _comment(f"{field.name}: {field.evidence}")
    if len(unused) > _UNUSED_SHOWN:
        yield f"# and {len(unused) - _UNUSED_SHOWN} more"
