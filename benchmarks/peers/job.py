"""What the peers share: the manifest's rows, Pillow's verdict, two processes that take rows in turn, the figures."""

import io
import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

Image.MAX_IMAGE_PIXELS = None

PROCESSES = 2


def read_rows(manifest: str) -> list[dict[str, Any]]:
    """Returns the manifest's rows with `path` in place of the URI and `metadata` as text."""
    rows = [json.loads(line) for line in Path(manifest).read_text().splitlines()]
    return [
        {
            "key": row["id"],
            "path": row["s3_image_path"].removeprefix("file://"),
            "caption": row["caption"],
            "metadata": json.dumps(row["metadata"]),
        }
        for row in rows
    ]


def verify(data: bytes) -> tuple[int, int, bool]:
    """Returns width, height and whether there is transparency. Raises for what Pillow refuses."""
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return image.width, image.height, image.has_transparency_data


def bucket_of(width_px: int, height_px: int) -> str:
    """Returns a folder for the shape: five areas and some ratios are enough to make the work alike."""
    scale = sum(width_px * height_px > side * side for side in (512, 1024, 1536, 2048))
    return f"{scale}-{round(width_px / height_px * 4)}"


def tell(job_s: float, rows: int, packed: int) -> None:
    """Prints the figures as one line of JSON."""
    print(json.dumps({"job_s": job_s, "rows": packed, "refused": rows - packed}))


Write = Callable[[int, list[dict[str, Any]], Callable[[], int]], int]


def run_processes(write: Write, rows: list[dict[str, Any]]) -> None:
    """Runs `write(process, rows, following)` in each process; `following()` gives the number of the next row.

    `write` imports its library before it asks for the first row: the clock starts then. It returns the rows it packed.
    """
    context = multiprocessing.get_context("fork")
    counter = context.Value("i", 0)
    start, packed = context.Barrier(PROCESSES + 1), context.Value("i", 0)

    def work(process: int) -> None:
        started = False

        def following() -> int:
            nonlocal started
            if not started:
                started = True
                start.wait()
            with counter.get_lock():
                number = int(counter.value)
                counter.value += 1
            return number

        done = write(process, rows, following)
        with packed.get_lock():
            packed.value += done

    workers = [context.Process(target=work, args=(process,)) for process in range(PROCESSES)]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    tell(time.perf_counter() - began, len(rows), packed.value)
