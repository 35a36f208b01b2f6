"""Text for people: tables of at most 100 columns, and numbers with their units. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH_COLUMNS = 100
_PADDING_COLUMNS = 2  # between two cells
_NARROWEST_COLUMNS = 8
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its heading, where it stands, and whether its text may be cut with `…`."""

    heading: str
    right: bool = False
    cut: bool = False


def number_columns(*headings: str) -> tuple[Column, ...]:
    """Build right-aligned columns, one for each heading; pure."""
    return tuple(Column(heading, right=True) for heading in headings)


def render_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, title: str = "", footer: Sequence[str] = ()
) -> str:
    """Render a table as plain text no wider than `WIDTH_COLUMNS`; pure.

    Args:
        columns: Headings, left to right.
        rows: One text per column each; control characters are shown as spaces.
        title: A line above the table.
        footer: A last row of totals, set apart by a line; empty for none.

    Returns:
        Lines that end in a newline, without trailing spaces; the empty string for no rows and no footer.
    """
    if not rows and not footer:
        return ""
    cells = [[printable(cell) for cell in row] for row in rows]
    table = Table(box=SIMPLE_HEAD, show_footer=bool(footer), pad_edge=False, padding=(0, 1, 0, 0))
    widths = _column_widths(columns, [*cells, list(footer)] if footer else cells)
    for index, column in enumerate(columns):
        table.add_column(
            column.heading,
            footer=footer[index] if footer else "",
            justify="right" if column.right else "left",
            overflow="ellipsis" if column.cut else "fold",
            no_wrap=column.cut,
            width=widths[index],
        )
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    screen = StringIO()
    Console(file=screen, width=WIDTH_COLUMNS, color_system=None, force_terminal=False, markup=False).print(table)
    lines = [line.rstrip() for line in screen.getvalue().splitlines()]
    body = "\n".join(line for line in lines if line)
    return f"{title}\n{body}\n" if title else f"{body}\n"


def _column_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """Give every column its longest cell; what is too much in all is taken from those that may be cut, else fold."""
    widths = [
        max(cell_len(column.heading), *(cell_len(row[index]) for row in rows)) for index, column in enumerate(columns)
    ]
    excess = sum(widths) + _PADDING_COLUMNS * len(columns) - WIDTH_COLUMNS
    for shrinkable in ([c.cut for c in columns], [not c.right for c in columns]):
        while excess > 0:
            widest = max((i for i in range(len(widths)) if shrinkable[i]), key=widths.__getitem__, default=None)
            if widest is None or widths[widest] <= _NARROWEST_COLUMNS:
                break
            widths[widest] -= 1
            excess -= 1
    return widths


def printable(text: str, limit: int | None = None) -> str:
    """Replace what would break a line or a terminal by a space and cut to `limit` characters with `…`; pure."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    if limit is not None and len(clean) > limit:
        return clean[: limit - 1] + "…"
    return clean


def format_bytes(size_bytes: float) -> str:
    """Write a byte count with a decimal unit and three digits: `812 B`, `1.50 MB`, `23.4 GB`; pure."""
    value = float(size_bytes)
    unit = 0
    while value >= 999.5 and unit < len(_BYTE_UNITS) - 1:
        value /= 1000
        unit += 1
    if unit == 0:
        return f"{value:.0f} B"
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {_BYTE_UNITS[unit]}"


def format_count(count: int) -> str:
    """Write a whole number with commas: `12,345`; pure."""
    return f"{count:,}"


def format_items(count: int, noun: str) -> str:
    """Write a number of things: `1 file`, `12,345 files`; pure."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_fraction(part: float, whole: float) -> str:
    """Write `part` of `whole` in per cent; what is not 0 never reads `0 %`, what is not all never `100 %`; pure."""
    if whole <= 0:
        return "-"
    percent = 100 * part / whole
    if 0 < percent < 0.01:
        return "<0.01 %"
    if 99.99 < percent < 100:
        return ">99.99 %"
    return f"{percent:.2f}".rstrip("0").rstrip(".") + " %"


def format_seconds(duration_s: float) -> str:
    """Write a duration as `4.2 s`, `3:07` or `2:03:09`; pure."""
    if duration_s < 59.95:
        return f"{duration_s:.1f} s"
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def format_dollars(dollars: float) -> str:
    """Write an amount in dollars; under one cent it reads `<$0.01`; pure."""
    return "<$0.01" if 0 < dollars < 0.01 else f"${dollars:,.2f}"
