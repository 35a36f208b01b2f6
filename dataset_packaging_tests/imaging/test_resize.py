"""Images to WebP at a fixed area: upright, in sRGB, with their alpha; what cannot be resized says why."""

import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

from dataset_packaging.core.crops import plan_crop
from dataset_packaging.imaging.resize import WEBP_SIDE_MAX_PX, Resize, resize_image
from dataset_packaging.imaging.verify import ImagePolicy, verify_image
from dataset_packaging_tests.odd_images import odd_images
from dataset_packaging_tests.odd_images.encodings import encoded, exif, picture

FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP")
WIDTH, HEIGHT = 97, 61
POLICY = ImagePolicy("strict", "upright", FORMATS, max_pixels=300_000_000, max_bytes=268_435_456)


def wish(width: int = WIDTH, height: int = HEIGHT, size: int = 512, *, upright: bool = True) -> Resize:
    plan = plan_crop(width, height, size)
    crop = (plan.left_px, plan.top_px, plan.left_px + plan.target_width_px, plan.top_px + plan.target_height_px)
    return Resize((plan.resized_width_px, plan.resized_height_px), crop, FORMATS, 300_000_000, upright)


def made(data: bytes, asked: Resize | None = None) -> Image.Image:
    """Returns the resized image; its file has one frame and no metadata."""
    asked = asked or wish()
    result = resize_image(data, asked)
    assert isinstance(result, bytes), result
    image = Image.open(io.BytesIO(result))
    image.load()
    left, top, right, bottom = asked.crop_px
    assert (image.format, image.size) == ("WEBP", (right - left, bottom - top))
    assert image.n_frames == 1
    assert not {"exif", "icc_profile", "xmp"} & set(image.info)
    return image


def decoded(data: bytes) -> Image.Image:
    """Returns what Pillow itself shows of a file."""
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return ImageOps.exif_transpose(image)


def reference(image: Image.Image) -> np.ndarray:
    """Returns the picture of odd_images in the wanted geometry, as Pillow alone makes it."""
    asked = wish(*image.size)
    return np.asarray(image.convert("RGB").resize(asked.resized_px, Image.Resampling.LANCZOS).crop(asked.crop_px), int)


def difference(image: Image.Image, expected: np.ndarray) -> float:
    return float(np.abs(np.asarray(image.convert("RGB"), int) - expected).mean())


@pytest.mark.parametrize(
    ("mode", "format_", "options"),
    [
        ("RGB", "PNG", {}), ("RGB", "JPEG", {"quality": 95}), ("RGB", "TIFF", {}), ("RGB", "BMP", {}),
        ("L", "PNG", {}), ("1", "PNG", {}), ("P", "GIF", {}), ("P", "PNG", {}), ("CMYK", "TIFF", {}),
        ("CMYK", "JPEG", {"quality": 95}), ("YCbCr", "TIFF", {}),
    ],
)  # fmt: skip
def test_every_mode_becomes_the_picture_that_it_shows(mode: str, format_: str, options: dict[str, object]) -> None:
    data = encoded(picture(mode), format_, **options)
    image = made(data)
    assert image.mode == "RGB"
    assert difference(image, reference(decoded(data))) < 4


def test_sixteen_bits_of_grey_keep_their_range() -> None:
    """Pillow's own conversion clips: everything above 255 of 65,535 would be white."""
    source = picture("I;16")
    grey = Image.fromarray((np.asarray(source).astype(np.uint32) >> 8).astype(np.uint8))
    for format_ in ("PNG", "TIFF"):
        assert difference(made(encoded(source, format_)), reference(grey)) < 4


@pytest.mark.parametrize("mode", ["F", "I"])
def test_samples_without_a_range_say_why(mode: str) -> None:
    assert resize_image(encoded(picture(mode), "TIFF"), wish()) == (
        f"ValueError: samples of mode {mode} have no range of their own"
    )


def _keyed_grey() -> bytes:
    source = picture("L")
    return encoded(source, "PNG", transparency=source.getpixel((WIDTH // 2, HEIGHT // 2)))


def _keyed_palette() -> bytes:
    source = picture("RGB").quantize(16)
    return encoded(source, "PNG", transparency=source.getpixel((0, 0)))


def _half(mode: str) -> Image.Image:
    source = picture(mode)
    source.putalpha(
        Image.fromarray(np.where(np.arange(WIDTH) < WIDTH // 2, 0, 255).astype(np.uint8)[None].repeat(HEIGHT, 0))
    )
    return source


@pytest.mark.parametrize(
    "make",
    [
        lambda: encoded(_half("RGBA"), "PNG"),
        lambda: encoded(_half("LA"), "PNG"),
        lambda: encoded(_half("RGBA"), "TIFF"),
        lambda: encoded(_half("RGBA"), "WEBP", lossless=True),
        _keyed_grey,
        _keyed_palette,
    ],
)
def test_alpha_is_kept(make: Callable[[], bytes]) -> None:
    data = make()
    shown = Image.open(io.BytesIO(data)).convert("RGBA").getchannel("A")
    image = made(data)
    assert image.mode == "RGBA"
    assert float(np.asarray(image.getchannel("A")).mean()) == pytest.approx(float(np.asarray(shown).mean()), abs=3)


def test_transparent_colours_do_not_bleed_into_edges() -> None:
    source = Image.new("RGBA", (WIDTH, HEIGHT), (255, 0, 0, 0))
    source.paste((0, 255, 0, 255), (0, 0, WIDTH // 2, HEIGHT))
    pixels = np.asarray(made(encoded(source, "PNG")).convert("RGBA"), int)
    opaque = pixels[pixels[..., 3] > 128]
    assert opaque[:, 0].max() < 40


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_the_orientation_is_applied_once(format_: str, orientation: int) -> None:
    """IMG-06: a TIFF is turned by Pillow already."""
    source = picture()
    options = {"quality": 95} if format_ in ("JPEG", "WEBP") else {}
    data = encoded(source, format_, exif=exif(orientation), **options)
    shown = decoded(data)
    assert difference(made(data, wish(*shown.size)), reference(shown)) < 4


def test_with_stored_sizes_nothing_is_turned() -> None:
    turned = encoded(picture(), "JPEG", exif=exif(6), quality=95)
    plain = decoded(encoded(picture(), "JPEG", quality=95))
    assert difference(made(turned, wish(upright=False)), reference(plain)) < 4


def _profile(name: str) -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes()


def test_colours_become_srgb() -> None:
    """A profile with red and blue exchanged shows at once whether it was applied."""
    swapped = bytearray(_profile("sRGB"))
    red, blue = swapped.find(b"rXYZ", 128), swapped.find(b"bXYZ", 128)
    swapped[red : red + 4], swapped[blue : blue + 4] = b"bXYZ", b"rXYZ"
    source = Image.new("RGB", (WIDTH, HEIGHT), (200, 30, 40))
    for format_, options in (("PNG", {}), ("JPEG", {"quality": 95}), ("TIFF", {}), ("WEBP", {"quality": 95})):
        image = made(encoded(source, format_, icc_profile=bytes(swapped), **options))
        red_mean, _, blue_mean = np.asarray(image, int).mean(axis=(0, 1))
        assert blue_mean > 150 > 100 > red_mean, format_
        plain = made(encoded(source, format_, icc_profile=_profile("sRGB"), **options))
        assert difference(plain, np.full((*reversed(plain.size), 3), (200, 30, 40))) < 4, format_


@pytest.mark.parametrize("profile", [b"garbage", _profile("LAB"), _profile("sRGB")[:200]])
def test_a_profile_that_does_not_fit_changes_nothing(profile: bytes) -> None:
    """IMG-03: metadata never takes the pixels away."""
    source = picture()
    assert difference(made(encoded(source, "PNG", icc_profile=profile)), reference(source)) < 4
    grey = picture("L")
    assert difference(made(encoded(grey, "PNG", icc_profile=_profile("sRGB"))), reference(grey)) < 4


@pytest.mark.parametrize("format_", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_frames_the_first_is_taken(format_: str) -> None:
    frames = [picture(seed=number).point(lambda value, n=number: value // (1 + 3 * n)) for number in range(3)]
    options = {"lossless": True} if format_ == "WEBP" else {}
    data = encoded(frames[0], format_, save_all=True, append_images=frames[1:], **options)
    assert difference(made(data), reference(frames[0])) < 8 < difference(made(data), reference(frames[1]))


def test_a_large_jpeg_is_reduced_while_it_is_decoded() -> None:
    data = encoded(picture().resize((3000, 2000)), "JPEG", quality=95)
    assert difference(made(data, wish(3000, 2000)), reference(decoded(data))) < 4


def test_what_no_webp_can_hold_says_so() -> None:
    data = encoded(Image.new("RGB", (1, 1000)), "PNG")
    assert (
        resize_image(data, wish(1, 1000)) == f"32 x 32000 pixels are more than the {WEBP_SIDE_MAX_PX} of a WebP's side"
    )


def test_a_broken_file_says_why() -> None:
    assert str(resize_image(b"no image", wish())).startswith("UnidentifiedImageError")


def test_odd_files_give_an_image_or_a_reason_and_the_same_each_time() -> None:
    fates = {"image": 0, "reason": 0}
    generated = [(name, data) for name, data in odd_images() if not name.startswith("photo")]
    for name, data in generated:
        verdict = verify_image(data, POLICY)
        asked = wish(verdict.width_px, verdict.height_px) if verdict.reason is None else wish()
        result = resize_image(data, asked)
        assert result == resize_image(data, asked), name
        fates["reason" if isinstance(result, str) else "image"] += 1
    assert fates["image"] > 150
    assert fates["reason"] > 50
