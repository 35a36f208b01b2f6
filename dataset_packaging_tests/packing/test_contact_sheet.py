"""Contact sheets: what stands where, and what one odd picture may cost."""

from io import BytesIO

import pytest
from PIL import Image

from dataset_packaging.packing.contact_sheet import TILE_COUNT_MAX, draw_contact_sheet

RED, BLUE = (200, 30, 30), (30, 30, 200)
CROSS_GREY = (214, 214, 214)
TILE_PX, GAP_PX, LINE_PX = 96, 8, 12


def _encode(picture: Image.Image, image_format: str = "PNG", **options: object) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, image_format, **options)
    return buffer.getvalue()


def _draw(*pictures: bytes, columns: int = 6) -> Image.Image:
    sheet = draw_contact_sheet([(data, "bucket\nsize") for data in pictures], columns, TILE_PX, "PNG")
    return Image.open(BytesIO(sheet))


def _at(sheet: Image.Image, column: int, row: int, x_px: int, y_px: int) -> tuple[int, ...]:
    """Read a pixel of a tile, counted from the tile's upper left corner."""
    left = GAP_PX + column * (TILE_PX + GAP_PX)
    top = GAP_PX + row * (TILE_PX + 2 * LINE_PX + GAP_PX)
    return sheet.getpixel((left + x_px, top + y_px))


def test_pictures_stand_row_by_row_whole_and_in_order():
    wide, tall = _encode(Image.new("RGB", (200, 50), RED)), _encode(Image.new("RGB", (50, 200), BLUE))
    sheet = _draw(wide, tall, wide, columns=2)
    assert sheet.size == (2 * (96 + 8) + 8, 2 * (96 + 24 + 8) + 8)
    assert _at(sheet, 0, 0, 0, 48) == RED
    assert _at(sheet, 0, 0, 48, 0) == (255, 255, 255)
    assert _at(sheet, 1, 0, 48, 0) == BLUE
    assert _at(sheet, 0, 1, 95, 48) == RED


def test_a_sheet_holds_24_pictures_and_reads_no_further():
    read = []

    def pictures():
        for number in range(100):
            read.append(number)
            yield _encode(Image.new("L", (8, 8))), str(number)

    sheet = Image.open(BytesIO(draw_contact_sheet(pictures())))
    assert sheet.format == "JPEG"
    assert read == list(range(TILE_COUNT_MAX))
    assert sheet.width == 6 * (96 + 8) + 8


def test_a_rotated_photograph_is_shown_upright():
    """BKT-01."""
    stored = Image.new("RGB", (80, 40), RED)
    stored.paste(BLUE, (0, 0, 40, 40))
    exif = Image.Exif()
    exif[0x0112] = 6  # the stored left is the top
    sheet = _draw(_encode(stored, exif=exif))
    assert _at(sheet, 0, 0, 48, 20) == BLUE
    assert _at(sheet, 0, 0, 48, 75) == RED


def test_transparency_is_shown_on_a_checkerboard():
    sheet = _draw(_encode(Image.new("RGBA", (96, 96), (0, 0, 0, 0))))
    assert {_at(sheet, 0, 0, 2, 2), _at(sheet, 0, 0, 10, 2)} == {(255, 255, 255), CROSS_GREY}


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "I;16", "I", "F", "CMYK", "YCbCr", "RGBA"])
def test_every_mode_can_be_drawn(mode: str):
    grey = Image.new("L", (32, 32), 120).convert("I" if mode == "I;16" else "RGB" if mode != "LA" else "LA")
    data = _encode(grey.convert(mode), "TIFF")
    assert _at(_draw(data), 0, 0, 0, 0) != CROSS_GREY or mode == "1"


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>", b"\x89PNG\r\n\x1a\n" + bytes(40), _encode(Image.new("RGB", (64, 64), RED), "JPEG")[:300]],
    ids=["empty", "html", "broken-png", "cut-jpeg"],
)
def test_what_cannot_be_drawn_costs_its_tile_only(data: bytes):
    """IMG-02."""
    sheet = _draw(data, _encode(Image.new("RGB", (96, 96), RED)))
    assert _at(sheet, 0, 0, 48, 2) == CROSS_GREY
    assert _at(sheet, 1, 0, 48, 48) == RED


def test_a_giant_is_crossed_out_rather_than_decoded():
    assert _at(_draw(_encode(Image.new("1", (20_000, 20_000)))), 0, 0, 48, 2) == CROSS_GREY


def test_captions_are_cut_to_their_tile_and_cannot_break_it():
    long = draw_contact_sheet([(b"", "W" * 500 + "\n\x00\u202e" + "\n3\n4")], image_format="PNG")
    short = draw_contact_sheet([(b"", "a\nb")], image_format="PNG")
    assert Image.open(BytesIO(long)).size == Image.open(BytesIO(short)).size


def test_no_pictures_make_a_sheet_that_says_so():
    sheet = Image.open(BytesIO(draw_contact_sheet([], image_format="PNG")))
    assert len(sheet.getcolors()) > 1
