"""SimpleTuner's Parquet metadata layout: what its loader reads, read the way it does."""

import json
from pathlib import Path

import pandas as pd
import pytest

from dataset_packaging.errors import NotHandedOff
from dataset_packaging_tests.small_dataset import (
    SIZES,
    open_pipeline,
    pack,
    picture_bytes,
    rewrite,
    sidecar_paths,
    small_dataset,
    write_rows,
)

ROWS = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path, ROWS, lambda number: {"caption": None} if number == 5 else {})
    pack(small_dataset(tmp_path))
    return tmp_path


def test_names_captions_and_sizes_lead_to_the_files(folder: Path) -> None:
    with open_pipeline(small_dataset(folder)) as pipeline:
        report = pipeline.export_simpletuner(folder / "tuner")
    assert (report.files, report.without_caption) == (ROWS - 1, 1)
    (backend,) = json.loads((folder / "tuner/multidatabackend.json").read_text())
    assert (backend["caption_strategy"], backend["metadata_backend"]) == ("parquet", "parquet")
    columns = backend["parquet"]
    table = pd.read_parquet(columns["path"], engine="pyarrow").set_index(columns["filename_column"])
    assert table.index.is_unique
    files = list(Path(backend["instance_data_dir"]).iterdir())
    assert len(files) == ROWS - 1
    for path in files:
        row = table.loc[path.name]
        number = int(row["image_key"][-4:])
        assert path.read_bytes() == picture_bytes(number, SIZES[number % 3])
        assert row[columns["caption_column"]] == f"caption {number}"
        assert (row[columns["width_column"]], row[columns["height_column"]]) == SIZES[number % 3]


def test_a_dataset_with_findings_is_not_exported(folder: Path) -> None:
    rewrite(sidecar_paths(folder)[0], lambda table: table.slice(1))
    with open_pipeline(small_dataset(folder)) as pipeline, pytest.raises(NotHandedOff):
        pipeline.export_simpletuner(folder / "tuner")
    assert not (folder / "tuner").exists()
