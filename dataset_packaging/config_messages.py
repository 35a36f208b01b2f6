"""A failed validation as the one line that its user reads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from dataset_packaging.config_yaml import Path, YamlDocument, dotted
from dataset_packaging.core.dataset_rules import FieldError

_EXPECTED: dict[str, str] = {
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "string_type": "expected a text",
    "string_too_short": "expected a text that is not empty",
    "tuple_type": "expected a list",
    "too_short": "expected at least one",
    "dict_type": "expected fields with values",
    "model_type": "expected fields with values",
    "model_attributes_type": "expected fields with values",
    "literal_error": "expected {expected}",
    "greater_than": "expected a number above {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected a number below {lt}",
    "less_than_equal": "expected at most {le}",
    "string_pattern_mismatch": "expected a text of the form {pattern}",
}
_RANK = {"extra_forbidden": 0, "missing": 2}


def explain_validation(error: ValidationError, root: type[BaseModel], document: YamlDocument, source: str) -> str:
    """Return one line: file, line, field, what was expected, what was found, what to do.

    Pure. Of several problems the one is told that most likely causes the others, and how many more there are.
    """
    problems = error.errors(include_url=False)
    first = min(problems, key=lambda problem: _RANK.get(problem["type"], 1))
    path = _path_of(first)
    message = _explain(first, path, root)
    line = document.line_of(path)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    place = f":{line}" if line else ""
    return f"{source}{place}: {dotted(path)}: {message}{more}"


def _path_of(problem: Mapping[str, Any]) -> Path:
    if (rule := _broken_rule(problem)) is not None:
        return rule.path
    path: Path = problem["loc"]
    scalars = ("str", "bool", "int", "float")
    return path[:-1] if len(path) > 1 and path[-1] in scalars and path[-3:-1] != ("mapping", "constants") else path


def _explain(problem: Mapping[str, Any], path: Path, root: type[BaseModel]) -> str:
    kind, found, context = problem["type"], problem["input"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        known = _field_names(root, path[:-1])
        return f"unknown field{suggest(str(path[-1]), known)}"
    if (rule := _broken_rule(problem)) is not None:
        return f"{rule.message}{suggest(str(path[-1]), rule.known)}"
    if kind == "missing":
        return "this field is missing"
    if kind == "value_error":
        return str(context["error"])
    expected = _EXPECTED.get(kind, problem["msg"]).format(**context)
    if kind == "string_pattern_mismatch":
        expected += f" ({_description(root, path)})"
    hint = ""
    if kind == "string_type" and isinstance(found, int | float):
        hint = "; put it in quotes"
    if kind == "literal_error":
        near = _nearest(str(found), re.findall(r"'(.*?)'", str(context["expected"])))
        hint = f"; did you mean {near}?" if near else ""
    return f"{expected}, got {show(found)}{hint}"


def _broken_rule(problem: Mapping[str, Any]) -> FieldError | None:
    error = problem.get("ctx", {}).get("error")
    return error if isinstance(error, FieldError) else None


def suggest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean NAME?` or, without a near name, what is known; pure."""
    known = list(known)
    if near := _nearest(name, known):
        return f"; did you mean {near}?"
    return f"; expected one of {', '.join(known)}" if known else ""


def _nearest(name: str, known: Sequence[str]) -> str | None:
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def show(found: object) -> str:
    """Return a value as a user would name it; pure."""
    if found is None:
        return "nothing"
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str):
        return f"the text {found!r:.80}"
    if isinstance(found, tuple | list):
        return "a list"
    return "fields" if isinstance(found, dict) else f"{found!r:.80}"


def _field_names(model: type[BaseModel], path: Path) -> list[str]:
    """Return the names that are known at a path, as they are written in the file."""
    for part in path:
        # Indexes, and names that a user chose (of columns), lead to the model that is reached already.
        if isinstance(part, str) and (field := model.model_fields.get(part)) is not None:
            model = _model_in(field.annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _description(root: type[BaseModel], path: Path) -> str:
    """Return what the model says about the field at a path, as the end of a sentence."""
    model, text = root, ""
    for part in path:
        if isinstance(part, str) and (field := model.model_fields.get(part)) is not None:
            model, text = _model_in(field.annotation) or model, field.description or text
    return text.rstrip(".")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the first model inside an annotation such as `dict[str, Model]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner))), None)
