"""Whether the EXIF, ICC and XMP blocks of an opened image are in order: faults there are warnings, never rejections."""

from __future__ import annotations

import struct

from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile

_EXIF_PREFIX = b"Exif\0\0"
_FULL_JPEG_SEGMENT_BYTES = 65_000  # EXIF longer than a segment continues in the next one
_BYTES_PER_VALUE = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
_ICC_HEADER_BYTES = 128


def metadata_warnings(image: ImageFile) -> tuple[str, ...]:
    """Name the metadata blocks that are broken: ``bad_exif``, ``bad_icc``, ``bad_xmp``, in this order. Pure."""
    exif, icc, xmp = (image.info.get(key) for key in ("exif", "icc_profile", "xmp"))
    broken = []
    if (isinstance(exif, bytes) and not _exif_is_sound(exif.removeprefix(_EXIF_PREFIX))) or _exif_is_doubled(image):
        broken.append("bad_exif")
    if "icc_profile" in image.info and not (isinstance(icc, bytes) and _icc_is_sound(icc)):
        broken.append("bad_icc")
    if isinstance(xmp, bytes) and not _xmp_is_sound(xmp):
        broken.append("bad_xmp")
    return tuple(broken)


def _exif_is_sound(block: bytes) -> bool:
    """Follow the first directory: a TIFF header, entries within the block, values within the block."""
    if block[:4] not in (b"II*\0", b"MM\0*"):
        return False
    order = "<" if block[0] == 0x49 else ">"
    try:
        (directory,) = struct.unpack_from(order + "I", block, 4)
        (count,) = struct.unpack_from(order + "H", block, directory)
        for entry in range(directory + 2, directory + 2 + 12 * count, 12):
            _, kind, values, offset = struct.unpack_from(order + "HHII", block, entry)
            length = _BYTES_PER_VALUE.get(kind, 0) * values
            if length > 4 and offset + length > len(block):
                return False
    except struct.error:
        return False
    return True


def _exif_is_doubled(image: ImageFile) -> bool:
    """Tell whether a JPEG has a second EXIF segment though the first was not full."""
    if not isinstance(image, JpegImageFile):
        return False
    lengths = [len(body) for name, body in image.applist if name == "APP1" and body.startswith(_EXIF_PREFIX)]
    return len(lengths) > 1 and lengths[0] < _FULL_JPEG_SEGMENT_BYTES


def _icc_is_sound(profile: bytes) -> bool:
    """Check the signature and the length that the profile's own header states."""
    return (
        len(profile) >= _ICC_HEADER_BYTES
        and profile[36:40] == b"acsp"
        and int.from_bytes(profile[:4], "big") <= len(profile)
    )


def _xmp_is_sound(packet: bytes) -> bool:
    """Check that the packet is text in one of the encodings that XMP allows."""
    encoding = "utf-16" if packet[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        packet.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
