"""A second opinion: real files with known faults, where the folder of them stands beside the repository."""

import csv
import io
from functools import cache
from pathlib import Path

import pytest
from PIL import Image, ImageOps

from dataset_packaging.imaging.verify import ImagePolicy, probe_header, verify_image
from dataset_packaging_tests.imaging.samples import CONTRACT_FORMATS

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
FORMATS = (*CONTRACT_FORMATS, "AVIF")
STRICT = ImagePolicy("strict", "upright", FORMATS, max_pixels=300_000_000, max_bytes=10**9)
LOAD = ImagePolicy("load", "upright", FORMATS, max_pixels=300_000_000, max_bytes=10**9)
NOT_IMAGES = ("manifest", "parquet")
DAMAGED_ONLY_FOR_STRICT = ("crc",)

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not beside the repository")


@cache
def entries() -> list[dict[str, str]]:
    with (CORPUS / "index.tsv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file, delimiter="\t") if row["kind"] not in NOT_IMAGES]


def test_load_is_the_verdict_of_pillow() -> None:
    for entry in entries():
        verdict = verify_image((CORPUS / entry["path"]).read_bytes(), LOAD)
        whole = entry["pillow13_open"] == entry["pillow13_load"] == "ok" and entry["fmt"] in FORMATS
        assert (verdict.reason is None) == whole, entry["path"]
        if whole:
            assert verdict.is_rgba == (entry["has_transparency"] == "True"), entry["path"]
            assert verdict.mode == entry["mode"], entry["path"]
            assert verdict.format == entry["fmt"], entry["path"]


def test_strict_agrees_but_for_damage_that_pillow_passes_over() -> None:
    for entry in entries():
        data = (CORPUS / entry["path"]).read_bytes()
        strict, load = verify_image(data, STRICT), verify_image(data, LOAD)
        if entry["kind"] in DAMAGED_ONLY_FOR_STRICT:
            assert (load.reason, strict.reason) == (None, "corrupt_image"), entry["path"]
        else:
            assert strict.reason == load.reason, entry["path"]
            assert (strict.width_px, strict.height_px) == (load.width_px, load.height_px), entry["path"]
            assert (strict.frames, strict.exif_orientation) == (load.frames, load.exif_orientation), entry["path"]


@pytest.mark.filterwarnings("ignore:Image appears to be a malformed MPO")
def test_size_as_shown_is_that_of_the_transposed_loaded_image() -> None:
    """IMG-06, BKT-01."""
    for entry in entries():
        data = (CORPUS / entry["path"]).read_bytes()
        verdict = verify_image(data, STRICT)
        if verdict.reason is None:
            with Image.open(io.BytesIO(data)) as image:
                image.load()
                assert ImageOps.exif_transpose(image).size == (verdict.width_px, verdict.height_px), entry["path"]
            probed = probe_header(data[: 1 << 16], STRICT)
            if probed is not None:
                assert (probed.width_px, probed.height_px) == (verdict.width_px, verdict.height_px), entry["path"]


@pytest.mark.parametrize(("name", "size"), [("Landscape", (1800, 1200)), ("Portrait", (1200, 1800))])
def test_photographs_of_every_orientation_have_one_shape(name: str, size: tuple[int, int]) -> None:
    """BKT-01."""
    paths = sorted((CORPUS / "exif-orientation-examples").glob(f"{name}_*.jpg"))
    assert len(paths) >= 5
    for path in paths:
        verdict = verify_image(path.read_bytes(), STRICT)
        assert (verdict.width_px, verdict.height_px) == size, path


@pytest.mark.parametrize("name", ["invalid-exif.jpg", "multiple_exif.jpg"])
def test_broken_exif_of_real_files_is_a_warning(name: str) -> None:
    """IMG-03."""
    verdict = verify_image((CORPUS / "pillow/Tests/images" / name).read_bytes(), STRICT)
    assert (verdict.reason, verdict.exif_orientation, verdict.warnings) == (None, 1, ("bad_exif",))
