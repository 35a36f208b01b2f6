"""Fixtures of the orchestration's tests."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from dataset_packaging_tests.orchestration.small_dataset import SQUARE, TALL, WIDE, SmallDataset


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that forgets everything."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def small(tmp_path: Path) -> SmallDataset:
    """A dataset with two pictures in each of three buckets."""
    dataset = SmallDataset(tmp_path)
    for bucket in (SQUARE, WIDE, TALL):
        dataset.add(bucket)
    return dataset
