"""The plot sheet of a dataset: buckets, sizes, ratios, bytes and null rates as one picture; drawn with Pillow alone."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

from dataset_packaging.core.bucketing import ASPECT_RATIOS, BUCKETS, SCALES
from dataset_packaging.core.histograms import Histogram

WIDTH_PX = 1500
_MARGIN_PX = 40
_HEAD_PX = 84
_PAPER, _INK, _FAINT = (255, 255, 255), (40, 44, 52), (150, 156, 166)
_LIGHT, _DARK, _GRID = (232, 240, 250), (16, 78, 139), (222, 226, 232)
_ROW_PX = 22
_COLOUR_COUNT = 32  # few enough for a small file: the sheet is shown within pages of the UI


@dataclass(frozen=True, slots=True)
class PlotData:
    """What the sheet shows.

    Attributes:
        title: first line.
        subtitle: second line.
        rows_by_bucket: by bucket key.
        histograms: `area_px`, `ratio` and `image_bytes`.
        null_rates: by column, 0 to 1.
    """

    title: str
    subtitle: str
    rows_by_bucket: Mapping[str, int]
    histograms: Mapping[str, Histogram]
    null_rates: Mapping[str, float]


def draw_plot_sheet(data: PlotData) -> bytes:
    """Draw the sheet and return the bytes of a PNG; pure. Shades of buckets are logarithmic, empty ones stay white."""
    columns = -(-len(data.null_rates) // 2)
    heat_height, bars_height = 5 * 44 + 70, 260
    height = _HEAD_PX + heat_height + 30 + bars_height + 50 + columns * _ROW_PX + 70
    sheet = Image.new("RGB", (WIDTH_PX, height), _PAPER)
    pen = _Pen(ImageDraw.Draw(sheet))
    pen.text(_MARGIN_PX, 22, data.title, 26, _INK)
    pen.text(_MARGIN_PX, 56, data.subtitle, 15, _FAINT)
    top = _HEAD_PX + 16
    _draw_buckets(pen, top, data.rows_by_bucket)
    top += heat_height + 14
    width = (WIDTH_PX - 2 * _MARGIN_PX - 60) // 3
    panels: tuple[tuple[str, str, Callable[[float], str]], ...] = (
        ("area_px", "area of an image: side of the square, in pixels", _side),
        ("ratio", "width / height", _ratio),
        ("image_bytes", "bytes of a file", _bytes),
    )
    for number, (name, label, show) in enumerate(panels):
        frame = _Frame(_MARGIN_PX + number * (width + 30), top, width, bars_height)
        _draw_histogram(pen, frame, label, data.histograms[name], show)
    _draw_nulls(pen, top + bars_height + 44, data.null_rates)
    buffer = BytesIO()
    sheet.quantize(_COLOUR_COUNT).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class _Pen:
    draw: ImageDraw.ImageDraw

    def text(self, x: float, y: float, text: str, size: int, color: tuple[int, int, int], anchor: str = "la") -> None:
        shown = "".join(character if character.isprintable() else " " for character in text)
        self.draw.text((x, y), shown, color, ImageFont.load_default(size=size), anchor=anchor)

    def box(self, left: float, top: float, right: float, bottom: float, color: tuple[int, int, int]) -> None:
        self.draw.rectangle((left, top, right, bottom), color)


@dataclass(frozen=True, slots=True)
class _Frame:
    left: int
    top: int
    width: int
    height: int


def _draw_buckets(pen: _Pen, top: int, rows: Mapping[str, int]) -> None:
    pen.text(_MARGIN_PX, top, "rows by bucket: columns are width / height, lines are scales", 16, _INK)
    left, cell_width, cell_height = _MARGIN_PX + 96, (WIDTH_PX - 2 * _MARGIN_PX - 96) // len(ASPECT_RATIOS), 40
    largest = max(rows.values(), default=0)
    for column, ratio in enumerate(ASPECT_RATIOS):
        pen.text(left + (column + 0.5) * cell_width, top + 44, f"{ratio:.2f}", 12, _FAINT, "mm")
    for line, scale in enumerate(SCALES):
        pen.text(left - 10, top + 58 + (line + 0.5) * cell_height, scale, 13, _INK, "rm")
    for number, bucket in enumerate(BUCKETS):
        line, column = divmod(number, len(ASPECT_RATIOS))
        count = rows.get(bucket.key, 0)
        x, y = left + column * cell_width, top + 58 + line * cell_height
        shade = math.log1p(count) / math.log1p(largest) if count else 0.0
        pen.box(x, y, x + cell_width - 3, y + cell_height - 3, _mix(shade) if count else _PAPER)
        if count:
            color = _PAPER if shade > 0.55 else _INK
            pen.text(x + cell_width / 2 - 1, y + cell_height / 2 - 1, _short(count), 12, color, "mm")
        else:
            pen.draw.rectangle((x, y, x + cell_width - 3, y + cell_height - 3), outline=_GRID)


def _draw_histogram(pen: _Pen, frame: _Frame, label: str, histogram: Histogram, show: Callable[[float], str]) -> None:
    left, top, width, height = frame.left, frame.top, frame.width, frame.height
    pen.text(left, top, label, 16, _INK)
    used = [number for number, count in enumerate(histogram.counts) if count] or [0, len(histogram.counts) - 1]
    first, last = max(0, used[0] - 1), min(len(histogram.counts) - 1, used[-1] + 1)
    counts = histogram.counts[first : last + 1]
    largest = max(max(counts), 1)
    floor, ceiling = top + height - 44, top + 44
    step = width / len(counts)
    for part in (0.5, 1.0):
        y = floor - part * (floor - ceiling)
        pen.draw.line((left, y, left + width, y), _GRID)
        pen.text(left + width, y - 2, _short(round(part * largest)), 11, _FAINT, "rb")
    for number, count in enumerate(counts):
        x = left + number * step
        if count:
            pen.box(x + 1, floor - max(1, count / largest * (floor - ceiling)), x + step - 2, floor, _DARK)
    pen.draw.line((left, floor, left + width, floor), _FAINT)
    every = max(1, math.ceil(62 / step))
    for number in range(-first % every, len(counts) + 1, every):
        x = left + number * step
        pen.draw.line((x, floor, x, floor + 4), _FAINT)
        pen.text(x, floor + 8, show(histogram.edges[first + number]), 11, _FAINT, "ma")


def _draw_nulls(pen: _Pen, top: int, rates: Mapping[str, float]) -> None:
    pen.text(_MARGIN_PX, top, "rows without a value, by sidecar column", 16, _INK)
    names = list(rates)
    half = -(-len(names) // 2)
    width = (WIDTH_PX - 2 * _MARGIN_PX - 40) // 2
    for column, part in enumerate((names[:half], names[half:])):
        left = _MARGIN_PX + column * (width + 40)
        for line, name in enumerate(part):
            y = top + 34 + line * _ROW_PX
            bar_left, bar_width = left + 290, width - 290 - 60
            pen.text(left, y, name, 13, _INK)
            pen.box(bar_left, y + 2, bar_left + bar_width, y + 13, _LIGHT)
            if rates[name]:
                pen.box(bar_left, y + 2, bar_left + max(1.0, rates[name] * bar_width), y + 13, _DARK)
            pen.text(left + width, y, _percent(rates[name]), 13, _INK, "ra")


def _mix(share: float) -> tuple[int, int, int]:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(_LIGHT, _DARK, strict=True))
    return red, green, blue


def _short(count: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.1f}".rstrip("0").rstrip(".") + unit
    return f"{count:g}"


def _percent(rate: float) -> str:
    return f"{rate:.1%}" if 0.001 <= rate <= 0.999 or rate in (0, 1) else ("<0.1%" if rate < 0.5 else ">99.9%")


def _side(edge: float) -> str:
    return f"{math.sqrt(edge):.0f}"


def _ratio(edge: float) -> str:
    return f"{edge:.2f}"


def _bytes(edge: float) -> str:
    return f"{edge / 2**20:g} MiB" if edge >= 2**20 else f"{edge / 1024:g} KiB"
