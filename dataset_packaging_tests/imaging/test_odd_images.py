"""Every odd file gets the verdict that the independent checker gives it."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from dataset_packaging.imaging.policy import ImagePolicy
from dataset_packaging.imaging.verify import verify_image
from dataset_packaging_tests.checker.contract import Dataset, read_dataset
from dataset_packaging_tests.checker.pictures import judge_bytes
from dataset_packaging_tests.odd_images import WHOLE, odd_images

MOST_REFUSED_BY_STRICT_ALONE = 60  # damaged JPEGs that Pillow passes over, among 1,700 files


@pytest.fixture
def defaults(tmp_path: Path) -> Dataset:
    (tmp_path / "odd.yaml").write_text("manifest: rows.jsonl\noutput_prefix: out\n")
    return read_dataset(tmp_path / "odd.yaml")


@pytest.mark.parametrize("integrity", ["load", "strict"])
def test_verdicts_are_those_of_the_contract(defaults: Dataset, integrity: Literal["load", "strict"]):
    """IMG-02, IMG-04, IMG-05, IMG-09, IMG-11: any file, one verdict, and the reason fits."""
    dataset = replace(defaults, strict=integrity == "strict")
    policy = ImagePolicy(integrity, "upright", dataset.formats, dataset.max_pixels, dataset.max_bytes)
    differing, refused_by_strict_alone = [], 0
    for name, data in odd_images():
        verdict = verify_image(data, policy)
        if not data:
            assert verdict.reason == "empty_object"
            continue
        judgement = judge_bytes(data, dataset)
        if verdict.reason is not None:
            assert name.partition("/")[0] not in WHOLE, f"{name}: {verdict}"
            refused_by_strict_alone += judgement.accepted
            if verdict.reason not in judgement.reasons:
                differing.append((name, verdict.reason, judgement))
            continue
        told = (verdict.width_px, verdict.height_px, verdict.is_rgba, verdict.format)
        if not judgement.accepted or told != (
            judgement.width,
            judgement.height,
            judgement.is_rgba,
            judgement.format,
        ):
            differing.append((name, told, judgement))
    assert differing == []
    assert refused_by_strict_alone <= (MOST_REFUSED_BY_STRICT_ALONE if integrity == "strict" else 0)
