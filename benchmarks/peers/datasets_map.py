"""Hugging Face datasets: map in two processes, select, to_parquet."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from job import PROCESSES, bucket_of, read_rows, tell, verify


def check(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the image and its facts; `ok` is false where Pillow refuses it."""
    data = Path(row["path"]).read_bytes()
    try:
        width_px, height_px, transparent = verify(data)
    except Exception:
        nothing = {"width": 0, "height": 0, "is_rgba": False, "bucket": ""}
        return {"image": {"bytes": b"", "path": ""}, "ok": False, **nothing}
    return {
        "image": {"bytes": data, "path": row["path"]},
        "ok": True,
        "width": width_px,
        "height": height_px,
        "is_rgba": transparent,
        "bucket": bucket_of(width_px, height_px),
    }


def main(manifest: str, folder: str) -> None:
    """Packs the manifest into one Parquet file."""
    os.environ.update(HF_HOME=f"{folder}/home", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    import datasets

    datasets.disable_progress_bars()
    rows = read_rows(manifest)
    began = time.perf_counter()
    table = datasets.Dataset.from_list(rows)
    added = {
        "image": datasets.Image(decode=False),
        "ok": datasets.Value("bool"),
        "width": datasets.Value("int32"),
        "height": datasets.Value("int32"),
        "is_rgba": datasets.Value("bool"),
        "bucket": datasets.Value("string"),
    }
    checked = table.map(
        check,
        num_proc=PROCESSES,
        features=datasets.Features({**table.features, **added}),
        writer_batch_size=64,
        cache_file_name=f"{folder}/checked.arrow",
        load_from_cache_file=False,
    )
    whole = checked.select([number for number, ok in enumerate(checked["ok"]) if ok])
    whole.to_parquet(f"{folder}/images.parquet", batch_size=64)
    tell(time.perf_counter() - began, len(rows), len(whole))


if __name__ == "__main__":
    main(*sys.argv[1:])
