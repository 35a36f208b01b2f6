"""Tables and numbers as they are printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from dataset_packaging.cli.tables import (
    WIDTH_COLUMNS,
    Column,
    format_bytes,
    format_dollars,
    format_fraction,
    format_seconds,
    number_columns,
    printable,
    render_table,
)


@given(st.lists(st.tuples(st.text(max_size=300), st.text(max_size=40), st.integers(0, 10**15)), min_size=1, max_size=5))
def test_no_table_is_wider_than_100_columns_or_breaks_a_line(rows):
    columns = (Column("reason", cut=True), Column("name"), *number_columns("count"))
    table = render_table(columns, [(reason, name, f"{count:,}") for reason, name, count in rows], title="all")
    lines = table.removesuffix("\n").split("\n")
    assert max(map(cell_len, lines)) <= WIDTH_COLUMNS
    assert all(line.isprintable() for line in lines)
    assert [count for *_, count in rows if f"{count:,}" not in table] == []


def test_numbers_stand_under_each_other_and_totals_last():
    table = render_table(
        (Column("bucket"), *number_columns("rows")), [("a", "1"), ("b", "1,000")], footer=("all", "1,001")
    )
    lines = [line for line in table.splitlines() if not set(line) <= set(" ─")]
    assert [line.split() for line in lines] == [["bucket", "rows"], ["a", "1"], ["b", "1,000"], ["all", "1,001"]]
    assert len({len(line) for line in lines}) == 1


def test_text_from_the_data_is_neither_markup_nor_an_escape_sequence():
    table = render_table((Column("path"),), [("[red]x[/red]\x1b[31m\u202e\n\t",)])
    assert "[red]x[/red]" in table
    assert "\x1b" not in table
    assert "\u202e" not in table


def test_an_empty_table_is_nothing():
    assert render_table(number_columns("a"), []) == ""


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (812, "812 B"), (999, "999 B"), (1000, "1.00 kB"), (9_996, "10.0 kB"), (99_960, "100 kB"),
     (1_500_000, "1.50 MB"), (999_600, "1.00 MB"), (23.4e9, "23.4 GB"), (5e18, "5000 PB")],
)  # fmt: skip
def test_bytes_have_three_digits(size_bytes: float, text: str):
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (1, 3, "33.33 %"),
        (1, 10**9, "<0.01 %"),
        (10**9 - 1, 10**9, ">99.99 %"),
        (0, 0, "-"),
    ],
)
def test_a_fraction_never_hides_a_row(part: int, whole: int, text: str):
    assert format_fraction(part, whole) == text


@pytest.mark.parametrize(
    ("duration_s", "text"), [(0, "0.0 s"), (59.94, "59.9 s"), (59.96, "1:00"), (187, "3:07"), (7389, "2:03:09")]
)
def test_durations(duration_s: float, text: str):
    assert format_seconds(duration_s) == text


@pytest.mark.parametrize(("dollars", "text"), [(0, "$0.00"), (0.0001, "<$0.01"), (1234.5, "$1,234.50")])
def test_dollars(dollars: float, text: str):
    assert format_dollars(dollars) == text


def test_a_long_text_is_cut_visibly():
    assert printable("a" * 10, 5) == "aaaa…"
    assert printable("a" * 5, 5) == "aaaaa"
