"""Types of fields that several parts of the dataset YAML share."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
)

from dataset_packaging.core.uris import absolute_uri


def _absolute(text: str, info: ValidationInfo) -> str:
    return absolute_uri(text, (info.context or {}).get("folder"))


def _without_slash(uri: str) -> str:
    return uri.rstrip("/")


def _with_slash(uri: str) -> str:
    return uri.rstrip("/") + "/"


def tuple_of_texts(value: object) -> object:
    """Return a list for a text that stands alone, anything else as it is; pure."""
    return (value,) if isinstance(value, str) else value


_CRON_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ("L",)),
    ("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    ("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
)
_CRON_ITEM = re.compile(r"(?:[*?]|(\w+)(?:-(\w+))?)(?:/[1-9][0-9]*|#[1-5])?", re.ASCII)


def _possible_cron(text: str) -> str:
    for part, (field, low, high, names) in zip(text.split(" "), _CRON_FIELDS, strict=True):
        for item in part.split(","):
            match = _CRON_ITEM.fullmatch(item)
            values = [value for value in match.groups() if value is not None] if match else [item]
            if not all(
                low <= int(value) <= high if value.isdigit() else match and value.upper() in names for value in values
            ):
                raise ValueError(f"{item!r} is no {field}: expected *, numbers from {low} to {high}, a-b, a,b or */n")
    return text


Text = Annotated[StrictStr, Field(min_length=1)]
Cron = Annotated[StrictStr, Field(pattern=r"^\S+( \S+){4}$"), AfterValidator(_possible_cron)]
Uri = Annotated[Text, AfterValidator(_absolute)]
Prefix = Annotated[Uri, AfterValidator(_without_slash)]
Folder = Annotated[Uri, AfterValidator(_with_slash)]
Positive = Annotated[StrictInt, Field(ge=1)]
ArrayBytes = Annotated[StrictInt, Field(ge=1, le=2**31 - 1)]
"""What one Arrow array can address with 32-bit offsets."""
Seconds = Annotated[StrictFloat, Field(gt=0, allow_inf_nan=False)]
TEXTS_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
Texts = Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(tuple_of_texts), WithJsonSchema(TEXTS_SCHEMA)]
Cast = Literal["string", "list_string", "float", "int", "bool", "json", "struct"]


class Model(BaseModel):
    """A frozen part of the YAML that knows all its fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class FieldMapping(Model):
    """The source fields of one column. Short forms: one name, or a list of names."""

    from_: Annotated[Texts, Field(alias="from")]
    """Names of source fields, the first that is not null counts; a dot leads into objects, and into each of a list."""
    cast: Cast | None = None
    """How the value is converted; without it the type of the column decides."""


def _from_short_form(value: object) -> object:
    if isinstance(value, dict | FieldMapping):
        return value
    if not isinstance(value, str | list | tuple):
        raise ValueError("expected the name of a source field, a list of names, or from: and cast:")
    return {"from": value}


DirectMapping = Annotated[
    FieldMapping,
    BeforeValidator(_from_short_form, json_schema_input_type=StrictStr | tuple[StrictStr, ...] | FieldMapping),
]
