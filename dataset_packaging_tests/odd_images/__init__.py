"""1,700 odd files, always the same, and a manifest that lists them."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from PIL import Image

from dataset_packaging_tests.odd_images import damaged, encodings, photographs
from dataset_packaging_tests.odd_images.encodings import Named, encoded, picture

_ODD_NAMES = (
    "with space.jpg",
    "per%20cent.jpg",
    "plus+plus.jpg",
    "hash#1.jpg",
    "question?x=1.jpg",
    "semicolon;e.jpg",
    "Grüße.jpg",  # composed, and below the same decomposed: two files
    "Gru\u0308ße.jpg",
    "写真.jpg",
    "..dots...jpg",
    "no_suffix",
    "folder/inside.jpg",
    "x" * 200 + ".jpg",
)


WHOLE = ("jpeg", "png", "other", "rotated", "size", "name", "photo")
"""The groups whose every file decodes."""


@cache
def odd_images() -> tuple[Named, ...]:
    """Returns (relative path, bytes) of each file, made once in a process."""
    return tuple(make_odd_images())


def make_odd_images() -> Iterator[Named]:
    """Yields them made anew; the order and the bytes are the same each time."""
    groups = {
        "jpeg": encodings.jpegs(),
        "png": encodings.pngs(),
        "other": encodings.others(),
        "rotated": encodings.rotations(),
        "size": encodings.sizes(),
        "cut": damaged.cuts(),
        "flipped": damaged.flips(),
        "png_fault": damaged.png_faults(),
        "jpeg_fault": damaged.jpeg_faults(),
        "lie": damaged.header_lies(),
        "no_image": damaged.no_images(),
        "photo": photographs.whole(),
        "photo_damaged": photographs.damaged(),
    }
    for group, files in groups.items():
        for name, data in files:
            yield f"{group}/{name}", data
    for number, name in enumerate(_ODD_NAMES):
        yield f"name/{name}", encoded(picture(seed=number), "JPEG")


def write_odd_images(folder: Path) -> list[str]:
    """Writes all of them below `folder` and returns their relative paths, in order."""
    names = []
    for name, data in odd_images():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        names.append(name)
    return names


def write_odd_manifest(path: Path, folder: Path, names: list[str]) -> None:
    """Writes a JSONL that lists the files by relative path, under all aliases in turn.

    A third of the rows give the size as stored (wrong for what is turned upright), a third give a wrong one, a third
    give none; one row names a file that is not there.
    """
    aliases = ("s3_image_path", "s3_path", "image_s3_uri", "image_uri", "url")
    with path.open("w", encoding="utf-8") as file:
        for number, name in enumerate([*names, "missing/not_there.jpg"]):
            row: dict[str, object] = {aliases[number % len(aliases)]: name, "caption": f"file {number}: {name}"}
            if number % 3 == 0 and (size := _size_in_header(folder / name)):
                row["width"], row["height"] = size
            elif number % 3 == 1:
                row["width"], row["height"] = 640, 480
            row["meta"] = {"number": number, "nested": {"tags": [name, None, 1.5, True]}}
            file.write(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n")


def _size_in_header(path: Path) -> tuple[int, int] | None:
    try:
        with Image.open(path) as opened:
            return opened.size
    except Exception:  # what Pillow raises for odd files is the subject of other tests
        return None
