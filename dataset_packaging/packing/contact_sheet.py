"""A contact sheet: many pictures as small tiles on one, each with one or two lines of text below it."""

import struct
import zlib
from collections.abc import Iterable
from io import BytesIO
from itertools import islice
from typing import Literal, cast

from PIL import Image, ImageDraw, ImageFont, ImageOps

from dataset_packaging.imaging.header import read_header
from dataset_packaging.imaging.pillow_state import pillow_held

TILE_COUNT_MAX = 24
TILE_PX = 96
COLUMN_COUNT = 6
_DRAWN_PX_MAX = 64_000_000  # 256 MB decoded: a sheet is drawn beside other work
# What Pillow's plugins raise on files that they cannot read, as met in its own test corpus.
_UNDRAWABLE = (OSError, ValueError, SyntaxError, ArithmeticError, LookupError, TypeError, AttributeError,
               RuntimeError, EOFError, MemoryError, struct.error, zlib.error, Image.DecompressionBombError)  # fmt: skip
_GAP_PX = 8
_LINE_PX = 12
_FONT_PX = 10
_PAPER = (255, 255, 255)
_INK = (60, 60, 60)
_CHECKS = ((255, 255, 255), (214, 214, 214))
_CHECK_PX = 8


def draw_contact_sheet(
    images: Iterable[tuple[bytes | memoryview, str]],
    columns: int = COLUMN_COUNT,
    tile_px: int = TILE_PX,
    image_format: Literal["JPEG", "PNG"] = "JPEG",
    quality: int = 85,
) -> bytes:
    """Draw the pictures, in their order and row by row, onto one sheet; pure.

    Every picture is shown upright (EXIF orientation applied) and whole, transparency on a checkerboard; what cannot
    be drawn here, or has more than 64 million pixels, leaves a crossed tile: this is a picture for people, not a
    verdict. One picture at a time is decoded.

    Args:
        images: File bytes and caption of each; only the first `TILE_COUNT_MAX` are taken. A caption may have two lines.
        columns: Tiles in a row, at least 1.
        tile_px: Width and height of a tile; no picture is enlarged beyond its size.
        image_format: What to return.
        quality: Of a JPEG, 1 to 95.

    Returns:
        The sheet's file bytes; a sheet without tiles says "no pictures".
    """
    tiles = [(_draw_tile(data, tile_px), caption.split("\n")[:2]) for data, caption in islice(images, TILE_COUNT_MAX)]
    columns = max(1, min(columns, len(tiles)))
    rows = max(1, -(-len(tiles) // columns))
    line_count = max((len(lines) for _, lines in tiles), default=0)
    cell_width_px, cell_height_px = tile_px + _GAP_PX, tile_px + line_count * _LINE_PX + _GAP_PX
    sheet = Image.new("RGB", (columns * cell_width_px + _GAP_PX, rows * cell_height_px + _GAP_PX), _PAPER)
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=_FONT_PX)
    if not tiles:
        pen.text((_GAP_PX, _GAP_PX), "no pictures", _INK, font)
    for index, (tile, lines) in enumerate(tiles):
        left = _GAP_PX + (index % columns) * cell_width_px
        top = _GAP_PX + (index // columns) * cell_height_px
        sheet.paste(tile, (left + (tile_px - tile.width) // 2, top + (tile_px - tile.height) // 2))
        for number, line in enumerate(lines):
            pen.text((left, top + tile_px + number * _LINE_PX), _fit_line(line, font, tile_px), _INK, font)
    buffer = BytesIO()
    sheet.save(buffer, image_format, **({"quality": quality} if image_format == "JPEG" else {"optimize": True}))
    return buffer.getvalue()


def _draw_tile(data: bytes | memoryview, tile_px: int) -> Image.Image:
    header = read_header(data)
    if header.width_px * header.height_px > _DRAWN_PX_MAX:
        return _draw_cross(tile_px)
    try:
        with pillow_held(_DRAWN_PX_MAX), Image.open(BytesIO(data)) as picture:
            picture.draft("RGB", (2 * tile_px, 2 * tile_px))
            upright = ImageOps.exif_transpose(picture)
            upright.thumbnail((tile_px, tile_px))
            return _flatten(upright)
    except _UNDRAWABLE:
        return _draw_cross(tile_px)


def _flatten(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I") or picture.mode == "F":
        low, high = cast(tuple[float, float], picture.getextrema())
        span = max(high - low, 1.0)
        return picture.point(lambda value: (value - low) * (255 / span)).convert("L").convert("RGB")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    layer = picture.convert("RGBA")
    paper = Image.new("RGBA", layer.size, _CHECKS[0])
    pen = ImageDraw.Draw(paper)
    for top in range(0, layer.height, _CHECK_PX):
        for left in range(0, layer.width, _CHECK_PX):
            if (left // _CHECK_PX + top // _CHECK_PX) % 2:
                pen.rectangle((left, top, left + _CHECK_PX - 1, top + _CHECK_PX - 1), _CHECKS[1])
    return Image.alpha_composite(paper, layer).convert("RGB")


def _draw_cross(tile_px: int) -> Image.Image:
    tile = Image.new("RGB", (tile_px, tile_px), _CHECKS[1])
    pen = ImageDraw.Draw(tile)
    pen.line((0, 0, tile_px - 1, tile_px - 1), _INK)
    pen.line((0, tile_px - 1, tile_px - 1, 0), _INK)
    return tile


def _fit_line(line: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width_px: int) -> str:
    text = "".join(character if character.isprintable() else " " for character in line)[:200]
    if font.getlength(text) <= width_px:
        return text
    while text and font.getlength(text + "..") > width_px:
        text = text[:-1]
    return text + ".."
