"""The example dataset holds what it is there to show, under licences that allow it."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from dataset_packaging.config import load_dataset

EXAMPLES = Path(__file__).parents[1] / "examples"
PHOTOS = EXAMPLES / "photos"
PATH_ALIASES = ("s3_image_path", "s3_path", "image_s3_uri", "image_uri", "url")
MOST_BYTES = 6 * 1024 * 1024


def _pictures() -> list[Path]:
    return sorted(path for path in PHOTOS.iterdir() if path.suffix != ".md")


def _rows() -> list[dict[str, object]]:
    rows = []
    for line in (EXAMPLES / "photos.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            assert line.startswith('{"id": "rocket-crash-report"')
    return rows


def test_every_picture_has_its_source_and_licence():
    readme = (PHOTOS / "README.md").read_text(encoding="utf-8")
    sources, made_from = readme.split("| file | made from | how |")
    licensed = set(re.findall(r"^\| `([^`]+)` \|", sources, re.MULTILINE))
    rows = [line.split("|") for line in made_from.splitlines() if line.startswith("| ")]
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row[1])}
    origins = {name for row in rows for name in re.findall(r"`([^`]+)`", row[2] if "`" in row[2] else row[1])}
    assert listed == {path.name for path in _pictures()}
    assert origins <= licensed


def test_the_pictures_are_few_and_small():
    assert 20 <= len(_pictures()) <= 30
    assert sum(path.stat().st_size for path in _pictures()) <= MOST_BYTES


def test_the_manifest_shows_what_manifests_are_like():
    rows = _rows()
    lines = (EXAMPLES / "photos.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) - len(rows) == 1, "one broken line"
    keys = [row["id"] for row in rows]
    assert len(keys) - len(set(keys)) == 1, "one duplicate key"
    assert {alias for row in rows for alias in PATH_ALIASES if alias in row} == set(PATH_ALIASES)
    assert {row[alias] for row in rows for alias in PATH_ALIASES if alias in row} == {path.name for path in _pictures()}
    assert any("caption" not in row and "caption" in row["meta"] for row in rows), "captions nested in metadata"
    assert any("width" not in row for row in rows), "sizes that must be probed"
    assert all("gemini_response_full" in row for row in rows)


def test_the_pictures_show_what_pictures_are_like():
    opened = {path.name: Image.open(path) for path in _pictures()}
    assert {"JPEG", "PNG", "WEBP", "GIF", "TIFF"} == {picture.format for picture in opened.values()}
    assert {"RGB", "RGBA", "L", "CMYK", "P"} == {picture.mode for picture in opened.values()}
    assert opened["rocket_sideways.jpg"].getexif()[0x0112] == 6
    assert opened["retina_cutout.png"].has_transparency_data
    for picture in opened.values():
        picture.close()


def test_the_example_is_packed_next_to_the_folder_of_examples():
    dataset = load_dataset(EXAMPLES / "photos.yaml")
    demo = (EXAMPLES.parent / "demo").as_uri()
    assert dataset.manifest == ((EXAMPLES / "photos.jsonl").as_uri(),)
    assert dataset.output_prefix == f"{demo}/photos_parquet"
    assert dataset.sidecar_prefix == f"{demo}/photos_sidecar"
    assert dataset.work_prefix == f"{demo}/photos_work"


def test_only_the_example_itself_is_a_dataset_of_the_folder():
    assert [path.name for path in EXAMPLES.glob("*.yaml")] == ["photos.yaml"]


@pytest.mark.parametrize("template", sorted((EXAMPLES / "templates").glob("*.yaml")), ids=lambda path: path.stem)
def test_templates_are_valid_and_annotated(template: Path):
    dataset = load_dataset(template, environ={})
    assert dataset.sidecar.reference is not None
    assert template.read_text().count("# ") >= 8


def test_the_s3_template_shows_grants_schedule_and_the_house_family():
    dataset = load_dataset(EXAMPLES / "templates" / "pexels_s3.yaml", environ={})
    assert dataset.access_grants is not None
    assert dataset.schedule is not None
    assert dataset.manifest[0].endswith(".jsonl.zst")
    assert dataset.sidecar.reference == (
        "s3://core-cn-oss.canva.com/dataset/sidecar_parquet_all_in_one_0529/"
        "getty_vtx_blip_sd_new_20260701_crop_512_1024/"
    )
