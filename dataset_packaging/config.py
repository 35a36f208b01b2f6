"""The dataset YAML as frozen models, and the settings of the process: the environment is read here and nowhere else.

The fields are the specification of the public contract, section 3. `load_dataset` makes every URI absolute, so that no
other module has to know where the file stands.
"""

from __future__ import annotations

import json
import os
import zoneinfo
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from dataset_packaging.config_fields import (
    TEXTS_SCHEMA,
    ArrayBytes,
    Cron,
    DirectMapping,
    FieldMapping,
    Folder,
    Model,
    Positive,
    Prefix,
    Seconds,
    Text,
    Uri,
    tuple_of_texts,
)
from dataset_packaging.config_messages import explain_validation, show
from dataset_packaging.config_sidecar import CropsConfig, MergeConfig, ResizedSet, SchemaExtension, SidecarConfig
from dataset_packaging.config_yaml import read_yaml
from dataset_packaging.core.dataset_rules import (
    MAPPING_NAMES_SCHEMA,
    require_apart,
    require_each_once,
    require_foreign,
    require_mappable,
    require_mergeable,
    require_not_computed,
    require_other_sources,
)
from dataset_packaging.errors import ConfigError, NoPermission

__all__ = [
    "WORKER_HEAP",
    "AccessGrantsConfig",
    "CropsConfig",
    "DatasetConfig",
    "FieldMapping",
    "ImagesConfig",
    "MappingConfig",
    "MergeConfig",
    "PackingConfig",
    "ResizedSet",
    "RuntimeConfig",
    "S3Config",
    "S3Identity",
    "ScheduleConfig",
    "SchemaExtension",
    "SidecarConfig",
    "dataset_json_schema",
    "load_dataset",
    "parse_dataset",
    "read_runtime",
    "set_ray_environment",
]

MEBIBYTE = 2**20
ImageFormat = Literal["JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "HEIF"]
DEFAULT_FORMATS: tuple[ImageFormat, ...] = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP")


class MappingConfig(Model):
    """How fields of the manifest become columns; everything that no column takes goes to meta_info."""

    constants: Annotated[
        dict[str, StrictStr | StrictBool | StrictInt | StrictFloat],
        Field(json_schema_extra={"propertyNames": MAPPING_NAMES_SCHEMA}),
    ] = Field(default={})
    """Columns with the same value in every row; they win over fields of the manifest."""
    direct: Annotated[dict[str, DirectMapping], Field(json_schema_extra={"propertyNames": MAPPING_NAMES_SCHEMA})] = (
        Field(default={})
    )
    """Columns and the source fields that fill them. The name of a column is a source of its own, after these."""
    base_uri: Folder | None = None
    """Folder that relative image paths are joined to."""
    drop: tuple[Text, ...] = ()
    """Top-level source fields that reach nothing but the columns that name them."""
    keep: tuple[Text, ...] | None = None
    """Instead of drop: the only top-level source fields that reach meta_info."""

    @model_validator(mode="after")
    def _drop_or_keep(self) -> Self:
        if self.drop and self.keep is not None:
            raise ValueError("drop and keep exclude each other: remove one of them")
        return self


class ImagesConfig(Model):
    """How images are measured and verified."""

    dimensions: Literal["auto", "probe", "manifest"] = "auto"
    """Where sizes for the plan come from; auto: the manifest where it has them, else a probe of the header."""
    orientation: Literal["upright", "stored"] = "upright"
    """Whether sizes are those after the EXIF rotation or those of the stored raster."""
    integrity: Literal["strict", "load"] = "strict"
    """strict: all damage inside pixel data rejects; load: the verdict of Pillow's Image.load()."""
    formats: Annotated[tuple[ImageFormat, ...], Field(min_length=1)] = DEFAULT_FORMATS
    """Accepted formats, told by content; AVIF and HEIF are opt-in."""
    max_pixels: Positive = 300_000_000
    """Largest accepted image, in pixels."""
    max_bytes: ArrayBytes = 256 * MEBIBYTE
    """Largest accepted file, in bytes."""
    max_rejected_fraction: Annotated[StrictFloat, Field(ge=0, le=1)] = 0.01
    """Share of the dataset's rows, duplicates apart, above which the reject check fails."""
    on_fetch_failure: Literal["fail", "reject"] = "fail"
    """fail: a shard with unreadable images stays unpublished, its rows pending; reject: fetch_failed."""
    decode_timeout_s: Seconds = 120.0
    """Longest time that one image may take, in seconds."""


class PackingConfig(Model):
    """Sizes of shards and row groups."""

    shard_size: Positive = 1000
    """Rows per shard."""
    max_shard_bytes: Positive = 1024 * MEBIBYTE
    """Target for the image bytes of a shard."""
    row_group_bytes: ArrayBytes = 64 * MEBIBYTE
    """Image bytes after which a row group is closed."""


class S3Identity(Model):
    """Credentials that differ from those of the s3 block."""

    profile: Text | None = None
    """Profile of the AWS configuration files."""
    role_arn: Text | None = None
    """Role to assume."""
    anonymous: StrictBool = False
    """Send unsigned requests."""


class S3Config(Model):
    """How S3 is reached; without it boto3's own search for credentials decides."""

    region: Text | None = None
    """AWS region."""
    endpoint: Annotated[Text, Field(pattern=r"^https?://")] | None = None
    """URL of an S3-compatible server."""
    profile: Text | None = None
    """Profile of the AWS configuration files."""
    role_arn: Text | None = None
    """Role to assume."""
    path_style: StrictBool | None = None
    """Put the bucket into the path; by default only with an endpoint of one's own."""
    checksum: Literal["when_required", "when_supported"] = "when_required"
    """When requests carry checksums; some compatible servers refuse those that are not required."""
    anonymous: StrictBool = False
    """Send unsigned requests."""
    max_connections: Positive = 64
    """Largest number of connections per process."""
    connect_timeout_s: Seconds = 10.0
    """Time to connect, in seconds."""
    read_timeout_s: Seconds = 30.0
    """Time without a byte after which a request is tried again, in seconds."""
    max_retries: Annotated[StrictInt, Field(ge=0)] = 50
    """Tries after the first of one request, each after a longer wait with jitter."""
    retry_time_s: Seconds = 60.0
    """No try of a request begins later than this after its first failure, in seconds: outages up to it are survived."""
    read: S3Identity | None = None
    """Other credentials for the manifest and the images."""
    write: S3Identity | None = None
    """Other credentials for the three output prefixes."""


class AccessGrantsConfig(Model):
    """Credentials from S3 Access Grants."""

    account_id: Annotated[StrictStr, Field(pattern=r"^[0-9]{12}$")] | None = None
    """Account of the Access Grants instance, 12 digits in quotes; without it the instance of each bucket is found."""
    region: Text | None = None
    """Region of the instance."""
    permission: Literal["READ"] = "READ"
    """Permission asked for sources; outputs are always asked with READWRITE."""
    privilege: Literal["Minimal", "Default"] = "Default"
    """Minimal: credentials for the asked prefix only; Default: for the whole grant."""
    duration_s: Annotated[StrictInt, Field(ge=900, le=43200)] = 3600
    """Life of the credentials, in seconds."""
    fallback: StrictBool = False
    """Use the ambient credentials where no grant exists."""
    endpoint: Annotated[Text, Field(pattern=r"^https?://")] | None = None
    """URL of S3 Control, for compatible servers."""


class ScheduleConfig(Model):
    """When the whole dataset is materialised."""

    cron: Cron
    """Five fields: minute, hour, day of month, month, day of week."""
    timezone: Text = "UTC"
    """Name in the IANA database."""

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"there is no time zone {name!r}: expected a name such as Europe/Vienna") from None
        return name


class DatasetConfig(Model):
    """One dataset: where it comes from, where it goes and how."""

    name: Annotated[StrictStr, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    """Lower-case letters, digits and _; also key prefix and group of its assets."""
    manifest: Annotated[
        tuple[Uri, ...], Field(min_length=1), BeforeValidator(tuple_of_texts), WithJsonSchema(TEXTS_SCHEMA)
    ]
    """JSONL files, plain, gzip or zstd: a URI, a glob, or a list of both."""
    output_prefix: Prefix
    """Folder of the main shards."""
    sidecar_prefix: Prefix = ""
    """Folder of the sidecars; by default output_prefix and _sidecar."""
    work_prefix: Prefix = ""
    """Folder of index, plan, receipts and ledger; by default output_prefix and _work."""
    resized: tuple[Literal[512, 1024], ...] = ()
    """Sets of resized images to make of the shards: sides of the squares whose area they have."""
    resized_prefix: Prefix = ""
    """Folder of these sets, one below it for each size; by default output_prefix and _resized."""
    mapping: MappingConfig = MappingConfig()
    images: ImagesConfig = ImagesConfig()
    packing: PackingConfig = PackingConfig()
    sidecar: SidecarConfig = SidecarConfig()
    s3: S3Config = S3Config()
    access_grants: AccessGrantsConfig | None = None
    schedule: ScheduleConfig | None = None
    trigger: Literal["on_change"] | None = None
    """on_change: materialise when the objects of the manifest change."""
    owners: tuple[Annotated[StrictStr, Field(pattern=r"^(team:[A-Za-z0-9_]+|[^@\s]+@[^@\s]+)$")], ...] = ()
    """E-mail addresses, or team:name."""
    licence: Text | None = None
    """Licence of the images."""
    description: Text | None = None
    """What the dataset is."""
    tags: dict[str, StrictStr] = Field(default={})
    """Labels of its assets."""
    confidentiality: Text | None = None
    """Who may see the data."""
    _source: str = PrivateAttr(default="")

    @property
    def prefixes(self) -> dict[str, str]:
        """The folders that the dataset writes to, by field; that of resized images only where there are some."""
        names = ("output_prefix", "sidecar_prefix", "work_prefix", *(("resized_prefix",) if self.resized else ()))
        return {name: getattr(self, name) for name in names}

    @property
    def source(self) -> str:
        """The YAML file that this was loaded from; no part of the dataset's identity."""
        return self._source

    def model_post_init(self, context: Any, /) -> None:
        """Note the file that the loader names."""
        self._source = (context or {}).get("source", "")

    @model_validator(mode="before")
    @classmethod
    def _default_prefixes(cls, fields: object) -> object:
        if not isinstance(fields, dict) or not isinstance(output := fields.get("output_prefix"), str):
            return fields
        output = output.rstrip("/")
        names = ("sidecar", "work", "resized")
        return {f"{name}_prefix": f"{output}_{name}" for name in names} | fields

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_apart(self.manifest, self.prefixes, self.mapping.base_uri)
        casts = {column: field.cast for column, field in self.mapping.direct.items()}
        extensions = self.sidecar.extension_columns()
        require_mappable(self.mapping.constants, casts, extensions)
        computed = self.sidecar.crops.computed_columns if self.sidecar.crops else ()
        require_not_computed(("mapping", "constants"), self.mapping.constants, computed)
        require_not_computed(("mapping", "direct"), self.mapping.direct, computed)
        outputs = [uri for name, uri in self.prefixes.items() if name != "work_prefix"]
        for number, merge in enumerate(self.sidecar.merge):
            require_mergeable(number, {name: column.cast for name, column in merge.columns.items()}, extensions)
            require_not_computed(("sidecar", "merge", number, "columns"), merge.columns, computed)
            require_other_sources(("sidecar", "merge", number), merge.locations, outputs)
        for number, resized in enumerate(self.sidecar.crops.resized if self.sidecar.crops else ()):
            require_other_sources(("sidecar", "crops", "resized", number), (resized.prefix,), outputs)
            require_foreign(number, resized.size, self.resized)
        require_each_once("resized", self.resized)
        return self


def load_dataset(path: str | Path, environ: Mapping[str, str] | None = None) -> DatasetConfig:
    """Return the dataset that a YAML file describes.

    Reads the file and the environment (the process's own unless `environ` is given), whose variables replace `${NAME}`
    in values. Relative paths are relative to the file's folder.

    Raises:
        ConfigError: the file cannot be read or is wrong; one line that names file, line, field and what was expected.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except PermissionError as error:
        raise NoPermission(f"{path}: cannot be read: {error.strerror}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: this is no UTF-8 text (byte {error.start})") from error
    return parse_dataset(text, str(path), path.absolute().parent, os.environ if environ is None else environ)


def parse_dataset(text: str, source: str, folder: Path, environ: Mapping[str, str] | None = None) -> DatasetConfig:
    """Return the dataset that a YAML text describes, as if the text stood in `folder`.

    Pure but for the time zone database, and the process's own environment where `environ` is not given.

    Raises:
        ConfigError: the text is wrong, see `load_dataset`.
    """
    document = read_yaml(text, source, os.environ if environ is None else environ)
    if not isinstance(document.value, dict):
        raise ConfigError(f"{source}: expected fields such as name: and manifest:, got {show(document.value)}")
    try:
        return DatasetConfig.model_validate(document.value, context={"folder": folder, "source": source})
    except ValidationError as error:
        raise ConfigError(explain_validation(error, DatasetConfig, document, source)) from None


def dataset_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the dataset YAML, for editors; pure."""
    schema = DatasetConfig.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class RuntimeConfig(Model):
    """Settings of the process that are no part of any dataset."""

    dagster_home: Path
    """Folder of the Dagster instance."""
    datasets_dir: Path
    """Folder of the dataset files that the web UI loads."""
    ray_address: Text = "local"
    """A Ray cluster, or local for one of the process's own."""
    ray_cpus: Positive | None = None
    """CPUs of the local Ray; by default what the container has."""
    ray_memory_bytes: Positive | None = None
    """Memory of the local Ray; by default what the container has."""
    ray_object_store_bytes: Positive | None = None
    """Shared memory of the local Ray."""
    ray_wait_s: Positive = 600
    """How long a run waits for a worker of a cluster that has none; an autoscaler needs minutes."""


WORKER_HEAP = {"MALLOC_ARENA_MAX": "2"}
"""How many heaps glibc keeps, in the environment of a worker.

By itself it has one for each thread that fetches, and what is freed in one is of no use to another. The threshold above
which a block comes from the system stays glibc's own, which grows with what is freed: a fixed one of 1 MiB gave back
no more, and faulted in every page of every image anew, 2.5 of 20 CPU seconds.
"""


def set_ray_environment() -> None:
    """Set what Ray reads from the environment only, where the user has not.

    Ray 2.60 writes a token at its first local start and then wants it from every later cluster; without deduplication
    every line of every worker reaches the log. Workers inherit WORKER_HEAP. A driver that is cut off from its head must
    live to say so: by itself Ray ends its process after 60 s, with exit code 1, or starts a cluster of its own in place
    of the lost one.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    for name, value in WORKER_HEAP.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "300")
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")


def read_runtime(environ: Mapping[str, str] | None = None) -> RuntimeConfig:
    """Return the settings that an environment names, the process's own unless `environ` is given.

    Variables: DAGSTER_HOME (default ~/.dataset_packaging/dagster), DATASETS_DIR (default examples), RAY_ADDRESS
    (default local), and DATASET_PACKAGING_ with RAY_CPUS, RAY_MEMORY_BYTES, RAY_OBJECT_STORE_BYTES, RAY_WAIT_S.

    Raises:
        ConfigError: a number is none.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("HOME") or "."
    return RuntimeConfig(
        dagster_home=Path(environ.get("DAGSTER_HOME") or f"{home}/.dataset_packaging/dagster").absolute(),
        datasets_dir=Path(environ.get("DATASETS_DIR") or "examples").absolute(),
        ray_address=environ.get("RAY_ADDRESS") or "local",
        ray_cpus=_read_positive(environ, "DATASET_PACKAGING_RAY_CPUS"),
        ray_memory_bytes=_read_positive(environ, "DATASET_PACKAGING_RAY_MEMORY_BYTES"),
        ray_object_store_bytes=_read_positive(environ, "DATASET_PACKAGING_RAY_OBJECT_STORE_BYTES"),
        ray_wait_s=_read_positive(environ, "DATASET_PACKAGING_RAY_WAIT_S") or 600,
    )


def _read_positive(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if text and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"environment variable {name}: expected a whole number above 0, got {text!r}")
    return int(text) if text else None


if __name__ == "__main__":
    print(json.dumps(dataset_json_schema(), indent=2))
