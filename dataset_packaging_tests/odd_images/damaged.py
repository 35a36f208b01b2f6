"""Files that are cut, flipped, mended wrongly or lie in their headers, and files that are no images at all."""

import gzip
import random
import struct
import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO

from dataset_packaging_tests.odd_images.encodings import Named, encoded, exif, picture
from dataset_packaging_tests.odd_images.png import GREY, RGB, SIGNATURE, Png, chunk, header, pattern


def _clean() -> dict[str, bytes]:
    frames = [picture("P", seed=number) for number in range(3)]
    return {
        "baseline.jpg": encoded(picture(), "JPEG", quality=85),
        "progressive.jpg": encoded(picture(), "JPEG", progressive=True),
        "plain.png": encoded(picture(), "PNG"),
        "alpha.png": encoded(picture("RGBA"), "PNG"),
        "lossy.webp": encoded(picture(), "WEBP"),
        "lossless.webp": encoded(picture(), "WEBP", lossless=True),
        "animated.gif": encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "lzw.tif": encoded(picture(), "TIFF", compression="tiff_lzw"),
        "plain.bmp": encoded(picture(), "BMP"),
    }


def cuts() -> Iterator[Named]:
    """Yields every clean file, cut at the end by a few bytes and at tenths of its length."""
    for name, data in _clean().items():
        stem, suffix = name.split(".")
        for missing in (1, 2, 12, 16):
            yield f"{stem}_without_last_{missing}.{suffix}", data[:-missing]
        for tenths in (1, 3, 5, 7, 9):
            yield f"{stem}_cut_at_{tenths}0_percent.{suffix}", data[: len(data) * tenths // 10]


def flips() -> Iterator[Named]:
    """Yields every clean file with one bit flipped, a run zeroed or a run dropped, at seeded places."""
    for name, data in _clean().items():
        stem, suffix = name.split(".")
        chance = random.Random(name)
        for number in range(5):
            place = chance.randrange(len(data) // 10, len(data))
            bit = bytes([data[place] ^ 1 << chance.randrange(8)])
            yield f"{stem}_flipped_{number}.{suffix}", data[:place] + bit + data[place + 1 :]
            yield f"{stem}_zeroed_{number}.{suffix}", data[:place] + bytes(64) + data[place + 64 :]
            yield f"{stem}_dropped_{number}.{suffix}", data[:place] + data[place + 32 :]


def png_faults() -> Iterator[Named]:
    """Yields PNG files whose chunks are wrong one at a time."""
    whole = Png(pattern(40, 30, RGB, 8), 8, RGB)
    stream = zlib.compress(whole.raw())
    data, end = chunk(b"IDAT", stream), chunk(b"IEND", b"")
    text = chunk(b"tEXt", b"Comment\0late")
    yield "crc_of_data_wrong.png", whole.with_data([chunk(b"IDAT", stream, crc_xor=1)], end)
    yield "crc_of_end_wrong.png", whole.with_data([data], chunk(b"IEND", b"", crc_xor=1))
    yield "crc_after_data_wrong.png", whole.with_data([data], chunk(b"tEXt", b"a\0b", crc_xor=1) + end)
    yield "no_end.png", whole.with_data([data], b"")
    yield "adler_wrong.png", whole.with_data([chunk(b"IDAT", stream[:-4] + b"\0\0\0\0")], end)
    yield "adler_missing.png", whole.with_data([chunk(b"IDAT", stream[:-4])], end)
    yield "data_short.png", whole.with_data([chunk(b"IDAT", zlib.compress(whole.raw()[:-50]))], end)
    yield "data_long.png", whole.with_data([chunk(b"IDAT", zlib.compress(whole.raw() + bytes(50)))], end)
    yield "bytes_after_stream.png", whole.with_data([chunk(b"IDAT", stream + b"more")], end)
    yield "filter_type_wrong.png", whole.with_data([chunk(b"IDAT", zlib.compress(b"\x09" + whole.raw()[1:]))], end)
    yield "empty_data_chunk.png", whole.with_data([chunk(b"IDAT", b""), data, chunk(b"IDAT", b"")], end)
    yield "no_data.png", whole.with_data([], end)
    yield "text_after_data.png", whole.with_data([data], text + end)
    yield "exif_after_data.png", whole.with_data([data], chunk(b"eXIf", exif(6).tobytes()[6:]) + end)
    yield "transparency_after_data.png", whole.with_data([data], chunk(b"tRNS", bytes(6)) + end)
    yield "trailing_bytes.png", whole.with_data([data], end + b"trailing")
    yield "unknown_critical_chunk.png", whole.with_data([chunk(b"ABCD", b"?"), data], end)
    yield "garbage_exif.png", whole.with_data([chunk(b"eXIf", b"garbage"), data], end)
    yield "garbage_profile.png", whole.with_data([chunk(b"iCCP", b"p\0\0" + b"\x78\x9c broken"), data], end)
    bomb = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(80_000_000)))
    yield "text_bomb.png", whole.with_data([bomb, data], end)


def jpeg_faults() -> Iterator[Named]:
    """Yields JPEG files with damaged metadata, stray bytes and tails."""
    data = encoded(picture(), "JPEG")
    start, rest = data[:2], data[2:]

    def segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r:Description tiff:Orientation="6"/>\xff\xfe</x:xmpmeta>'
    yield "garbage_exif.jpg", start + segment(0xE1, b"Exif\0\0garbage garbage garbage") + rest
    yield "blank_exif.jpg", start + segment(0xE1, b"Exif\0\0") + rest
    yield "two_exifs.jpg", start + 2 * segment(0xE1, b"Exif\0\0" + exif(6).tobytes()[6:]) + rest
    yield "exif_with_far_offset.jpg", start + segment(0xE1, b"Exif\0\0MM\0*\x7f\xff\xff\xff") + rest
    yield "xmp_not_utf8.jpg", start + segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp) + rest
    yield "garbage_profile.jpg", start + segment(0xE2, b"ICC_PROFILE\0\1\1" + b"not a profile" * 9) + rest
    yield "profile_in_missing_parts.jpg", start + segment(0xE2, b"ICC_PROFILE\0\3\5" + bytes(40)) + rest
    yield "stray_bytes_before_marker.jpg", start + b"\0\0\0" + rest
    yield "padding_before_marker.jpg", start + b"\xff\xff\xff" + rest
    yield "text_after_end.jpg", data + b"trailing text"
    yield "zip_after_end.jpg", data + _zip()
    yield "second_jpeg_after_end.jpg", data + encoded(picture(seed=5), "JPEG")
    yield "newline_before.jpg", b"\n" + data
    yield "bom_before.png", b"\xef\xbb\xbf" + encoded(picture(), "PNG")
    yield "two_end_markers.jpg", data + b"\xff\xd9"


def header_lies() -> Iterator[Named]:
    """Yields bombs: headers that promise more pixels than any limit allows."""
    tiny = zlib.compress(bytes(1000))
    for width, height in ((60000, 60000), (2**31 - 1, 2**31 - 1), (20000, 20000), (0, 10)):
        data = chunk(b"IDAT", tiny) + chunk(b"IEND", b"")
        yield f"bomb_{width}x{height}.png", SIGNATURE + header(width, height, 8, GREY) + data
    gif = encoded(picture("P"), "GIF")
    yield "bomb.gif", gif[:6] + struct.pack("<HH", 65535, 65535) + gif[10:]
    bmp = encoded(picture(), "BMP")
    yield "bomb.bmp", bmp[:18] + struct.pack("<ii", 60000, 60000) + bmp[26:]
    jpeg = encoded(picture(), "JPEG")
    size = jpeg.index(b"\xff\xc0") + 5
    yield "bomb.jpg", jpeg[:size] + struct.pack(">HH", 65500, 65500) + jpeg[size + 4 :]
    yield "taller_than_its_data.jpg", jpeg[:size] + struct.pack(">H", 500) + jpeg[size + 2 :]
    canvas = b"VP8X" + struct.pack("<I", 10) + b"\0" * 4 + (16382).to_bytes(3, "little") * 2
    yield "bomb.webp", b"RIFF" + struct.pack("<I", len(canvas) + 4) + b"WEBP" + canvas


def no_images() -> Iterator[Named]:
    """Yields what stands under image names in real buckets and is none, and formats that are not allowed."""
    yield "error_page.jpg", b"<!DOCTYPE html><html><body><h1>404 Not Found</h1></body></html>"
    yield "store_error.jpg", b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>'
    yield "drawing.svg", b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
    yield "lfs_pointer.png", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
    yield "empty.jpg", b""
    yield "one_byte.jpg", b"\xff"
    yield "zeros.jpg", bytes(4096)
    yield "noise.png", random.Random(1).randbytes(4096)
    yield "json.jpg", b'{"error": "rate limited"}'
    yield "text.webp", "kein Bild, nur Text\n".encode("utf-16")
    yield "document.pdf", b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n"
    yield "archive.jpg", _zip()
    yield "compressed.jpg", gzip.compress(encoded(picture(), "JPEG"), mtime=0)
    yield "postscript.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    yield "phone.heic", struct.pack(">I", 24) + b"ftypheic" + bytes(4) + b"mif1heic" + bytes(100)
    for magic_name, magic in (("jpg", b"\xff\xd8\xff"), ("png", SIGNATURE), ("gif", b"GIF89a"), ("tif", b"II*\0")):
        yield f"magic_only.{magic_name}", magic
    yield "magic_only.webp", b"RIFF\x10\0\0\0WEBPVP8 "
    for format_, suffix in (("PPM", "ppm"), ("TGA", "tga"), ("PCX", "pcx"), ("ICO", "ico"), ("JPEG2000", "jp2")):
        yield f"not_allowed.{suffix}", encoded(picture(), format_)
    yield "not_allowed.avif", encoded(picture(), "AVIF", speed=10)
    yield "portable_pixmap_named.jpg", encoded(picture("L"), "PPM")
    yield "png_named.jpg", encoded(picture(), "PNG")
    yield "jpeg_named.png", encoded(picture(), "JPEG")
    yield "webp_named.gif", encoded(picture(), "WEBP")


def _zip() -> bytes:
    target = BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(zipfile.ZipInfo("a.txt"), "a")
    return target.getvalue()
