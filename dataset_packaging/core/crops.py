"""Structured captions after a resize to a fixed area: where the picture goes, and its element boxes with it. Pure.

A picture is scaled to the area of `size` x `size` pixels with its aspect kept; each side is then cut to a multiple of
32, the same from both ends. Boxes are lists `[y0, x0, y1, x1]` of numbers from 0 to 1000, relative to the height and
the width of the picture.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

CROPS_VERSION = 1
"""Raised when geometry, boxes or the texts that are made of them change."""

CAPTION_COLUMN = "structured_description"
META_COLUMN = "bbox_resize_meta"
CROP_SIZES = (512, 1024)
SIDE_STEP_PX = 32
"""Sides are multiples of this, as the latents of diffusion models want it."""

BOX_RANGE = 1000
DEFAULT_BOX_FIELDS = ("bbox", "box_2d", "bounding_box", "box")
_NAMED_PLACES = 10
_DECIMALS = 3
_HALF = re.compile("[\ud800-\udfff]")

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Box: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class CropGeometry:
    """How a picture is resized and cropped: scaled to `resized`, then cut to `target` from `left`, `top`.

    Attributes:
        source_width_px, source_height_px: as shown.
        resized_width_px, resized_height_px: before the crop.
        target_width_px, target_height_px: after it.
        left_px, top_px: of the crop within the resized picture; 0 <= left_px <= resized - target.
    """

    source_width_px: int
    source_height_px: int
    resized_width_px: int
    resized_height_px: int
    target_width_px: int
    target_height_px: int
    left_px: int
    top_px: int

    def __post_init__(self) -> None:
        sizes = (self.source_width_px, self.source_height_px, self.target_width_px, self.target_height_px)
        right, bottom = self.left_px + self.target_width_px, self.top_px + self.target_height_px
        if min(sizes) < 1 or min(self.left_px, self.top_px) < 0:
            raise ValueError(f"sizes must be at least 1 and offsets at least 0: {self}")
        if right > self.resized_width_px or bottom > self.resized_height_px:
            raise ValueError(f"the crop reaches beyond the resized picture: {self}")

    @property
    def scale(self) -> float:
        """Pixels of the resized picture per pixel of the source, along the longer side."""
        if self.source_width_px >= self.source_height_px:
            return self.resized_width_px / self.source_width_px
        return self.resized_height_px / self.source_height_px


def crop_column(size: int) -> str:
    """Return the column that holds captions after the crop of a size; pure."""
    return f"{CAPTION_COLUMN}_crop_{size}"


def plan_crop(width_px: int, height_px: int, size: int) -> CropGeometry:
    """Return the geometry of the resize to the area of `size` x `size` pixels.

    Args:
        width_px: of the picture as shown, at least 1.
        height_px: the same.
        size: side of the square of that area, a multiple of 32.

    A picture so narrow that its shorter side would have fewer than 32 pixels is scaled until it has 32: its area is
    then larger than asked, but nothing more is cut off.
    """
    scale = max(math.sqrt(size * size / (width_px * height_px)), SIDE_STEP_PX / min(width_px, height_px))
    resized = [max(SIDE_STEP_PX, round(side * scale)) for side in (width_px, height_px)]
    target = [side // SIDE_STEP_PX * SIDE_STEP_PX for side in resized]
    left, top = ((whole - kept) // 2 for whole, kept in zip(resized, target, strict=True))
    return CropGeometry(width_px, height_px, resized[0], resized[1], target[0], target[1], left, top)


@dataclass(slots=True)
class CropTally:
    """What became of the elements of one caption.

    Attributes:
        elements: with a box, all of them: kept + dropped + invalid.
        clipped: kept ones whose box is cut by the crop.
        dropped: ones that the crop removes, with what stands below them.
        invalid: where boxes stand that are none, and why; those elements are left out as well.
    """

    elements: int = 0
    clipped: int = 0
    dropped: int = 0
    invalid: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CroppedCaption:
    """A caption after a crop: its JSON text, or None where it cannot be told, and why."""

    text: str | None
    tally: CropTally
    problem: str = ""


def crop_caption(text: str, geometry: CropGeometry, box_fields: Sequence[str] = DEFAULT_BOX_FIELDS) -> CroppedCaption:
    """Return a structured caption with its boxes relative to the cropped picture.

    An element is an object with a box. One that the crop removes is left out, one whose box is no box is left out and
    reported: where it would be cannot be known. A box that is null is none. Everything else stays as it is.

    Args:
        text: JSON.
        geometry: of the crop.
        box_fields: names under which boxes stand.
    """
    tally = CropTally()
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
        cropped = _Cropper(geometry, frozenset(box_fields), tally).crop(document, "$")
        return CroppedCaption(_dump(None if cropped is _REMOVED else cropped), tally)
    except RecursionError:
        return CroppedCaption(None, CropTally(), "nested too deep")
    except ValueError as error:
        return CroppedCaption(None, CropTally(), f"no JSON: {error}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _dump(document: Json) -> str:
    return _HALF.sub("\ufffd", json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


_REMOVED: Any = object()


@dataclass(frozen=True, slots=True)
class _Cropper:
    geometry: CropGeometry
    box_fields: frozenset[str]
    tally: CropTally

    def crop(self, node: Any, place: str) -> Any:
        """Return the node after the crop, or _REMOVED."""
        if isinstance(node, list):
            children = [self.crop(child, f"{place}[{number}]") for number, child in enumerate(node)]
            return [child for child in children if child is not _REMOVED]
        if not isinstance(node, dict):
            return node
        boxes = {name: node[name] for name in node if name in self.box_fields and node[name] is not None}
        moved: dict[str, list[float]] = {}
        self.tally.elements += bool(boxes)
        clipped = False
        for name, value in boxes.items():
            if problem := find_box_fault(value):
                self.tally.invalid.append(f"{place}.{name}: {problem}")
                return _REMOVED
            box = crop_box(tuple(value), self.geometry)
            if box is None:
                self.tally.dropped += 1
                return _REMOVED
            moved[name] = list(box)
            clipped |= is_clipped(tuple(value), self.geometry)
        self.tally.clipped += clipped
        result = {}
        for name, value in node.items():
            child = moved[name] if name in moved else self.crop(value, f"{place}.{name}")
            if child is not _REMOVED:
                result[name] = child
        return result


def find_box_fault(value: object) -> str:
    """Return why a value is no box `[y0, x0, y1, x1]`, or nothing."""
    if not isinstance(value, list) or len(value) != 4:
        return "not four numbers"
    if any(isinstance(part, bool) or not isinstance(part, int | float) for part in value):
        return "not four numbers"
    if not all(0 <= part <= BOX_RANGE for part in value):
        return f"not within 0 to {BOX_RANGE}"
    if value[0] >= value[2] or value[1] >= value[3]:
        return "no positive area; the order is y0, x0, y1, x1"
    return ""


def crop_box(box: Box, geometry: CropGeometry) -> Box | None:
    """Return a box relative to the cropped picture, or None where nothing of it is left.

    Whole numbers give whole numbers. The result is within 0 to 1000 and has a positive area.
    """
    whole = all(isinstance(part, int) for part in box)
    sides = (
        _crop_side(box[0], box[2], geometry.resized_height_px, geometry.target_height_px, geometry.top_px, whole),
        _crop_side(box[1], box[3], geometry.resized_width_px, geometry.target_width_px, geometry.left_px, whole),
    )
    if sides[0] is None or sides[1] is None:
        return None
    return sides[0][0], sides[1][0], sides[0][1], sides[1][1]


def is_clipped(box: Box, geometry: CropGeometry) -> bool:
    """Return whether the crop cuts off a part of a box that stays."""
    left, right = (part * geometry.resized_width_px / BOX_RANGE - geometry.left_px for part in (box[1], box[3]))
    top, bottom = (part * geometry.resized_height_px / BOX_RANGE - geometry.top_px for part in (box[0], box[2]))
    return left < 0 or top < 0 or right > geometry.target_width_px or bottom > geometry.target_height_px


def _crop_side(
    start: float, end: float, resized_px: int, target_px: int, offset_px: int, whole: bool
) -> tuple[float, float] | None:
    low, high = (
        min(max((part * resized_px / BOX_RANGE - offset_px) * BOX_RANGE / target_px, 0.0), float(BOX_RANGE))
        for part in (start, end)
    )
    if high <= low:
        return None
    step = 1 if whole else 10**-_DECIMALS
    first, last = (round(low), round(high)) if whole else (round(low, _DECIMALS), round(high, _DECIMALS))
    if last <= first:
        # Rounding must not take the area: the box grows by one step, inwards at the end of the range.
        if first + step <= BOX_RANGE:
            last = first + step
        else:
            first = last - step
    return (first, last) if whole else (round(first, _DECIMALS), round(last, _DECIMALS))


def describe_crops(
    width_px: int, height_px: int, crops: dict[int, tuple[CropGeometry | None, CroppedCaption | None, str]]
) -> str:
    """Return `bbox_resize_meta`: for each size what was done with picture and elements, as JSON text.

    Args:
        width_px: of the source, as shown.
        height_px: of the source, as shown.
        crops: by size: geometry and caption, or why there are none.
    """
    return _dump(
        {
            "version": CROPS_VERSION,
            "source": {"width": width_px, "height": height_px},
            "crops": {str(size): _describe_crop(*crop) for size, crop in crops.items()},
        }
    )


def _describe_crop(geometry: CropGeometry | None, caption: CroppedCaption | None, problem: str) -> dict[str, Json]:
    described: dict[str, Json] = {}
    if geometry is not None:
        described |= {
            "resized": {"width": geometry.resized_width_px, "height": geometry.resized_height_px},
            "target": {"width": geometry.target_width_px, "height": geometry.target_height_px},
            "scale": geometry.scale,
            "offset": {"x": geometry.left_px, "y": geometry.top_px},
        }
    if caption is not None and caption.text is not None:
        tally = caption.tally
        described |= {
            "elements": tally.elements,
            "clipped": tally.clipped,
            "dropped": tally.dropped,
            "invalid": len(tally.invalid),
        }
        if tally.invalid:
            described["invalid_boxes"] = [*tally.invalid[:_NAMED_PLACES]]
    if problem or (caption is not None and caption.problem):
        described["problem"] = problem or (caption.problem if caption else "")
    return described


@dataclass(frozen=True, slots=True)
class CropCounts:
    """The captions of one sidecar after the crop of one size.

    Attributes:
        size: 512 or 1024.
        captions: rows that have one.
        cropped: of which a cropped one could be told; the others have a problem in `bbox_resize_meta`.
        elements: with a box; kept + dropped + invalid.
        clipped: kept ones that the crop cuts.
        dropped: ones that the crop removes.
        invalid: ones whose box is none.
    """

    size: int
    captions: int = 0
    cropped: int = 0
    elements: int = 0
    clipped: int = 0
    dropped: int = 0
    invalid: int = 0

    def added(self, other: "CropCounts") -> "CropCounts":
        """Return the sum of two counts of the same size."""
        names = ("captions", "cropped", "elements", "clipped", "dropped", "invalid")
        return CropCounts(self.size, *(getattr(self, name) + getattr(other, name) for name in names))

    def plus(self, caption: CroppedCaption | None) -> "CropCounts":
        """Return the counts with one more caption."""
        if caption is None or caption.text is None:
            return replace(self, captions=self.captions + 1)
        tally = caption.tally
        return CropCounts(
            self.size,
            self.captions + 1,
            self.cropped + 1,
            self.elements + tally.elements,
            self.clipped + tally.clipped,
            self.dropped + tally.dropped,
            self.invalid + len(tally.invalid),
        )
