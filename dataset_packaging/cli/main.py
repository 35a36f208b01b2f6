"""The command `dataset-packaging`: arguments → command → exit code. Each command imports what it needs itself."""

import importlib
import json
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from types import FrameType

from dataset_packaging.cli.outcome import (
    EXIT_BROKEN_PIPE,
    EXIT_INFRASTRUCTURE,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    JsonValue,
    Outcome,
)
from dataset_packaging.cli.parser import build_parser
from dataset_packaging.cli.streams import discard_output, tell
from dataset_packaging.errors import PackagingError

RESUME_HINTS = {
    "pack": "finished shards are kept; run the same command again to go on",
    "rejects": "finished shards are kept; run the same command again to go on",
}
NOTHING_WRITTEN = "nothing was left half done; run the same command again"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (docs/cli.md); the only place that turns exceptions into codes.

    Args:
        argv: The arguments without the program's name; None takes those of the process.
    """
    _keep_odd_characters()
    args = build_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        outcome = _run_command(args.command, args)
        _print_outcome(args.command, outcome, as_json=args.json)
        return outcome.exit_code
    except BrokenPipeError:
        discard_output(sys.stdout)
        return EXIT_BROKEN_PIPE
    except (KeyboardInterrupt, _Terminated) as interruption:
        return _report_interruption(args.command, interruption)
    # One readable line is the contract of the command line for every error, bugs included; --debug shows all of it.
    except Exception as error:
        return _report_error(args.command, error, as_json=args.json, debug=args.debug)


def _keep_odd_characters() -> None:
    """Print what the locale or UTF-8 cannot say as an escape: a file name must not end a command."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class _Terminated(BaseException):
    """SIGTERM was received: unwinds like Ctrl-C, so that workers and leases are let go."""


def _raise_terminated(signum: int, frame: FrameType | None) -> None:
    raise _Terminated


def _run_command(name: str, args: object) -> Outcome:
    module = importlib.import_module(f"dataset_packaging.cli.{name}")
    outcome = module.run(args)
    assert isinstance(outcome, Outcome)
    return outcome


def _print_outcome(command: str, outcome: Outcome, *, as_json: bool) -> None:
    for note in outcome.notes:
        tell(note)
    if as_json:
        _print_json(command, outcome.exit_code, dict(outcome.summary))
    elif outcome.text:
        sys.stdout.write(outcome.text if outcome.text.endswith("\n") else outcome.text + "\n")
    sys.stdout.flush()


def _print_json(command: str, exit_code: int, summary: dict[str, JsonValue]) -> None:
    document: dict[str, JsonValue] = {"command": command, "exit_code": exit_code, **summary}
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n")


def _report_interruption(command: str, interruption: BaseException) -> int:
    hint = RESUME_HINTS.get(command, NOTHING_WRITTEN)
    tell(f"dataset-packaging {command}: interrupted: {hint}")
    return EXIT_TERMINATED if isinstance(interruption, _Terminated) else EXIT_INTERRUPTED


def _report_error(command: str, error: Exception, *, as_json: bool, debug: bool) -> int:
    exit_code = error.exit_code if isinstance(error, PackagingError) else EXIT_INFRASTRUCTURE
    message = _one_line(error)
    if debug:
        import traceback

        tell("".join(traceback.format_exception(error)).rstrip())
    tell(f"dataset-packaging {command}: error: {message}")
    if as_json:
        try:
            _print_json(command, exit_code, {"error": {"type": type(error).__name__, "message": message}})
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output(sys.stdout)
    return exit_code


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, PackagingError):
        return text
    if isinstance(error, OSError):
        return text or type(error).__name__
    return f"unexpected {type(error).__name__}: {text} (run again with --debug, and please report it)"


if __name__ == "__main__":
    sys.exit(main())
