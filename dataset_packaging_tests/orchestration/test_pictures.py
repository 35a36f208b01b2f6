"""The heat map: every bucket has its cell, counts can be read, and it stays small."""

import base64
from xml.etree import ElementTree

import pytest

from dataset_packaging.orchestration.keys import BUCKET_KEYS
from dataset_packaging.orchestration.pictures import draw_heat_map, short_count, show_svg

_SVG = "{http://www.w3.org/2000/svg}"


def _cells(svg: str) -> dict[str, tuple[str, str]]:
    """Fill colour and title of each bucket's cell."""
    cells = {}
    for box in ElementTree.fromstring(svg).iter(f"{_SVG}rect"):
        title = box.find(f"{_SVG}title")
        if title is not None and title.text:
            cells[title.text.split(":")[0]] = (box.attrib["fill"], title.text)
    return cells


def test_every_bucket_has_a_cell_with_its_count():
    rows = {key: number * 1000 for number, key in enumerate(BUCKET_KEYS)}
    cells = _cells(draw_heat_map(rows))
    assert list(cells) == list(BUCKET_KEYS)
    assert cells["2048_inf/40000"][1] == "2048_inf/40000: 134,000 rows"


def test_shades_tell_few_from_many_and_from_none():
    fills = {key: fill for key, (fill, _) in _cells(draw_heat_map({BUCKET_KEYS[0]: 10, BUCKET_KEYS[1]: 10**9})).items()}
    assert fills[BUCKET_KEYS[2]] == "#fff"
    assert len({fills[BUCKET_KEYS[0]], fills[BUCKET_KEYS[1]], "#fff"}) == 3


def test_an_empty_dataset_is_an_empty_map():
    assert {fill for fill, _ in _cells(draw_heat_map({})).values()} == {"#fff"}


def test_the_map_needs_no_file_and_fits_into_an_event():
    markdown = show_svg(draw_heat_map(dict.fromkeys(BUCKET_KEYS, 123_456_789)), "rows")
    head, _, data = markdown.partition("base64,")
    assert head == "![rows](data:image/svg+xml;"
    assert ElementTree.fromstring(base64.b64decode(data.rstrip(")"))).tag == f"{_SVG}svg"
    assert len(markdown) < 100_000


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (1249, "1.2k"), (99_960, "100k"), (999_999, "1.0M"), (34 * 10**9, "34G")],
)
def test_counts_fit_into_a_cell(count: int, text: str):
    assert short_count(count) == text
