"""The floors: two bare processes that read and verify every file, and write nothing.

`strict` takes the fastest strict check known for each format, without reasons, sizes or records; `pillow` is
`Image.load()`. Usage: python -m benchmarks.floors strict|pillow MANIFEST
"""

import io
import json
import multiprocessing
import struct
import sys
import time
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

_PROCESSES = 2
_COST_OF_KIND = {"png": 4, "webp": 8, "progressive": 4}
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def verify_strictly(data: bytes) -> None:
    """Raises for damage; the size and the transparency come from the header."""
    import imagecodecs
    import simplejpeg
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        _ = image.size, image.has_transparency_data
        if image.format == "JPEG":
            simplejpeg.decode_jpeg(data, "GRAY", min_height=1, min_width=1, strict=True)
        elif image.format == "PNG":
            _inflate_png(data)
        elif image.format == "WEBP":
            imagecodecs.webp_decode(data)
        else:
            image.load()


def verify_with_pillow(data: bytes) -> None:
    """Raises for what Pillow refuses."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        image.load()
        _ = image.size, image.has_transparency_data


def _inflate_png(data: bytes) -> None:
    """Checks every CRC, inflates the whole of a PNG that is not interlaced, checks length and filter bytes."""
    from isal import isal_zlib

    view = memoryview(data)
    position, header, pixels = 8, b"", []
    while position < len(view):
        (length,) = struct.unpack_from(">I", view, position)
        name, end = bytes(view[position + 4 : position + 8]), position + 8 + length
        if isal_zlib.crc32(view[position + 4 : end]) != int.from_bytes(view[end : end + 4], "big"):
            raise ValueError("checksum")
        if name == b"IHDR":
            header = bytes(view[position + 8 : end])
        elif name == b"IDAT":
            pixels.append(view[position + 8 : end])
        elif name == b"IEND":
            break
        position = end + 4
    width_px, height_px, depth, colour = struct.unpack_from(">IIBB", header)
    inflater = isal_zlib.decompressobj()
    raw = b"".join([inflater.decompress(piece) for piece in pixels])
    row_bytes = 1 + (width_px * _CHANNELS[colour] * depth + 7) // 8
    if not inflater.eof or len(raw) != height_px * row_bytes or max(memoryview(raw)[::row_bytes]) > 4:
        raise ValueError("raster")


_CHECKS = {"strict": verify_strictly, "pillow": verify_with_pillow}


def _work(
    mode: str,
    paths: list[str],
    following: "Synchronized[int]",
    refused: "Synchronized[int]",
    cpu_s: "Synchronized[float]",
    start: Barrier,
) -> None:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    check = _CHECKS[mode]
    try:
        _warm(check, paths[-1])
    except BaseException:
        start.abort()  # else the others would wait for this one for ever
        raise
    start.wait()
    began = time.process_time()
    while True:
        with following.get_lock():
            number = following.value
            following.value += 1
        if number >= len(paths):
            break
        try:
            check(Path(paths[number]).read_bytes())
        except Exception:  # whatever a decoder raises is a refusal
            with refused.get_lock():
                refused.value += 1
    with cpu_s.get_lock():
        cpu_s.value += time.process_time() - began


def _warm(check: Any, path: str) -> None:
    """Imports the decoders before the clock starts."""
    import imagecodecs
    import simplejpeg  # noqa: F401
    from isal import isal_zlib  # noqa: F401

    _ = imagecodecs.webp_decode
    try:
        check(Path(path).read_bytes())
    except Exception:  # the same
        return


def main(mode: str, manifest: str) -> None:
    """Runs one floor and prints its figures as one line of JSON."""
    rows = [json.loads(line) for line in Path(manifest).read_text().splitlines()]
    rows.sort(key=lambda row: -row["width"] * row["height"] * _COST_OF_KIND.get(row["metadata"]["kind"], 1))
    paths = [row["s3_image_path"].removeprefix("file://") for row in rows]
    context = multiprocessing.get_context("fork")
    following, refused, start = context.Value("i", 0), context.Value("i", 0), context.Barrier(_PROCESSES + 1)
    cpu_s = context.Value("d", 0.0)
    workers = [
        context.Process(target=_work, args=(mode, paths, following, refused, cpu_s, start)) for _ in range(_PROCESSES)
    ]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    job_s = time.perf_counter() - began
    figures = {"job_s": job_s, "job_cpu_s": cpu_s.value, "rows": len(paths) - refused.value, "refused": refused.value}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
