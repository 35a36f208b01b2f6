"""Standard streams whose reader may leave: `dataset-packaging plan x.yaml | head`."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO


def discard_output(stream: TextIO) -> None:
    """Lead a stream that can no longer be written into nothing.

    What is left in its buffer would else fail again, when the interpreter flushes it at exit.
    """
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


@contextmanager
def only_own_output(*, enabled: bool = True) -> Iterator[TextIO]:
    """Yield a stream to stderr while all else that is printed, by libraries and workers too, leads into nothing.

    What workers print stands in the logs of the run; between the lines of a progress display nobody could read it.

    Args:
        enabled: False leaves everything as it is.
    """
    if not enabled:
        yield sys.stderr
        return
    with ExitStack() as stack:
        shown = stack.enter_context(os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding))
        nowhere = stack.enter_context(Path(os.devnull).open("wb"))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            kept = os.dup(stream.fileno())
            stack.callback(_lead_back, kept, stream.fileno())
            os.dup2(nowhere.fileno(), stream.fileno())
        yield shown


def _lead_back(kept: int, descriptor: int) -> None:
    os.dup2(kept, descriptor)
    os.close(kept)


def tell(line: str) -> None:
    """Print a line on stderr; if nobody listens there, that is no error."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        discard_output(sys.stderr)
