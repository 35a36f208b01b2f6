"""`init`: look at a manifest and some of its images, write a starter YAML."""

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataset_packaging.cli.outcome import EXIT_DONE, EXIT_FINDINGS, JsonValue, Outcome
from dataset_packaging.cli.path_spelling import HOW_TO, is_on_windows_disk, respell
from dataset_packaging.cli.sampling import (
    SAMPLED_IMAGES,
    ImageEvidence,
    Sample,
    find_base_uri,
    is_there,
    read_image_evidence,
    read_sample,
)
from dataset_packaging.cli.starter_yaml import Starter, StorageLines, render_starter
from dataset_packaging.cli.storage import open_stores, read_s3_options, require_uri
from dataset_packaging.cli.tables import format_bytes, format_count, format_items
from dataset_packaging.config import FieldMapping, MappingConfig, S3Config, parse_dataset
from dataset_packaging.core.other_formats import describe_format
from dataset_packaging.core.records import MappedRows, RecordMapper
from dataset_packaging.errors import ConfigError, ManifestError
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.field_survey import ManifestSurvey, survey_lines
from dataset_packaging.packing.proposal import MappedColumn, Proposal, propose_mapping

_MANIFEST_SUFFIX = re.compile(r"(\.(jsonl?|ndjson|gz|gzip|zst|zstd|txt))+$", re.IGNORECASE)
_SAYS_NOTHING = {
    "manifest", "entry", "entries", "data", "dataset", "metadata", "meta", "index", "train", "training", "val", "valid",
    "test", "part", "captions", "caption", "images", "annotations", "file", "files", "input", "export", "dump", "items",
    "rows", "records",
}  # fmt: skip
_IMAGE_FOLDERS = ("images", "image", "imgs", "img", "photos", "pictures", "files", "data")
_SOME_BASE_URI = "s3://base-uri-is-not-known-yet/"
_OPT_IN_FORMATS = {"avif": "AVIF", "heic": "HEIF", "heif": "HEIF"}


def run(args: argparse.Namespace) -> Outcome:
    """Write the starter of a manifest; reads a sample of it and at most a few images."""
    manifest_uri = require_uri(args.manifest)
    name = _require_name(args.name) if args.name else propose_name(manifest_uri)
    target = None if args.output == "-" else Path(args.output or f"{name}.yaml")
    _require_free(target, force=args.force)
    folder = target.absolute().parent if target else Path.cwd()
    s3 = read_s3_options(args)
    stores = open_stores(s3)
    sample = read_sample(stores, manifest_uri, args.sample_rows)
    survey = survey_lines(sample.lines)
    _require_rows(survey, sample, manifest_uri)
    starter = _compose_starter(
        Places(name, manifest_uri, folder, args.output_prefix), sample, survey, None if args.no_fetch else stores, s3
    )
    text = render_starter(starter)
    parse_dataset(text, str(target or "-"), folder, {})
    if target is not None:
        _write_file(target, text, force=args.force)
    return _report(starter, survey, target, text)


def propose_name(manifest_uri: str) -> str:
    """Make the name of a dataset from its manifest's file name, or from the folder where that says nothing; pure."""
    parts = [part for part in manifest_uri.split("://", 1)[-1].split("/") if part]
    stem = _MANIFEST_SUFFIX.sub("", parts[-1])
    for text in (stem, *reversed(parts[:-1])):
        words = [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word]
        telling = [word for word in words if not word.isdigit() and word not in _SAYS_NOTHING]
        if telling:
            name = "_".join(telling)
            return name if name[0].isalpha() else f"set_{name}"
    return "dataset"


@dataclass(frozen=True, slots=True)
class Places:
    """Names and places of a starter.

    Attributes:
        name: Of the dataset.
        manifest_uri: Absolute.
        folder: Where the YAML file will stand.
        output_prefix: As given on the command line; None for the default.
    """

    name: str
    manifest_uri: str
    folder: Path
    output_prefix: str | None

    @property
    def manifest(self) -> str:
        """The manifest as it stands in the YAML: relative where it is in or below its folder."""
        here = f"file://{self.folder}/"
        return self.manifest_uri.removeprefix(here)

    @property
    def output(self) -> str:
        """Where shards go, as it stands in the YAML."""
        if self.output_prefix is not None:
            return require_uri(self.output_prefix).rstrip("/")
        if self.manifest_uri.startswith("s3://"):
            return f"{re.split(r'[*?[]', self.manifest_uri)[0].rsplit('/', 1)[0]}/{self.name}_parquet"
        return f"{self.name}_parquet"


def _require_name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"--name: expected lower-case letters, digits and _, a letter first, got {name!r}")
    return name


def _require_free(target: Path | None, *, force: bool) -> None:
    if target is None:
        return
    if target.exists() and not force:
        raise ConfigError(f"{target} exists: choose another name with -o, or replace it with --force")
    if not target.absolute().parent.is_dir():
        raise ConfigError(f"{target}: there is no folder {target.absolute().parent}")


def _require_rows(survey: ManifestSurvey, sample: Sample, manifest_uri: str) -> None:
    if not sample.lines:
        raise ManifestError(f"{manifest_uri}: this manifest is empty")
    if survey.rows == 1 and sample.is_whole and len(sample.lines) == 1:
        tables = [field.name for field in survey.fields if field.depth == 1 and field.kinds.get("list")]
        if any(field.mean_bytes > 1000 for field in survey.fields if field.name in tables):
            raise ManifestError(
                f"{manifest_uri}: expected one JSON object per line; this is one JSON document with the lists "
                f"{', '.join(tables)}: write one object per image and line"
            )
    if survey.rows < survey.broken_lines:
        told = describe_format(sample.lines)
        raise ManifestError(f"{manifest_uri}: expected one JSON object per line; {told}")


def _compose_starter(
    places: Places, sample: Sample, survey: ManifestSurvey, stores: Stores | None, s3: S3Config
) -> Starter:
    proposal = propose_mapping(survey)
    rows = _map_sample(proposal, sample) if proposal.path else None
    base_uri, base_evidence = None, ""
    findings = [*proposal.warnings, *_judge_path(proposal)]
    if rows and proposal.relative_rows:
        paths = [path.removeprefix(_SOME_BASE_URI) for path in rows.s3_image_path if path.startswith(_SOME_BASE_URI)]
        base_uri, found = _choose_base(places, paths, stores)
        base_evidence = _describe_base(min(len(paths), SAMPLED_IMAGES), found)
        if found == 0:
            base_uri, finding = _explain_absent(places, paths, stores, base_uri)
            findings.append(finding)
            stores = None
        rows = _map_sample(proposal, sample, base_uri)
    evidence = read_image_evidence(stores, rows) if stores and rows and rows.s3_image_path else None
    findings += _judge_images(evidence, rows, stores) if evidence and rows and stores else ()
    return Starter(
        name=places.name,
        manifest=places.manifest,
        output_prefix=places.output,
        proposal=proposal,
        checked=tuple(_confirmed(proposal, evidence)),
        base_uri=base_uri,
        base_evidence=base_evidence,
        sampled=_describe_sample(sample, survey, evidence),
        formats=_opt_in_formats(rows),
        trust_sizes=evidence is None or 2 * evidence.sizes_same >= evidence.sizes_compared,
        rejected=dict(Counter(reject.reason for reject in rows.rejects)) if rows else {},
        sampled_rows=rows.rows if rows else survey.rows,
        storage=StorageLines(s3.endpoint, s3.region, s3.profile, s3.anonymous),
        findings=tuple(findings),
    )


def _map_sample(proposal: Proposal, sample: Sample, base_uri: str = _SOME_BASE_URI) -> MappedRows:
    """Map the sampled lines as the packaging would, so that what is said about them is what will happen."""
    mapped = [*proposal.columns, *proposal.checked, *(column for column in (proposal.path, proposal.key) if column)]
    direct = {column.column: FieldMapping(from_=column.sources, cast=column.cast) for column in mapped}
    mapping = MappingConfig(direct=direct, base_uri=base_uri)
    return RecordMapper(mapping).map_lines(enumerate(sample.lines, 1), "sample")


def _choose_base(places: Places, paths: Sequence[str], stores: Stores | None) -> tuple[str, int | None]:
    """Choose where relative paths start, from what stands there; the manifest's folder where nothing is known.

    Returns:
        The folder, and how many of the images that were looked for stand below it; None where none were.
    """
    folder_uri = re.split(r"[*?[]", places.manifest_uri)[0].rsplit("/", 1)[0] + "/"
    if stores is None:
        return folder_uri, None
    parent_uri = folder_uri[:-1].rsplit("/", 1)[0] + "/"
    words = re.split(r"[^A-Za-z0-9]+", places.manifest_uri.rsplit("/", 1)[-1])
    names = (*_IMAGE_FOLDERS, *words, places.name)
    candidates = [folder_uri, *(f"{folder_uri}{name}/" for name in (*_list_folders(folder_uri), *names) if name)]
    if parent_uri.count("/") > 3:
        candidates += [parent_uri, *(f"{parent_uri}{name}/" for name in (*_list_folders(parent_uri), *names) if name)]
    return find_base_uri(stores, paths, list(dict.fromkeys(candidates)))


def _explain_absent(places: Places, paths: Sequence[str], stores: Stores | None, base_uri: str) -> tuple[str, str]:
    """Tell why no sampled image is where its path says; returns the likely base URI and the finding."""
    path = paths[0]
    if is_on_windows_disk(path):
        return base_uri, (
            f"{path} is on a Windows disk: copy the images to S3 or a disk of this machine, keep of each path what is "
            f"below mapping.base_uri and {HOW_TO}"
        )
    spellings = [respell(path) for path in paths]
    if wrong := next((spelling.wrong for spelling in spellings if spelling.wrong), ""):
        likely, found = _choose_base(places, [spelling.path for spelling in spellings], stores)
        if found:
            return likely, f"the path {path} {wrong}, its image is found without: {HOW_TO}"
    return base_uri, f"no sampled image, such as {path}, stands in a likely folder: set mapping.base_uri"


def _list_folders(folder_uri: str) -> list[str]:
    """List the folders in a local folder; on S3, where that costs a walk over all objects, none."""
    if not folder_uri.startswith("file://"):
        return []
    try:
        return sorted(path.name for path in Path(folder_uri.removeprefix("file://")).iterdir() if path.is_dir())[:50]
    except OSError:
        return []


def _describe_base(looked_for: int, found: int | None) -> str:
    if found is None:
        return "Relative paths are joined to this, the manifest's folder: a guess, nothing was looked for."
    if not found:
        return f"Relative paths are joined to this. None of {looked_for} sampled images stands here: set it."
    return f"Relative paths are joined to this: {found} of {looked_for} sampled images stand here."


def _confirmed(proposal: Proposal, evidence: ImageEvidence | None) -> Iterator[MappedColumn]:
    for column in proposal.checked:
        compared = evidence.checks_compared.get(column.column, 0) if evidence else 0
        if evidence and compared and evidence.checks_same[column.column] == compared:
            told = f"compared with every file; agrees with all of {compared} sampled ones"
            yield MappedColumn(column.column, column.sources, column.cast, (*column.evidence, told))


def _judge_path(proposal: Proposal) -> Iterator[str]:
    if proposal.path is None:
        yield "no field looks like the place of an image: map s3_image_path"
    elif not proposal.path_rows:
        yield (
            f"{proposal.path.sources[0]} holds web addresses, which are not fetched: copy the images to S3 or a disk "
            "and give each row its path there"
        )


def _judge_images(evidence: ImageEvidence, rows: MappedRows, stores: Stores) -> Iterator[str]:
    if evidence.found < evidence.looked_for:
        missing = evidence.looked_for - evidence.found
        yield f"{missing} of {evidence.looked_for} sampled images could not be read: {evidence.failure}"
    if not evidence.found:
        spelling = respell(rows.s3_image_path[0])
        if spelling.wrong and is_there(stores, spelling.path):
            yield f"the path {rows.s3_image_path[0]} {spelling.wrong}, its image is found without: {HOW_TO}"
    if evidence.sizes_same < evidence.sizes_compared:
        others = evidence.sizes_compared - evidence.sizes_same
        yield f"{others} of {evidence.sizes_compared} sampled images have another size than the manifest says"
    for name, compared in evidence.checks_compared.items():
        if evidence.checks_same[name] < compared:
            others = compared - evidence.checks_same[name]
            yield f"the manifest's {name} is not that of {others} of {compared} sampled images"


def _opt_in_formats(rows: MappedRows | None) -> tuple[str, ...]:
    suffixes = {path.rsplit(".", 1)[-1].lower() for path in rows.s3_image_path} if rows else set()
    return tuple(sorted({name for suffix, name in _OPT_IN_FORMATS.items() if suffix in suffixes}))


def _describe_sample(sample: Sample, survey: ManifestSurvey, evidence: ImageEvidence | None) -> str:
    files = format_items(sample.files, "file")
    which = "all" if sample.is_whole else "a sample of"
    images = f" and {evidence.found} images" if evidence and evidence.found else ""
    lines = format_count(survey.rows + survey.broken_lines)
    return f"{which} {lines} lines of {files} ({format_bytes(sample.size_bytes)}){images}"


def _write_file(target: Path, text: str, *, force: bool) -> None:
    try:
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror}") from error


def _report(starter: Starter, survey: ManifestSurvey, target: Path | None, text: str) -> Outcome:
    proposal = starter.proposal
    columns = [column for column in (proposal.key, proposal.path, *proposal.columns, *starter.checked) if column]
    lines = [
        f"wrote {target}: {len(columns)} columns mapped, {len(proposal.drop)} fields dropped, "
        f"{len(proposal.unused)} kept in meta_info",
        f"looked at {starter.sampled}",
        *(f"look at this: {finding}" for finding in starter.findings),
        f"next: dataset-packaging plan {target}",
    ]
    summary: dict[str, JsonValue] = {
        "file": str(target) if target else None,
        "yaml": text,
        "name": starter.name,
        "sampled_rows": survey.rows,
        "broken_lines": survey.broken_lines,
        "mapped": {column.column: [*column.sources] for column in columns},
        "dropped": [field.name for field in proposal.drop],
        "kept": [field.name for field in proposal.unused],
        "base_uri": starter.base_uri,
        "rejected": {**starter.rejected},
        "findings": [*starter.findings],
    }
    exit_code = EXIT_DONE if proposal.path_rows else EXIT_FINDINGS
    if target is None:
        return Outcome(exit_code, text, summary, tuple(f"look at this: {finding}" for finding in starter.findings))
    return Outcome(exit_code, "\n".join(lines), summary)
