"""The balance of every row."""

import pytest

from dataset_packaging.core.invariants import find_imbalance, find_reject_excess
from dataset_packaging.core.ledger import Ledger, LedgerLine

BALANCED = LedgerLine("512_1024/10000", rows=10, packed=5, rejected={"not_found": 2}, duplicates=2, pending=1)


def test_a_balanced_ledger_has_no_finding() -> None:
    assert find_imbalance(Ledger((BALANCED,))) == []


@pytest.mark.parametrize(("packed", "words"), [(4, "1 rows are unaccounted for"), (6, "1 rows are counted twice")])
def test_a_lost_or_doubled_row_is_named_with_its_bucket(packed: int, words: str) -> None:
    line = LedgerLine("0_512/3333", rows=10, packed=packed, rejected={"not_found": 2}, duplicates=2, pending=1)
    (finding,) = find_imbalance(Ledger((BALANCED, line)))
    assert finding.bucket == "0_512/3333"
    assert words in finding.detail


def test_the_reject_limit_is_inclusive_and_leaves_duplicates_out() -> None:
    ledger = Ledger((BALANCED,))
    assert ledger.rejected_fraction == 2 / 8
    assert find_reject_excess(ledger, 0.25) == []
    (finding,) = find_reject_excess(ledger, 0.2499)
    assert "2 of 8 rows" in finding.detail
    assert "not_found 2" in finding.detail


def test_an_empty_dataset_rejects_nothing() -> None:
    assert Ledger(()).rejected_fraction == 0
