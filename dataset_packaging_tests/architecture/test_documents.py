"""What the documents name exists, and what they show works."""

import re
from pathlib import Path

import pytest

from dataset_packaging.config import parse_dataset

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(document: Path):
    links = re.findall(r"(?<!!)\[[^]]*\]\(([^)#]+)", document.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_that_are_named_exist(document: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = "\n".join(re.findall(r"`[^`]+`|```.*?```", document.read_text(encoding="utf-8"), re.DOTALL))
    assert set(re.findall(r"\bmake ([a-z-]+)", code)) <= targets


def test_the_dataset_that_the_readme_shows_is_valid():
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    dataset = parse_dataset(shown, "README.md", ROOT / "examples", environ={})
    assert dataset.name == "photos"


def test_the_tests_that_hold_the_guarantees_exist():
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z_/]+\.py)(?:::([a-z_0-9]+))?`", text)
    assert len(named) > 30
    for file, test in named:
        source = (ROOT / "dataset_packaging_tests" / file).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in source, f"{file}::{test}"


def test_every_promise_names_its_test():
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert [row for row in rows if ".py" not in row] == []
