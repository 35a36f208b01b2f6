"""What this package logs, in the driver and in workers, brought to whoever reads the log of the run."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LINES_OF_A_TASK_MAX = 20
INTERVAL_S = 5.0
"""Of lines that say the same of other things: hundreds of workers notice at once that a store throttles."""

_PACKAGE = "dataset_packaging"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: the logger's name, the level, the text, and what it is made from."""

    logger: str
    level: int
    template: str
    text: str


class _Ear(logging.Handler):
    def __init__(self, hear: Callable[[LogLine], None]) -> None:
        super().__init__(logging.INFO)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        template = getattr(record, "template", record.msg)
        self._hear(LogLine(record.name, record.levelno, str(template), record.getMessage()))


@contextmanager
def _listening(hear: Callable[[LogLine], None]) -> Iterator[None]:
    logger, ear = logging.getLogger(_PACKAGE), _Ear(hear)
    before = logger.level
    logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
    logger.addHandler(ear)
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.setLevel(before)


@contextmanager
def collected_logs() -> Iterator[list[LogLine]]:
    """Collects what this process logs within the block, up to LINES_OF_A_TASK_MAX lines. Runs in a worker."""
    lines: list[LogLine] = []

    def hear(line: LogLine) -> None:
        if len(lines) < LINES_OF_A_TASK_MAX:
            lines.append(line)

    with _listening(hear):
        yield lines


def log_again(lines: Iterable[LogLine]) -> None:
    """Logs in this process what another one has logged."""
    for line in lines:
        told = {"name": line.logger, "levelno": line.level, "msg": line.text, "template": line.template}
        logging.getLogger(line.logger).handle(logging.makeLogRecord(told))


@contextmanager
def relayed_logs(tell: Callable[[int, str], None], clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Hands the level and the text of what is logged within the block to `tell`, in any thread.

    Lines that differ in their values only are told at most once within INTERVAL_S, with how many were left out.
    """
    told_at: dict[str, float] = {}
    left_out: dict[str, int] = {}

    def hear(line: LogLine) -> None:
        now = clock()
        if now - told_at.get(line.template, float("-inf")) < INTERVAL_S:
            left_out[line.template] = left_out.get(line.template, 0) + 1
            return
        told_at[line.template] = now
        more = left_out.pop(line.template, 0)
        tell(line.level, f"{line.text} ({more} more like it before)" if more else line.text)

    with _listening(hear):
        yield
