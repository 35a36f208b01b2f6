"""Pillow's process-wide switches: in force for a verdict, untouched by it, whatever other code does to them."""

import threading
import warnings
from collections.abc import Iterator

import pytest
from PIL import Image, ImageFile

from dataset_packaging.imaging.pillow_state import pillow_held
from dataset_packaging.imaging.verify import ImagePolicy, verify_image
from dataset_packaging_tests.imaging.samples import LOAD, STRICT, encoded, photograph


@pytest.fixture
def switches() -> Iterator[None]:
    """Put the switches back, whatever a test sets them to."""
    before = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    yield
    Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = before


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize("policy", [STRICT, LOAD], ids=lambda policy: policy.integrity)
@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_leniency_that_another_library_set_is_not_used_and_not_lost(format_name: str, policy: ImagePolicy) -> None:
    """IMG-04."""
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    data = encoded(photograph(), format_name)
    assert verify_image(data[: len(data) // 2], policy).reason == "truncated_image"
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize("limit", [1, 10**6, None])
def test_pixel_limit_of_the_process_is_not_used_and_not_lost(limit: int | None) -> None:
    Image.MAX_IMAGE_PIXELS = limit
    assert verify_image(encoded(photograph(), "WEBP"), LOAD).reason is None
    assert limit == Image.MAX_IMAGE_PIXELS


def test_filters_of_warnings_are_left_as_they_were() -> None:
    before = list(warnings.filters)
    verify_image(encoded(photograph(), "PNG"), STRICT)
    assert list(warnings.filters) == before


@pytest.mark.usefixtures("switches")
def test_verdict_reached_while_somebody_was_lenient_is_repeated() -> None:
    """IMG-04: another thread turns leniency on in the middle of a decode, from a reader that waits for it."""
    truncated = encoded(photograph(), "BMP")[:-1000]
    decodes = []

    class MeddlingImage(ImageFile.ImageFile):
        format = "MEDDLED"

        def _open(self) -> None:
            self._mode, self._size = "RGB", (512, 512)
            self.tile = [ImageFile._Tile("raw", (0, 0, 512, 512), 54, ("BGR", 0, -1))]

        def load(self) -> object:
            decodes.append(self)
            if len(decodes) == 1:
                meddler = threading.Thread(target=setattr, args=(ImageFile, "LOAD_TRUNCATED_IMAGES", True))
                meddler.start()
                meddler.join()
            return super().load()

    Image.register_open("MEDDLED", MeddlingImage)
    try:
        policy = ImagePolicy("load", "upright", ("MEDDLED",), max_pixels=10**6, max_bytes=10**7)
        verdict = verify_image(truncated, policy)
    finally:
        Image.OPEN.pop("MEDDLED")
        Image.ID.remove("MEDDLED")
    assert len(decodes) == 2
    assert verdict.reason == "truncated_image"
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_callers_with_one_limit_hold_it_together_and_another_limit_waits() -> None:
    entered, other_entered, leave = threading.Event(), threading.Event(), threading.Event()

    def hold(limit: int, event: threading.Event) -> None:
        with pillow_held(limit):
            event.set()
            leave.wait(30)

    before = Image.MAX_IMAGE_PIXELS
    with pillow_held(1000):
        same = threading.Thread(target=hold, args=(1000, entered))
        same.start()
        assert entered.wait(30)
        assert Image.MAX_IMAGE_PIXELS == 500
        other = threading.Thread(target=hold, args=(2000, other_entered))
        other.start()
        assert not other_entered.is_set()
        leave.set()
        same.join(30)
        assert not other_entered.is_set()
    assert other_entered.wait(30)
    other.join(30)
    assert before == Image.MAX_IMAGE_PIXELS


@pytest.mark.usefixtures("switches")
def test_threads_with_different_limits_all_get_the_verdict_of_their_own() -> None:
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    data = encoded(photograph().resize((100, 100)), "WEBP")
    limits = [9_999, 10_000] * 4
    verdicts: dict[int, set[str | None]] = {limit: set() for limit in limits}

    def judge(limit: int) -> None:
        policy = ImagePolicy("load", "upright", ("WEBP",), max_pixels=limit, max_bytes=10**7)
        verdicts[limit].update(verify_image(data, policy).reason for _ in range(30))

    threads = [threading.Thread(target=judge, args=(limit,)) for limit in limits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert verdicts == {9_999: {"too_many_pixels"}, 10_000: {None}}
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True
