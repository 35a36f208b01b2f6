"""Manifests in the styles of three public sets, over small crops of real photographs: LAION, COCO, a scraper."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
