"""Manifests over small crops of real photographs: in the styles of LAION and COCO, a scraper's, and nastier ones."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dataset_packaging_tests.cli.command import ROOT
from dataset_packaging_tests.cli.unfamiliar import write_lines
from dataset_packaging_tests.packing.photo_dataset import photo

PHOTOS = 24


def _write_photo(folder: Path, number: int, stem: str) -> tuple[str, int, int]:
    """Writes a photograph and returns its name, width and height."""
    made = photo(number)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{stem}.{made.suffix}"
    (folder / name).write_bytes(made.data)
    return name, made.width_px, made.height_px


def write_laion_table(folder: Path) -> Path:
    """LAION's columns as a Parquet export has them: floats for whole numbers, hashes, scores, upper and lower case."""
    rows = []
    for number in range(PHOTOS):
        name, width, height = _write_photo(folder / "images", number, f"{number:09d}")
        rows.append(
            {
                "url": f"https://cdn.example.com/p/{number}.jpg?w=800&sig=a%2Fb",
                "TEXT": f"Photograph {number} – buy now at Example™",
                "WIDTH": float(width),
                "HEIGHT": float(height),
                "similarity": 0.31 + number / 1000,
                "hash": -(10**18) + number,
                "pwatermark": 0.05,
                "punsafe": 1.2e-05 * number,
                "NSFW": "UNLIKELY" if number % 5 else None,
                "LANGUAGE": "en",
                "AESTHETIC_SCORE": 5.1,
                "image_path": f"images/{name}",
            }
        )
    return write_lines(folder / "part-00000-laion.jsonl", rows)


def write_coco_images(folder: Path) -> Path:
    """One object for each image: captions, boxes and segments nested below it."""
    rows = []
    for number in range(PHOTOS):
        name, width, height = _write_photo(folder / "val2017", number, f"{139 + number:012d}")
        captions = [{"id": 1000 * number + n, "caption": f"Caption {n} of image {number}."} for n in range(5)]
        box = {"category_id": 1, "bbox": [1.5, 2.5, 30.0, 40.25], "segmentation": [[1.0, 2.0, 3.0, 4.0]], "iscrowd": 0}
        rows.append(
            {
                "id": 139 + number,
                "file_name": name,
                "width": width,
                "height": height,
                "license": 2,
                "coco_url": f"http://images.cocodataset.org/val2017/{name}",
                "date_captured": "2013-11-21 01:34:01",
                "captions": captions,
                "annotations": [box] * (number % 3),
            }
        )
    return write_lines(folder / "instances_val2017.jsonl", rows)


def write_scraped_mix(folder: Path) -> Path:
    """What a scraper leaves: no path, no title, texts for numbers, a list for a text, other keys in every row."""
    rows: list[Mapping[str, Any] | str] = []
    for number in range(PHOTOS):
        name, width, height = _write_photo(folder / "crawl" / f"{number % 3}", number, f"img {number} #1")
        path: str | None = f"crawl/{number % 3}/{name}"
        row: dict[str, Any] = {
            "uuid": f"{number:032x}",
            "file": None if number in (4, 11) else "" if number == 17 else path,
            "w": str(width) if number % 2 else width,
            "h": str(height) if number % 2 else height,
            "title": [f"Title {number}", "second"]
            if number % 4 == 0
            else None
            if number % 4 == 1
            else f"Title {number}",
            "likes": number if number % 3 else f"{number}k",
            "posted": {"at": 1700000000 + number, "by": {"name": f"user{number}", "verified": bool(number % 2)}},
            "raw_html": "<div>" + "x" * 3000 + "</div>",
        }
        if number % 6 == 0:
            row[f"utm_{number}"] = "campaign"
        rows.append(row)
    rows.insert(5, "<html>429 Too Many Requests</html>")
    return write_lines(folder / "dump.jsonl", rows)


def write_windows_list(folder: Path) -> Path:
    """What a Windows tool saved: a byte order mark, CRLF, backslashes, numbers as texts, lists in lists."""
    rows = []
    for number in range(PHOTOS):
        name, width, height = _write_photo(folder / "crawl" / f"{number % 3}", number, f"img {number}")
        rows.append(
            {
                "Id": number + 1 if number % 2 else str(number + 1),
                "FilePath": f"crawl\\{number % 3}\\{name}",
                "Width": str(width),
                "Height": f"{height}.0" if number % 3 == 0 else str(height),
                "captions": [[f"Caption {number}", "second"], ["third"]],
                "title": f"Title {number}",
                "aesthetic_score": str(number / 10) if number % 2 else number / 10,
                "watermark": "yes" if number % 2 else "no",
            }
        )
    text = "".join(f"{json.dumps(row)}\r\n" for row in rows)
    path = folder / "list.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    return path


def write_wide_addresses(folder: Path) -> Path:
    """Percent-encoded file addresses, some null, three hundred features, one name in two cases, types that mix."""
    rows: list[Mapping[str, Any] | str] = []
    for number in range(PHOTOS):
        name, _, _ = _write_photo(folder / "my photos", number, f"näh #{number} 100%")
        alts: tuple[Any, ...] = (f"alt {number}", ["x", f"alt {number}"], number)
        rows.append(
            {
                "uri": None if number in (3, 9) else (folder / "my photos" / name).as_uri(),
                "text": {"en": f"English {number}", "de": None if number % 2 else f"Deutsch {number}"},
                "alt": alts[number % 3],
                "tags": f"a, b, {number}",
                "Caption": f"C{number}",
                "caption": f"c{number}",
                "a.b": 1,
                "a": {"b": 2},
                **{f"feature_{n:03}": None if (number + n) % 7 == 0 else number * n for n in range(300)},
            }
        )
    return write_lines(folder / "wide.jsonl", rows)


def rewrite_paths(manifest: Path, field: str) -> None:
    """Rewrites a manifest with the program of the documentation."""
    _, chapter = (ROOT / "docs/cli.md").read_text(encoding="utf-8").split("### Paths that are spelled otherwise\n")
    (program,) = re.findall(r"```python\n(.*?)```", chapter, re.DOTALL)[:1]
    places = {'"manifest.jsonl"': str(manifest), '"rewritten.jsonl"': f"{manifest}.new", '"path"': field}
    for written, meant in places.items():
        assert program.count(written) == 1
        program = program.replace(written, repr(meant))
    exec(program, {})
    shutil.move(f"{manifest}.new", manifest)
