"""The balance of every row: rows = packed + rejected + duplicates + pending. Pure.

Each term is counted on its own: rows where lines are read, duplicates where keys are compared, packed and rejected
from receipts, pending as planned rows without a receipt that holds. None of them is a remainder.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

UNBUCKETED = "unbucketed"
"""The line of rows that never got a bucket: broken lines, bad paths, objects whose size could not be read."""

REJECT_REASONS: tuple[str, ...] = (
    "bad_row",
    "missing_path",
    "bad_path",
    "not_found",
    "access_denied",
    "archived",
    "empty_object",
    "fetch_failed",
    "too_large",
    "too_many_pixels",
    "unsupported_format",
    "corrupt_image",
    "truncated_image",
    "checksum_mismatch",
    "decoder_crashed",
    "decoder_timeout",
)
"""All reasons for which a row is rejected, in the order of the public contract."""

DUPLICATE_REASON = "duplicate_key"
"""Stands in the reject lists, and is counted as duplicates only."""

RETRIED_REASONS = frozenset({"fetch_failed", "access_denied"})
"""Transient reasons: the next materialisation tries these rows again without being asked."""


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """The balance of one bucket, or of the rows without one."""

    bucket: str
    rows: int = 0
    packed: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    pending: int = 0

    @property
    def rejected_rows(self) -> int:
        """All rejected rows, whatever the reason."""
        return sum(self.rejected.values())

    @property
    def imbalance(self) -> int:
        """Rows that are accounted for too little (> 0) or twice (< 0); 0 where the line balances."""
        return self.rows - self.packed - self.rejected_rows - self.duplicates - self.pending

    def __add__(self, other: "LedgerLine") -> "LedgerLine":
        return LedgerLine(
            self.bucket,
            self.rows + other.rows,
            self.packed + other.packed,
            dict(Counter(self.rejected) + Counter(other.rejected)),
            self.duplicates + other.duplicates,
            self.pending + other.pending,
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """The balance of a dataset, by bucket; buckets without rows have no line."""

    lines: tuple[LedgerLine, ...]

    @property
    def total(self) -> LedgerLine:
        """The whole dataset in one line."""
        return _sum(self.lines)

    @property
    def unbalanced(self) -> tuple[LedgerLine, ...]:
        """The lines in which a row is lost or counted twice."""
        return tuple(line for line in self.lines if line.imbalance)

    @property
    def rejected_fraction(self) -> float:
        """Rejected rows as a share of the dataset's rows, duplicates apart; 0 for an empty dataset."""
        total = self.total
        distinct = total.rows - total.duplicates
        return total.rejected_rows / distinct if distinct else 0.0


def _sum(lines: Iterable[LedgerLine]) -> LedgerLine:
    total = LedgerLine("total")
    for line in lines:
        total = total + line
    return total
