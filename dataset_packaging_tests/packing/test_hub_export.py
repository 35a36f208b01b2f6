"""A repository of the Hugging Face Hub, opened by its own library."""

from pathlib import Path

import pytest

from dataset_packaging.errors import ConfigError, NotHandedOff
from dataset_packaging.packing.hub_export import HubReport
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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write_rows(tmp_path, ROWS)
    pack(small_dataset(tmp_path))
    return tmp_path


def export(folder: Path) -> HubReport:
    with open_pipeline(small_dataset(folder, "licence: MIT\n")) as pipeline:
        return pipeline.export_hub(folder / "hub")


@pytest.mark.parametrize("streaming", [False, True])
def test_pictures_are_shown(folder: Path, streaming: bool) -> None:
    import datasets

    export(folder)
    loaded = datasets.load_dataset(
        str(folder / "hub"), split="train", streaming=streaming, cache_dir=str(folder / "cache")
    )
    seen = {}
    for row in loaded:
        seen[row["image_key"]] = row["image"].size
    assert seen == {f"key-{number:04d}": SIZES[number % 3] for number in range(ROWS)}


def test_original_bytes_and_sidecars_are_there(folder: Path) -> None:
    import datasets

    export(folder)
    cache = str(folder / "cache")
    raw = datasets.load_dataset(str(folder / "hub"), split="train", cache_dir=cache)
    raw = raw.cast_column("image", datasets.Image(decode=False))
    assert {row["image_key"]: row["image"]["bytes"] for row in raw} == {
        f"key-{number:04d}": picture_bytes(number, SIZES[number % 3]) for number in range(ROWS)
    }
    side = datasets.load_dataset(str(folder / "hub"), "sidecar", split="train", cache_dir=cache)
    assert side["image_key"][:] == raw["image_key"][:]
    assert side["full_description"][0] == ["caption 0"]


def test_a_second_export_copies_what_has_changed(folder: Path) -> None:
    first = export(folder)
    assert first.files == first.copied == 2 * len(sidecar_paths(folder))
    assert export(folder).copied == 0
    copy = next((folder / "hub/sidecar").rglob("*.parquet"))
    copy.write_bytes(b"x" * copy.stat().st_size)
    assert export(folder).copied == 1


def test_a_dataset_with_findings_is_not_exported(folder: Path) -> None:
    rewrite(sidecar_paths(folder)[0], lambda table: table.slice(1))
    with pytest.raises(NotHandedOff, match=r"small is not handed off: \d+ findings"):
        export(folder)
    assert not (folder / "hub").exists()


def test_a_folder_of_something_else_is_refused(folder: Path) -> None:
    export(folder)
    (folder / "hub/other.parquet").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"holds 1 Parquet files of something else, such as .*other\.parquet"):
        export(folder)
