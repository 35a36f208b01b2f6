"""Pictures that the UI shows within its pages: the bucket heat map, and whatever is a JPEG already."""

import base64
import math
from collections.abc import Mapping

from dataset_packaging.core.bucketing import ASPECT_RATIOS, BUCKETS, SCALES

_CELL_WIDTH_PX = 42
_CELL_HEIGHT_PX = 24
_LEFT_PX = 92
_TOP_PX = 40
_LIGHT = (240, 246, 255)
_DARK = (12, 64, 150)


def draw_heat_map(rows_by_bucket: Mapping[str, int]) -> str:
    """Draw the rows of each bucket as SVG text: a column for each ratio, a line for each scale; pure.

    Shades are logarithmic, so that a bucket of ten rows still shows beside one of ten millions. A bucket without rows
    stays white.

    Args:
        rows_by_bucket: Rows by bucket key; buckets that are not named have none.
    """
    largest = max(rows_by_bucket.values(), default=0)
    width_px = _LEFT_PX + len(ASPECT_RATIOS) * _CELL_WIDTH_PX + 8
    height_px = _TOP_PX + len(SCALES) * _CELL_HEIGHT_PX + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width_px}" height="{height_px}" '
        f'viewBox="0 0 {width_px} {height_px}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width_px}" height="{height_px}" fill="white"/>',
        f'<text x="8" y="16" fill="#444">rows by bucket, {sum(rows_by_bucket.values()):,} in all; '
        "columns: width / height, lines: scale</text>",
    ]
    for column, ratio in enumerate(ASPECT_RATIOS):
        parts.append(_text(_LEFT_PX + (column + 0.5) * _CELL_WIDTH_PX, _TOP_PX - 6, f"{ratio:.4f}", "#444", size=9))
    for line, scale in enumerate(SCALES):
        y_px = _TOP_PX + (line + 0.5) * _CELL_HEIGHT_PX + 4
        parts.append(f'<text x="{_LEFT_PX - 6}" y="{y_px:g}" fill="#444" text-anchor="end">{scale}</text>')
    for bucket in BUCKETS:
        parts += _cell(bucket.index, rows_by_bucket.get(bucket.key, 0), largest, bucket.key)
    return "".join([*parts, "</svg>"])


def show_svg(svg: str, label: str) -> str:
    """Return markdown that shows the picture wherever markdown is shown, without a file to fetch; pure."""
    return _show("image/svg+xml", svg.encode(), label)


def show_jpeg(data: bytes, label: str) -> str:
    """Return markdown that shows the JPEG; pure."""
    return _show("image/jpeg", data, label)


def show_picture(data: bytes, name: str) -> str:
    """Return markdown that shows the bytes of a PNG or JPEG file, told by its name; pure."""
    return _show("image/png" if name.endswith(".png") else "image/jpeg", data, name)


def _show(kind: str, data: bytes, label: str) -> str:
    return f"![{label}](data:{kind};base64,{base64.b64encode(data).decode()})"


def short_count(count: int) -> str:
    """Write a count in at most five characters: `950`, `1.2k`, `34M`; pure."""
    if count < 1000:
        return str(count)
    exponent = min(int(math.log10(count)) // 3, 4)
    scaled = count / 1000**exponent
    if round(scaled, 1) >= 1000 and exponent < 4:
        exponent, scaled = exponent + 1, scaled / 1000
    digits = f"{scaled:.1f}" if scaled < 9.95 else f"{scaled:.0f}"
    return digits + "kMGT"[exponent - 1]


def _cell(index: int, rows: int, largest: int, title: str) -> list[str]:
    line, column = divmod(index, len(ASPECT_RATIOS))
    x_px, y_px = _LEFT_PX + column * _CELL_WIDTH_PX, _TOP_PX + line * _CELL_HEIGHT_PX
    share = math.log1p(rows) / math.log1p(largest) if rows else 0.0
    box = (
        f'<rect x="{x_px}" y="{y_px}" width="{_CELL_WIDTH_PX - 1}" height="{_CELL_HEIGHT_PX - 1}" '
        f'fill="{_shade(share) if rows else "#fff"}" stroke="#ddd"><title>{title}: {rows:,} rows</title></rect>'
    )
    if not rows:
        return [box]
    ink = "#fff" if share > 0.55 else "#123"
    return [box, _text(x_px + _CELL_WIDTH_PX / 2, y_px + _CELL_HEIGHT_PX / 2 + 4, short_count(rows), ink)]


def _shade(share: float) -> str:
    mixed = (round(light + (dark - light) * share) for light, dark in zip(_LIGHT, _DARK, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _text(x_px: float, y_px: float, text: str, ink: str, size: int = 11) -> str:
    return f'<text x="{x_px:g}" y="{y_px:g}" fill="{ink}" font-size="{size}" text-anchor="middle">{text}</text>'
