"""Every field of the dataset YAML with a value that it cannot have, and a field too many at every level."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dataset_packaging.config import dataset_json_schema, parse_dataset
from dataset_packaging.config_yaml import dotted
from dataset_packaging.errors import ConfigError

FULL: dict[str, Any] = {
    "name": "full",
    "manifest": "rows.jsonl",
    "output_prefix": "out",
    "sidecar_prefix": "side",
    "work_prefix": "work",
    "resized": [512],
    "resized_prefix": "small",
    "mapping": {
        "constants": {"task": "a"},
        "direct": {"image_key": {"from": ["id"], "cast": "string"}},
        "base_uri": "images/",
        "drop": ["raw"],
    },
    "images": {
        "dimensions": "auto",
        "orientation": "upright",
        "integrity": "strict",
        "formats": ["JPEG"],
        "max_pixels": 1,
        "max_bytes": 1,
        "max_rejected_fraction": 0.5,
        "on_fetch_failure": "fail",
        "decode_timeout_s": 1.0,
    },
    "packing": {"shard_size": 1, "max_shard_bytes": 1, "row_group_bytes": 1},
    "sidecar": {
        "reference": "family/",
        "schema_extensions": [{"name": "filter_a", "type": "struct<score: double>"}],
    },
    "s3": {
        "region": "r",
        "endpoint": "http://s3",
        "profile": "p",
        "role_arn": "a",
        "path_style": True,
        "checksum": "when_required",
        "anonymous": False,
        "max_connections": 1,
        "connect_timeout_s": 1.0,
        "read_timeout_s": 1.0,
        "max_retries": 0,
        "retry_time_s": 1.0,
        "read": {"profile": "p", "role_arn": "a", "anonymous": False},
        "write": {"profile": "p", "role_arn": "a", "anonymous": False},
    },
    "access_grants": {
        "account_id": "123456789012",
        "region": "r",
        "permission": "READ",
        "privilege": "Default",
        "duration_s": 900,
        "fallback": False,
        "endpoint": "http://control",
    },
    "schedule": {"cron": "0 2 * * *", "timezone": "UTC"},
    "trigger": "on_change",
    "owners": ["team:a"],
    "licence": "CC0",
    "description": "d",
    "tags": {"a": "b"},
    "confidentiality": "open",
}
ELSEWHERE = {"mapping.keep", "sidecar.merge", "sidecar.crops"}
"""Fields that exclude one of these, or have tests of their own (test_config_sidecar)."""

NAMED_BY_USERS = [("tags",), ("constants",), ("direct",)]
NUMBERS = (
    "max_pixels max_bytes max_shard_bytes row_group_bytes shard_size max_connections max_retries duration_s "
    "decode_timeout_s connect_timeout_s read_timeout_s retry_time_s"
).split()
Place = tuple[str | int, ...]


def children(value: object) -> Iterable[tuple[str | int, object]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def places(value: object, path: Place = ()) -> Iterator[tuple[Place, object]]:
    yield path, value
    for name, inner in children(value):
        yield from places(inner, (*path, name))


LEAVES = [path for path, value in places(FULL) if not isinstance(value, dict | list)]
OBJECTS = [path for path, value in places(FULL) if isinstance(value, dict)]


def with_value(value: Any, path: Place, new: object) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_value(dict(children(value)).get(path[0]), path[1:], new)
    return copy


def error_of(fields: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_dataset(json.dumps(fields, indent=1), "full.yaml", Path("/sets"), {})
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("full.yaml:"), message
    return message


def test_every_field_stands_in_the_example() -> None:
    parse_dataset(json.dumps(FULL), "full.yaml", Path("/sets"), {})
    schema = dataset_json_schema()

    def names(node: dict[str, Any], path: str) -> Iterator[str]:
        for choice in (node, *node.get("anyOf", ())):
            target = schema["$defs"][choice["$ref"].rpartition("/")[2]] if "$ref" in choice else choice
            if "items" in target:
                yield from names(target["items"], path)
            for name, inner in target.get("properties", {}).items():
                here = f"{path}.{name}".lstrip(".")
                if here not in ELSEWHERE:
                    yield here
                    yield from names(inner, here)

    shown = {".".join(part for part in path if isinstance(part, str)) for path, _ in places(FULL)}
    assert [name for name in names(schema, "") if name not in shown] == []


@pytest.mark.parametrize("path", LEAVES, ids=dotted)
@pytest.mark.parametrize("bad", ["16:9", {"unknown": 1}, [[]]], ids=["ratio", "fields", "lists"])
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(path: Place, bad: object) -> None:
    """DAG-01: a number where a text belongs, and what looks like one to YAML where a number belongs."""
    if bad == "16:9" and path[-1] not in NUMBERS:
        bad = 969
    assert f" {dotted(path)}" in error_of(with_value(FULL, path, bad))


@pytest.mark.parametrize("path", [path for path in OBJECTS if path[-1:] not in NAMED_BY_USERS], ids=dotted)
def test_a_field_too_many_is_refused_by_its_name(path: Place) -> None:
    message = error_of(with_value(FULL, (*path, "szie"), 1))
    assert f" {dotted((*path, 'szie'))}: unknown field" in message
