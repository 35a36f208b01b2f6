"""Ray Data: read_binary_files, map, filter, write_parquet partitioned by shape; the start of Ray is not counted."""

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any


def main(manifest: str, folder: str) -> None:
    """Packs the manifest into partitioned Parquet files."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    import pyarrow.dataset
    import ray
    import ray.data
    from job import PROCESSES, bucket_of, read_rows, tell, verify

    ray.init(
        address="local",
        num_cpus=PROCESSES,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        object_store_memory=2 << 30,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    began = time.perf_counter()
    rows = read_rows(manifest)
    texts = ray.put({row["path"]: (row["caption"], row["metadata"]) for row in rows})

    def check(row: dict[str, Any]) -> dict[str, Any]:
        caption, metadata = ray.get(texts)[row["path"]]
        facts: dict[str, Any] = {"caption": caption, "metadata": metadata, "image": row["bytes"], "path": row["path"]}
        try:
            width_px, height_px, transparent = verify(row["bytes"])
        except Exception:
            return {**facts, "width": 0, "height": 0, "is_rgba": False, "bucket": ""}
        bucket = bucket_of(width_px, height_px)
        return {**facts, "width": width_px, "height": height_px, "is_rgba": transparent, "bucket": bucket}

    files = ray.data.read_binary_files([row["path"] for row in rows], include_paths=True)
    checked = files.map(check).filter(lambda row: bool(row["bucket"]))
    checked.write_parquet(f"{folder}/images", partition_cols=["bucket"], compression="zstd")
    job_s = time.perf_counter() - began
    written = pyarrow.dataset.dataset(f"{folder}/images", partitioning="hive").count_rows()
    tell(job_s, len(rows), written)


if __name__ == "__main__":
    main(*sys.argv[1:])
