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
from dataset_packaging.core.crops import DEFAULT_BOX_FIELDS, META_COLUMN, crop_column
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


class ResizedColumns(Model):
    """Names of the columns in which a resized set says what was done with each image; sizes and places in pixels."""

    target_width: Text = "width"
    """Width of the resized and cropped image."""
    target_height: Text = "height"
    """Height of the resized and cropped image."""
    resized_width: Text = "resized_width"
    """Width before the crop."""
    resized_height: Text = "resized_height"
    """Height before the crop."""
    crop_left: Text = "crop_left"
    """Where the crop begins, from the left."""
    crop_top: Text = "crop_top"
    """Where the crop begins, from the top."""


class ResizedSet(Model):
    """An existing set of resized images whose geometry the crop fields follow."""

    size: Literal[512, 1024]
    """Its fixed area is the square of this."""
    prefix: Prefix
    """A folder with the same relative shard paths, the same rows and the same order of image_key."""
    columns: ResizedColumns = ResizedColumns()


class CropsConfig(Model):
    """Structured captions after a resize: structured_description_crop_512 and _1024, and bbox_resize_meta."""

    sizes: Annotated[tuple[Literal[512, 1024], ...], Field(min_length=1)] = (512, 1024)
    """Fixed areas, as the sides of their squares: aspect kept, sides cut to multiples of 32."""
    box_fields: Annotated[tuple[Text, ...], Field(min_length=1)] = DEFAULT_BOX_FIELDS
    """Names under which boxes [y0, x0, y1, x1] from 0 to 1000 stand in structured_description."""
    resized: tuple[ResizedSet, ...] = ()
    """Where the geometry of a size is read from; the others are computed."""

    @property
    def computed_columns(self) -> tuple[str, ...]:
        """The columns that are computed for these sizes."""
        return META_COLUMN, *map(crop_column, self.sizes)

    @model_validator(mode="after")
    def _each_size_once(self) -> Self:
        sizes = [entry.size for entry in self.resized]
        if len(set(sizes)) != len(sizes) or not set(sizes) <= set(self.sizes):
            raise ValueError("each of sizes may have one resized set, and no other size")
        return self


class SidecarConfig(Model):
    """What the sidecar adds to the main columns."""

    reference: Uri | None = None
    """A sidecar family or an exported schema file (.json) whose first-level names and types this one must match."""
    schema_extensions: tuple[SchemaExtension, ...] = ()
    """Columns that only this dataset has."""
    merge: tuple[MergeConfig, ...] = ()
    """Values of other sources, merged in this order."""
    crops: CropsConfig | None = None
    """Crop-aware fields, computed from structured_description (after all merges)."""

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
