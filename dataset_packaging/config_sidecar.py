"""The `sidecar` block of the dataset YAML."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, StrictStr, WithJsonSchema, field_validator, model_validator

from dataset_packaging.config_fields import (
    TEXTS_SCHEMA,
    DirectMapping,
    Model,
    Prefix,
    Text,
    Uri,
    tuple_of_texts,
)
from dataset_packaging.core.schema import ExtensionColumn, parse_extension


class SchemaExtension(Model):
    """A filter_* column that the dataset adds to its sidecar."""

    name: Text
    """Starts with filter_."""
    type: Text
    """A struct, for example struct<score: double, pass: bool>."""

    @model_validator(mode="after")
    def _parses(self) -> Self:
        parse_extension(self.name, self.type)
        return self


def _named_columns(value: object) -> object:
    """Return columns that keep their names as the mapping that they stand for."""
    if isinstance(value, str):
        value = [value]
    return {name: name for name in value} if isinstance(value, list | tuple) else value


def _null_as_text(value: object) -> object:
    """Return the word for what YAML reads as nothing: `unmatched: null`."""
    return "null" if value is None else value


class MergeConfig(Model):
    """Values that come late: columns of another source, merged into the sidecars. Shards stay untouched."""

    source_prefix: Prefix | None = None
    """Row-aligned: a folder with the same relative shard paths, the same rows and the same order of keys."""
    source: (
        Annotated[tuple[Uri, ...], Field(min_length=1), BeforeValidator(tuple_of_texts), WithJsonSchema(TEXTS_SCHEMA)]
        | None
    ) = None
    """Keyed: Parquet or JSONL files in any order, a URI, a glob or a list of both."""
    key: Literal["image_key", "s3_image_path"] = "image_key"
    """The column by which rows of source and dataset belong together."""
    source_key: Text | None = None
    """Name of that column in the source; by default the same name."""
    columns: Annotated[
        dict[str, DirectMapping],
        Field(min_length=1),
        BeforeValidator(
            _named_columns, json_schema_input_type=StrictStr | tuple[StrictStr, ...] | dict[str, DirectMapping]
        ),
    ]
    """Sidecar columns and the fields of the source that fill them; a list where the names are the same."""
    mode: Literal["fill_missing", "prefer_source"] = "fill_missing"
    """fill_missing: only where the sidecar has none; prefer_source: wherever the source has a value."""
    unmatched: Annotated[
        Literal["error", "skip", "null"],
        BeforeValidator(_null_as_text, json_schema_input_type=Literal["error", "skip", "null"] | None),
    ] = "error"
    """What becomes of rows that the source lacks. error: no sidecar; skip: they stay as they are; null: set to null."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.source_prefix is None) == (self.source is None):
            raise ValueError("expected source_prefix (row-aligned) or source (keyed), one of the two")
        return self

    @property
    def locations(self) -> tuple[str, ...]:
        """Where the values come from."""
        return self.source if self.source is not None else (self.source_prefix or "",)


class SidecarConfig(Model):
    """What the sidecar adds to the main columns."""

    reference: Uri | None = None
    """A sidecar family or an exported schema file (.json) whose first-level names and types this one must match."""
    schema_extensions: tuple[SchemaExtension, ...] = ()
    """Columns that only this dataset has."""
    merge: tuple[MergeConfig, ...] = ()
    """Values of other sources, merged in this order."""

    @field_validator("schema_extensions")
    @classmethod
    def _names_differ(cls, extensions: tuple[SchemaExtension, ...]) -> tuple[SchemaExtension, ...]:
        names = [extension.name for extension in extensions]
        if len(set(names)) != len(names):
            raise ValueError(f"each name may stand here once: {', '.join(names)}")
        return extensions

    def extension_columns(self) -> tuple[ExtensionColumn, ...]:
        """Return the declared columns with their Arrow types; pure."""
        return tuple(parse_extension(extension.name, extension.type) for extension in self.schema_extensions)
