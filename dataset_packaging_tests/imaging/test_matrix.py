"""Damaged photographs: what each integrity refuses, and that whole ones pass. The table of docs/integrity.md."""

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from dataset_packaging.imaging.verify import verify_image
from dataset_packaging_tests.imaging.damage import Sample, damaged, jpeg_samples, pixel_start, png_samples, webp_samples
from dataset_packaging_tests.imaging.matrix import outcomes
from dataset_packaging_tests.imaging.samples import LOAD, STRICT

REPOSITORY = Path(__file__).parents[2]
ALL_SAMPLES = [jpeg_samples, png_samples, webp_samples]


@pytest.mark.parametrize("make_samples", ALL_SAMPLES)
def test_whole_photographs_are_accepted_without_a_warning(make_samples: Callable[[], list[Sample]]) -> None:
    for sample in make_samples():
        for data in (sample.data, sample.data + b"trailing bytes"):
            strict = verify_image(data, STRICT)
            assert (strict.reason, strict.warnings) == (None, ()), sample.name
            assert strict == verify_image(data, LOAD), sample.name


@pytest.mark.parametrize("make_samples", ALL_SAMPLES)
def test_all_that_load_refuses_strict_refuses(make_samples: Callable[[], list[Sample]]) -> None:
    for outcome in outcomes(make_samples()):
        assert outcome.load is None or outcome.strict is not None, (outcome.case.sample.name, outcome.case.kind)


def test_strict_finds_damage_in_jpegs_that_load_passes_over() -> None:
    judged = outcomes(jpeg_samples())
    assert len(judged) == 324
    assert sum(outcome.strict is not None for outcome in judged) >= 0.85 * len(judged)
    assert sum(outcome.load is not None for outcome in judged) <= 0.62 * len(judged)
    for kind in ("run zeroed", "run dropped"):
        assert all(outcome.strict == "corrupt_image" for outcome in judged if outcome.case.kind == kind)


def test_strict_finds_every_damage_of_png_pixel_data() -> None:
    judged = outcomes(png_samples())
    assert len(judged) == 160
    assert all(outcome.strict is not None for outcome in judged if outcome.case.in_pixels)
    assert all(outcome.load is None for outcome in judged if outcome.case.kind == "IDAT checksum wrong")


@pytest.mark.parametrize("make_samples", ALL_SAMPLES)
def test_cut_files_are_truncated_wherever_they_are_cut(make_samples: Callable[[], list[Sample]]) -> None:
    for sample in make_samples()[::5]:
        data = sample.data
        start = pixel_start(sample)
        cuts = [*range(start, len(data) - 32, (len(data) - start) // 25), len(data) - 32]
        for cut in cuts:
            for policy in (STRICT, LOAD):
                assert verify_image(data[:cut], policy).reason == "truncated_image", (sample.name, cut)


@pytest.mark.parametrize("make_samples", ALL_SAMPLES)
def test_reasons_are_the_same_every_time(make_samples: Callable[[], list[Sample]]) -> None:
    for case in damaged(make_samples()[0]):
        assert verify_image(case.data, STRICT) == verify_image(memoryview(case.data), STRICT)


def test_documented_table_is_what_the_documented_command_prints() -> None:
    page = (REPOSITORY / "docs" / "integrity.md").read_text(encoding="utf-8")
    command = "python -m dataset_packaging_tests.imaging.matrix"
    assert command in page
    if f"pillow {version('pillow')}" not in page or f"simplejpeg {version('simplejpeg')}" not in page:
        pytest.skip("the table was made with other versions of the encoders")
    run = [sys.executable, *command.split()[1:]]
    printed = subprocess.run(run, cwd=REPOSITORY, capture_output=True, check=True, text=True)
    assert printed.stdout.strip() in page
