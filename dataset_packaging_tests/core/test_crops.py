"""Structured captions after a resize: geometry and boxes, as properties."""

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_packaging.core.crops import (
    CROP_SIZES,
    CropGeometry,
    crop_box,
    crop_caption,
    describe_crops,
    find_box_fault,
    is_clipped,
    plan_crop,
)

SIDES = st.integers(1, 30_000)
SIZES = st.sampled_from(CROP_SIZES)
INT_BOXES = st.tuples(*[st.integers(0, 1000)] * 4).filter(lambda box: box[0] < box[2] and box[1] < box[3])
FLOAT_BOXES = st.tuples(*[st.floats(0, 1000)] * 4).filter(lambda box: box[0] < box[2] and box[1] < box[3])


@st.composite
def geometries(draw: st.DrawFn) -> CropGeometry:
    """Any crop that is one, also those that `plan_crop` would never choose."""
    resized = draw(st.tuples(st.integers(32, 5000), st.integers(32, 5000)))
    target = [draw(st.integers(1, side)) for side in resized]
    offset = [draw(st.integers(0, whole - kept)) for whole, kept in zip(resized, target, strict=True)]
    return CropGeometry(draw(SIDES), draw(SIDES), *resized, *target, *offset)


@given(SIDES, SIDES, SIZES)
def test_sides_are_multiples_of_32_and_only_the_rest_is_cut_off(width: int, height: int, size: int) -> None:
    plan = plan_crop(width, height, size)
    assert plan.target_width_px % 32 == plan.target_height_px % 32 == 0
    for resized, target, offset in (
        (plan.resized_width_px, plan.target_width_px, plan.left_px),
        (plan.resized_height_px, plan.target_height_px, plan.top_px),
    ):
        assert 0 <= resized - target < 32
        assert offset == (resized - target) // 2


@given(SIDES, SIDES, SIZES)
def test_the_area_is_fixed_and_the_aspect_kept(width: int, height: int, size: int) -> None:
    plan = plan_crop(width, height, size)
    ratio = max(width, height) / min(width, height)
    if size / math.sqrt(ratio) >= 33:
        error = 1 / plan.resized_width_px + 1 / plan.resized_height_px
        assert plan.resized_width_px * plan.resized_height_px == pytest.approx(size * size, rel=error)
    else:
        assert min(plan.target_width_px, plan.target_height_px) == 32
    assert plan.resized_width_px * height == pytest.approx(plan.resized_height_px * width, abs=max(width, height))


@pytest.mark.parametrize(
    ("size", "width", "height", "resized", "target", "offset"),
    [
        (512, 512, 512, (512, 512), (512, 512), (0, 0)),
        (512, 1920, 1080, (683, 384), (672, 384), (5, 0)),
        (1024, 1920, 1080, (1365, 768), (1344, 768), (10, 0)),
        (512, 100, 100, (512, 512), (512, 512), (0, 0)),
        (512, 3000, 2000, (627, 418), (608, 416), (9, 1)),
        (512, 1, 20000, (32, 640000), (32, 640000), (0, 0)),
    ],
)
def test_known_geometries(size: int, width: int, height: int, resized: Any, target: Any, offset: Any) -> None:
    plan = plan_crop(width, height, size)
    assert (plan.resized_width_px, plan.resized_height_px) == resized
    assert (plan.target_width_px, plan.target_height_px) == target
    assert (plan.left_px, plan.top_px) == offset


@given(st.one_of(INT_BOXES, FLOAT_BOXES), geometries())
def test_boxes_stay_within_the_range_with_positive_area(box: Any, geometry: CropGeometry) -> None:
    cropped = crop_box(box, geometry)
    if cropped is not None:
        assert find_box_fault(list(cropped)) == ""
        assert all(isinstance(part, int) for part in cropped) == all(isinstance(part, int) for part in box)


@given(st.one_of(INT_BOXES, FLOAT_BOXES), geometries())
def test_a_box_lies_where_its_picture_part_lies(box: Any, geometry: CropGeometry) -> None:
    """Back in pixels of the resized picture the box is the old one, cut to the crop, up to rounding."""
    cropped = crop_box(box, geometry)
    g = geometry
    sides = [
        (box[0], box[2], g.resized_height_px, g.target_height_px, g.top_px),
        (box[1], box[3], g.resized_width_px, g.target_width_px, g.left_px),
    ]
    spans = [(max(a * whole / 1000, start), min(b * whole / 1000, start + kept)) for a, b, whole, kept, start in sides]
    if any(high - low > 1e-6 for low, high in spans) and all(high - low > 1e-6 for low, high in spans):
        assert cropped is not None
        for at, ((low, high), (_, _, _, kept, start)) in enumerate(zip(spans, sides, strict=True)):
            tolerance = (1.01 if isinstance(cropped[at], int) else 0.0011) * kept / 1000
            assert cropped[at] * kept / 1000 + start == pytest.approx(low, abs=tolerance)
            assert cropped[at + 2] * kept / 1000 + start == pytest.approx(high, abs=tolerance)
    elif any(high - low < -1e-6 for low, high in spans):
        assert cropped is None


@given(INT_BOXES, SIDES)
def test_without_a_crop_boxes_stay_the_same(box: Any, side: int) -> None:
    geometry = plan_crop(side, side, 512)
    assert crop_box(box, geometry) == box
    assert not is_clipped(box, geometry)


def captions() -> st.SearchStrategy[Any]:
    boxes = st.one_of(
        INT_BOXES.map(list), st.lists(st.integers(-5, 1005), max_size=5), st.none(), st.text(max_size=3), st.booleans()
    )
    leaves = st.one_of(st.text(max_size=4), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.none())
    return st.recursive(
        leaves,
        lambda children: st.one_of(
            st.lists(children, max_size=4),
            st.dictionaries(st.sampled_from(["elements", "label", "text", "x"]), children, max_size=3).flatmap(
                lambda element: st.one_of(st.just(element), boxes.map(lambda box: element | {"bbox": box}))
            ),
        ),
        max_leaves=12,
    )


def _boxes(node: Any) -> list[Any]:
    if isinstance(node, list):
        return [box for child in node for box in _boxes(child)]
    if not isinstance(node, dict):
        return []
    own = [node["bbox"]] if node.get("bbox") is not None else []
    return own + [box for name, child in node.items() if name != "bbox" for box in _boxes(child)]


@given(captions(), geometries())
def test_every_element_is_kept_dropped_or_reported(caption: Any, geometry: CropGeometry) -> None:
    text = json.dumps(caption)
    cropped = crop_caption(text, geometry)
    assert cropped.problem == ""
    assert cropped.text is not None
    left = _boxes(json.loads(cropped.text))
    assert all(find_box_fault(box) == "" for box in left)
    tally = cropped.tally
    assert tally.elements == len(left) + tally.dropped + len(tally.invalid)
    assert tally.clipped <= len(left)
    if not _boxes(caption):
        assert json.loads(cropped.text) == caption


def test_an_element_that_the_crop_removes_is_dropped_and_the_rest_stays_as_it_is() -> None:
    geometry = CropGeometry(1000, 1000, 1000, 1000, 500, 500, 250, 250)
    caption = {
        "summary": "größer – 写真",
        "elements": [
            {"label": "gone", "bbox": [0, 0, 250, 1000], "parts": [{"bbox": [0, 0, 10, 10]}]},
            {"label": "cut", "bbox": [0, 0, 500, 500], "parts": [{"label": "whole", "bbox": [300, 300, 400, 400]}]},
            {"label": "unplaced", "bbox": None, "score": 1.0},
        ],
        "subject": {"bbox": [800, 800, 900, 900]},
    }
    cropped = crop_caption(json.dumps(caption), geometry)
    assert json.loads(cropped.text or "") == {
        "summary": "größer – 写真",
        "elements": [
            {"label": "cut", "bbox": [0, 0, 500, 500], "parts": [{"label": "whole", "bbox": [100, 100, 300, 300]}]},
            {"label": "unplaced", "bbox": None, "score": 1.0},
        ],
    }
    assert (cropped.tally.elements, cropped.tally.dropped, cropped.tally.clipped) == (4, 2, 1)


@pytest.mark.parametrize(
    ("box", "fault"),
    [
        ([10, 10, 10, 20], "no positive area"),
        ([20, 10, 10, 20], "no positive area"),
        ([-1, 0, 10, 10], "not within 0 to 1000"),
        ([0, 0, 10, 1000.5], "not within 0 to 1000"),
        ([0, 0, 10], "not four numbers"),
        ([0, 0, 10, "10"], "not four numbers"),
        ([0, 0, 10, True], "not four numbers"),
        ({"y0": 0}, "not four numbers"),
        ("0 0 10 10", "not four numbers"),
    ],
)
def test_an_invalid_box_is_reported_and_not_guessed_at(box: object, fault: str) -> None:
    text = json.dumps({"elements": [{"bbox": box, "label": "a"}, {"bbox": [0, 0, 10, 10]}]})
    cropped = crop_caption(text, plan_crop(512, 512, 512))
    assert json.loads(cropped.text or "") == {"elements": [{"bbox": [0, 0, 10, 10]}]}
    (reported,) = cropped.tally.invalid
    assert reported.startswith(f"$.elements[0].bbox: {fault}")


@pytest.mark.parametrize("text", ["no json", "", '{"a": NaN}', "[" * 100_000])
def test_a_caption_that_is_no_json_has_a_problem_and_no_text(text: str) -> None:
    cropped = crop_caption(text, plan_crop(512, 512, 512))
    assert cropped.text is None
    assert cropped.problem


def test_half_a_surrogate_pair_does_not_reach_the_output() -> None:
    """MAN-03: it could not be encoded."""
    cropped = crop_caption('{"a": "x\\ud800y"}', plan_crop(512, 512, 512))
    assert cropped.text == '{"a":"x\ufffdy"}'


def test_a_geometry_that_is_none_is_refused() -> None:
    for values in [
        (0, 1, 1, 1, 1, 1, 0, 0),
        (9, 9, 9, 9, 9, 9, 1, 0),
        (9, 9, 9, 9, 5, 5, -1, 0),
        (9, 9, 9, 9, 0, 5, 0, 0),
    ]:
        with pytest.raises(ValueError, match="CropGeometry"):
            CropGeometry(*values)


def test_the_description_tells_geometry_and_elements() -> None:
    geometry = plan_crop(1920, 1080, 512)
    caption = crop_caption('[{"bbox": [0, 0, 1000, 1000]}, {"bbox": [0, 0, 1000, 5]}, {"bbox": 1}]', geometry)
    text = describe_crops(1920, 1080, {512: (geometry, caption, ""), 1024: (None, None, "no geometry")})
    assert orjson.loads(text) == {
        "version": 1,
        "source": {"width": 1920, "height": 1080},
        "crops": {
            "512": {
                "resized": {"width": 683, "height": 384},
                "target": {"width": 672, "height": 384},
                "scale": 683 / 1920,
                "offset": {"x": 5, "y": 0},
                "elements": 3,
                "clipped": 1,
                "dropped": 1,
                "invalid": 1,
                "invalid_boxes": ["$[2].bbox: not four numbers"],
            },
            "1024": {"problem": "no geometry"},
        },
    }
