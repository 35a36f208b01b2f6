"""Manifests as a newcomer brings them: LAION-style, img2dataset-style, COCO captions, scraped."""

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image


def write_lines(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    """Write JSON lines; a text stands as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def draw_image(path: Path, width_px: int, height_px: int, seed: int) -> bytes:
    """Draw a small picture and return its file's bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = tuple(random.Random(seed).randrange(256) for _ in range(3))
    Image.new("RGB", (width_px, height_px), colour).save(path)
    return path.read_bytes()


def write_laion(folder: Path, *, with_paths: bool) -> Path:
    """LAION-style metadata: upper-case names, scores, web addresses, and with paths of downloaded files or without."""
    rows = []
    for number in range(60):
        row = {
            "SAMPLE_ID": 10**13 + number,
            "URL": f"https://cdn.example.com/{number}.jpg",
            "TEXT": f"A photograph, number {number}",
            "WIDTH": 40 + number,
            "HEIGHT": 50,
            "LICENSE": "?",
            "NSFW": "UNLIKELY",
            "similarity": 0.3 + number / 1000,
            "AESTHETIC_SCORE": 4.5 + number / 100,
        }
        if with_paths:
            draw_image(folder / "downloads" / f"{number:05}.png", 40 + number, 50, number)
            row["image_path"] = f"{number:05}.png"
        rows.append(row)
    return write_lines(folder / "laion2b-part-00000.jsonl", rows)


def write_img2dataset(folder: Path) -> Path:
    """img2dataset's metadata: original and stored sizes, a true sha256, an embedding."""
    rows = []
    for number in range(40):
        data = draw_image(folder / "00000" / f"{number:09}.png", 32, 24 + number, number)
        rows.append(
            {
                "key": f"{number:09}",
                "image_path": f"00000/{number:09}.png",
                "url": f"https://example.com/{number}.jpg",
                "caption": f"caption {number}",
                "status": "success",
                "error_message": None,
                "original_width": 640,
                "original_height": 480,
                "width": 32,
                "height": 24 + number,
                "sha256": hashlib.sha256(data).hexdigest(),
                "md5": "0" * 32,
                "clip_embedding": [number / 7] * 512,
            }
        )
    return write_lines(folder / "metadata.jsonl", rows)


def write_coco_captions(folder: Path) -> Path:
    """COCO captions, joined to lines: five captions for each image, a name without its folder, a web address."""
    rows = []
    for image in range(12):
        name = f"{image:012}.png"
        draw_image(folder / "train2017" / name, 64, 48 + image, image)
        for caption in range(5):
            rows.append(
                {
                    "id": 5 * image + caption,
                    "image_id": image,
                    "caption": f"caption {caption} of image {image}",
                    "file_name": name,
                    "coco_url": f"http://images.cocodataset.org/train2017/{name}",
                    "height": 48 + image,
                    "width": 64,
                    "license": 3,
                }
            )
    return write_lines(folder / "annotations" / "captions_train2017.jsonl", rows)


def write_scraped(folder: Path) -> Path:
    """A scraper's output: null paths, two spellings of the path, thumbnails, nested texts, raw pages, a broken line."""
    rows: list[Mapping[str, Any] | str] = []
    for number in range(50):
        name = f"{number}.png"
        draw_image(folder / "store" / name, 30, 30 + number, number)
        path = str(folder / "store" / name)
        rows.append(
            {
                "_id": f"{number:024x}",
                "s3_path": None if number % 3 == 0 else path,
                "image_uri": None if number % 25 == 0 else path,
                "thumbnail_path": f"/thumbs/{name}",
                "meta": {"alt": f"alt text {number}", "title": None if number % 2 else f"Title {number}"},
                "tags": ["a", "b"] if number % 2 else [],
                "aiGenerated": number % 2,
                "score": {"aesthetic": str(number / 10)},
                "filter_clarity": {"score": 0.5, "pass": True},
                "html": "<html>" + "y" * 4000,
                "ünï cödé: #x": "v",
                "no": "x",
                "flat.name": 1,
            }
        )
    rows.insert(7, '{"broken": ')
    return write_lines(folder / "crawl-2026-01.jsonl", rows)
