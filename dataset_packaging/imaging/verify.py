"""The integrity policy: from the bytes of one object to a verdict about one image.

Everything here is pure: no clock, no files, no network. What an image does wrong is data (a `Verdict`), never an
exception; an exception that leaves this module is a fault of the program.
"""

from __future__ import annotations

from PIL import Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile

from dataset_packaging.imaging.attempt import Fault, Finding, attempt
from dataset_packaging.imaging.header import estimate_decoded_bytes, read_header, sniff_format
from dataset_packaging.imaging.jpeg import check_jpeg, header_warnings
from dataset_packaging.imaging.metadata import metadata_warnings
from dataset_packaging.imaging.opening import open_image, openers, unreadable_formats
from dataset_packaging.imaging.pillow_state import pillow_held
from dataset_packaging.imaging.png import check_png
from dataset_packaging.imaging.policy import POLICY_VERSION, ImagePolicy, Verdict
from dataset_packaging.imaging.probe import HeaderSize, probe_header
from dataset_packaging.imaging.shown import orientation_to_apply, stored_size, tiff_orientation, turned
from dataset_packaging.imaging.structure import ends_early, is_unsupported_variant
from dataset_packaging.imaging.webp import check_webp

__all__ = [
    "POLICY_VERSION",
    "HeaderSize",
    "ImagePolicy",
    "Verdict",
    "estimate_decoded_bytes",
    "probe_header",
    "unreadable_formats",
    "verify_image",
]

_MAX_ATTEMPTS = 8


def verify_image(data: bytes | memoryview, policy: ImagePolicy) -> Verdict:
    """Decide whether these bytes are a whole image that the policy admits.

    Pure and thread-safe; the decoders release the GIL. Memory: one decode (see ``estimate_decoded_bytes``), less where
    a fast check stands in for it. Never raises for anything that the image did, including exhausted memory or
    recursion; KeyboardInterrupt and SystemExit pass.

    Raises:
        RuntimeError: another thread kept changing Pillow's switches, so that no verdict could be trusted.
        ValueError: the policy names a format that this installation cannot read.
    """
    if not len(data):
        return Verdict("empty_object", "0 bytes")
    if len(data) > policy.max_bytes:
        return Verdict("too_large", f"{len(data)} bytes exceed max_bytes {policy.max_bytes}", sniff_format(data))
    openers(policy.formats)
    for _ in range(_MAX_ATTEMPTS):
        with pillow_held(policy.max_pixels) as hold:
            verdict = _judge(data, policy)
            if hold.undisturbed():
                return verdict
    raise RuntimeError("another thread keeps changing Image.MAX_IMAGE_PIXELS or ImageFile.LOAD_TRUNCATED_IMAGES")


def _judge(data: bytes | memoryview, policy: ImagePolicy) -> Verdict:
    """Open, check and describe one image while Pillow's switches are held."""
    image = attempt(lambda: open_image(data, policy.formats))
    if isinstance(image, Fault):
        return _refusal(image, data, policy)
    if image.format not in policy.formats:
        return _rejected("unsupported_format", f"{image.format} is not among the formats of the dataset", data)
    width_px, height_px = image.size
    if width_px * height_px > policy.max_pixels:
        detail = f"{width_px} x {height_px} pixels exceed max_pixels {policy.max_pixels}"
        return _rejected("too_many_pixels", detail, data)
    stored = attempt(lambda: stored_size(image))
    raw_orientation = attempt(lambda: tiff_orientation(image))
    finding = _check_pixels(data, image, policy)
    if finding.damage:
        return _rejected(_kind_of_damage(data), finding.damage, data)
    if finding.needs_referee:
        loaded = attempt(image.load)
        if isinstance(loaded, Fault):
            return _refusal(loaded, data, policy)
    return _acceptance(
        image,
        policy,
        image.size if isinstance(stored, Fault) else stored,
        None if isinstance(raw_orientation, Fault) else raw_orientation,
        finding.warnings,
    )


def _check_pixels(data: bytes | memoryview, image: ImageFile, policy: ImagePolicy) -> Finding:
    """Run the strict check of the image's format, where there is one; without one, Pillow alone decides."""
    if image.format in ("JPEG", "MPO"):
        if policy.integrity == "strict":
            return check_jpeg(data, *image.size)
        return Finding(needs_referee=True, warnings=header_warnings(data))
    if image.format == "PNG":
        if policy.integrity == "strict":
            return check_png(data)
        return Finding(needs_referee=True, warnings=("missing_iend",) if ends_early(data, "PNG") else ())
    if image.format == "WEBP" and policy.integrity == "strict":
        return check_webp(data, *image.size)
    return Finding(needs_referee=True)


def _acceptance(
    image: ImageFile,
    policy: ImagePolicy,
    stored: tuple[int, int],
    raw_orientation: int | None,
    warnings: tuple[str, ...],
) -> Verdict:
    """Describe an image whose pixels are whole. The number of frames comes last: counting may move the image."""
    mode, size = image.mode, image.size
    warnings += metadata_warnings(image)
    transparent = attempt(lambda: image.has_transparency_data)
    orientation = attempt(lambda: orientation_to_apply(image))
    frames = attempt(lambda: int(getattr(image, "n_frames", 1)))
    if isinstance(orientation, Fault):
        orientation, warnings = 1, (*warnings, "bad_exif")
    if isinstance(frames, Fault):
        frames, warnings = 1, (*warnings, "unknown_frame_count")
    shown = stored if policy.orientation == "stored" else turned(size, orientation)
    return Verdict(
        reason=None,
        format=image.format or "",
        mode=mode,
        frames=frames,
        stored_width_px=stored[0],
        stored_height_px=stored[1],
        width_px=shown[0],
        height_px=shown[1],
        exif_orientation=orientation if raw_orientation is None else raw_orientation,
        is_rgba=transparent is True,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _refusal(fault: Fault, data: bytes | memoryview, policy: ImagePolicy) -> Verdict:
    """Name the reason for what a decoder raised: by exception class first, then by the structure of the file.

    A file that carries the signature of an admitted format is damaged (``truncated_image`` where its structure ends
    early, else ``corrupt_image``), unless it is a variant that no decoder here supports; any other is unsupported.
    """
    format_name, detail = sniff_format(data), fault.describe()
    if isinstance(fault.error, UnidentifiedImageError):
        detail = "UnidentifiedImageError: no admitted format can read the header"  # Pillow's text names our file object
    if isinstance(fault.error, Image.DecompressionBombError):
        reason = "too_many_pixels"
    elif isinstance(fault.error, MemoryError):
        reason = "decoder_crashed"
    elif (
        isinstance(fault.error, NotImplementedError)
        or (isinstance(fault.error, UnidentifiedImageError) and not _admits(policy, format_name))
        or is_unsupported_variant(data, format_name)
    ):
        reason = "unsupported_format"
    else:
        reason = _kind_of_damage(data)
    return _rejected(reason, detail, data)


def _kind_of_damage(data: bytes | memoryview) -> str:
    return "truncated_image" if ends_early(data, sniff_format(data)) else "corrupt_image"


def _rejected(reason: str, detail: str, data: bytes | memoryview) -> Verdict:
    """Build the verdict of a refused image, with what its header claims."""
    header = read_header(data)
    return Verdict(
        reason,
        detail,
        header.format,
        stored_width_px=header.width_px,
        stored_height_px=header.height_px,
    )


def _admits(policy: ImagePolicy, format_name: str) -> bool:
    return format_name in policy.formats or (format_name == "JPEG" and "MPO" in policy.formats)
