"""What a command hands back to `main`: an exit code, a text for people and a summary for machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

EXIT_DONE = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_INFRASTRUCTURE = 3
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE
EXIT_TERMINATED = 143  # 128 + SIGTERM

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended.

    Attributes:
        exit_code: One of the `EXIT_*` codes.
        text: What is printed on stdout without `--json`.
        summary: What `--json` prints beside `command` and `exit_code`; its keys are stable (docs/cli.md).
        notes: Lines for stderr, printed with and without `--json`.
    """

    exit_code: int
    text: str
    summary: Mapping[str, JsonValue]
    notes: tuple[str, ...] = ()
