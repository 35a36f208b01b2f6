"""YAML text as plain values that remember their lines, without the surprises of YAML 1.1.

Only what looks like a number, `true`, `false` or `null` in JSON's sense becomes one: `16:9`, `0777`, `16_9`, `no`,
`off` and dates stay the texts that somebody typed, so that a wrong type is noticed where the value is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from dataset_packaging.errors import ConfigError

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

Path = tuple[str | int, ...]
"""Where a value stands: names of fields and indexes of items, from the root."""

_TAG = "tag:yaml.org,2002:"
_MAX_VALUES = 100_000  # aliases of aliases make billions of a few lines
_MAX_DEPTH = 50
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z")


class _Loader(_SafeLoader):
    """Composes nodes; plain scalars keep the tag `str`, they are told apart here."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  (PyYAML's own hook)


_Loader.add_implicit_resolver(_TAG + "plain", re.compile(""), None)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document: its value (dict, tuple, str, int, float, bool, None) and the 1-based line of each field or item."""

    value: object
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int | None:
        """Return the line of a field, or of the nearest field around it that stands in the text."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read_yaml(text: str, source: str, environ: Mapping[str, str]) -> YamlDocument:
    """Return the only document of a YAML text, `${NAME}` in values replaced from `environ`.

    Pure. A plain scalar is typed after the replacement, a quoted one is always text. Sequences become tuples.

    Raises:
        ConfigError: no or bad YAML, a repeated or non-text field name, an unknown tag, a missing variable; the message
            starts with `source` and the line.
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        hint = "; inside braces or brackets ${...} must stand in quotes" if "${" in text else ""
        raise ConfigError(f"{source}{line}: this is no YAML: {error.problem or error.context}{hint}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: this is no YAML: {' '.join(str(error).split())}") from error
    builder = _Builder(source, environ)
    return YamlDocument(builder.build(root, (), ()) if root is not None else None, builder.lines)


class _Builder:
    """Turns nodes into values and notes their lines."""

    def __init__(self, source: str, environ: Mapping[str, str]) -> None:
        self._source = source
        self._environ = environ
        self._values_count = 0
        self.lines: dict[Path, int] = {}

    def build(self, node: yaml.Node, path: Path, around: tuple[yaml.Node, ...]) -> object:
        self._values_count += 1
        if self._values_count > _MAX_VALUES:
            raise self._error(node, path[:1], f"holds more than {_MAX_VALUES:,} values, each alias with all of its own")
        if len(around) > _MAX_DEPTH:
            raise self._error(node, path[:1], f"is nested more than {_MAX_DEPTH} deep")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if any(node is outer for outer in around):
            raise self._error(node, path, "refers to itself")
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._build_mapping(node, path, (*around, node))
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return tuple(self.build(item, (*path, i), (*around, node)) for i, item in enumerate(node.value))
        if isinstance(node, yaml.ScalarNode):
            return self._build_scalar(node, path)
        raise self._error(node, path, f"unknown tag {node.tag}")

    def _build_mapping(self, node: yaml.MappingNode, path: Path, around: tuple[yaml.Node, ...]) -> dict[str, object]:
        fields: dict[str, object] = {}
        for key_node, value_node in node.value:
            name = key_node.value
            if not isinstance(name, str):
                raise self._error(key_node, path, "the name of a field must be a text")
            if name in fields:
                raise self._error(key_node, (*path, name), "stands here a second time")
            self.lines[(*path, name)] = key_node.start_mark.line + 1
            fields[name] = self.build(value_node, (*path, name), around)
        return fields

    def _build_scalar(self, node: yaml.ScalarNode, path: Path) -> object:
        text = _VARIABLE.sub(lambda match: self._variable(match.group(1), node, path), node.value)
        if node.tag == _TAG + "str":
            return text
        if node.tag != _TAG + "plain":
            raise self._error(node, path, f"unknown tag {node.tag}")
        if _NULL.match(text):
            return None
        if _BOOL.match(text):
            return text.lower() == "true"
        if _INT.match(text) and len(text) <= 20:
            return int(text)
        return float(text) if _FLOAT.match(text) else text

    def _variable(self, name: str, node: yaml.Node, path: Path) -> str:
        if name not in self._environ:
            raise self._error(node, path, f"the environment variable {name!r} is not set")
        return self._environ[name]

    def _error(self, node: yaml.Node, path: Path, problem: str) -> ConfigError:
        return ConfigError(f"{self._source}:{node.start_mark.line + 1}: {dotted(path)}: {problem}")


def dotted(path: Path) -> str:
    """Return a path as it is shown to a user, for example `mapping.direct.style[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"
