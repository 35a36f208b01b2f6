"""Each snippet of docs/reading.md, run with the real library on the packed example."""

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from dataset_packaging.config import parse_dataset
from dataset_packaging.packing.pipeline import BUCKET_KEYS
from dataset_packaging_tests.small_dataset import open_pipeline, pack

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/reading.md").read_text(encoding="utf-8")
SNIPPETS = [
    (f"{title} {number}", code)
    for title, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", body, re.DOTALL))
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example is packed into demo/, and exported to hub/ and tuner/."""
    place = tmp_path_factory.mktemp("snippets")
    text = (ROOT / "examples/photos.yaml").read_text().replace("../demo", str(place / "demo"))
    dataset = parse_dataset(text.replace("max_rejected_fraction: 0.1", "max_rejected_fraction: 1.0"), "photos.yaml",
                            ROOT / "examples", {})  # fmt: skip
    pack(dataset)
    with open_pipeline(dataset) as pipeline:
        while pipeline.needs_another_round():
            pipeline.build_manifest()
            pipeline.pack_buckets(BUCKET_KEYS)
            pipeline.write_sidecars(BUCKET_KEYS)
        assert pipeline.write_handoff().findings == ()
        pipeline.export_hub(place / "hub")
        pipeline.export_simpletuner(place / "tuner")
    return place


def expected(place: Path) -> dict[str, str]:
    shards = pl.scan_parquet(place / "demo/photos_parquet/**/*.parquet")
    rows, size, wide = (
        shards.select(pl.len(), pl.col("image").bin.size().sum().alias("b"), (pl.col("width") > pl.col("height")).sum())
        .collect()
        .row(0)
    )
    captions = pl.scan_parquet(place / "demo/photos_sidecar/**/*.parquet").select(
        pl.any_horizontal(pl.col("full_description", "short_description", "keywords").list.len() > 0).sum()
    )
    first = sorted((place / "demo/photos_parquet").rglob("*.parquet"))[0]
    assert first.parent.name == "10000"
    width = shards.filter(pl.col("width") == pl.col("width")).select("image_key", "width").collect()
    keys = pl.read_parquet(place / "demo/photos_parquet/0_512/3333/shard-000000.parquet")["image_key"]
    square = pl.read_parquet(place / "demo/photos_parquet/0_512/10000/shard-000000.parquet")
    assert len(width) == rows
    return {
        "Polars 0": f"{wide}",
        "DuckDB 0": f"{rows} {size}",
        "PyArrow 0": f"{rows}",
        "pandas 0": f"{rows} True",
        "Ray Data 0": f"{rows}",
        "Daft 0": f"{wide}",
        "Hugging Face datasets 0": f"{rows}",
        "Hugging Face datasets 1": f"{rows} True",
        "PyTorch 0": f"{rows}",
        "PyTorch 1": f"{rows} {keys[0]} {square['width'][0]}",
        "SimpleTuner 0": f"{captions.collect().item()} True",
    }


@pytest.mark.parametrize(("title", "code"), SNIPPETS, ids=[title for title, _ in SNIPPETS])
def test_a_snippet_prints_what_is_true(place: Path, title: str, code: str) -> None:
    python = Path(sys.prefix) / "daft/bin/python" if title.startswith("Daft") else Path(sys.executable)
    assert python.exists(), f"{python} is missing: make install"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(place / "huggingface"),
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        "DAFT_PROGRESS_BAR": "0",
        "DO_NOT_TRACK": "true",
    }
    done = subprocess.run(
        [python, "-c", code], cwd=place, env=environ, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip().splitlines()[-1] == expected(place)[title]
