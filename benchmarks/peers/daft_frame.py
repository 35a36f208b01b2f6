"""daft: download, decode, write_parquet partitioned by shape."""

import os
import sys
import time

from job import read_rows, tell


def main(manifest: str, folder: str) -> None:
    """Packs the manifest into partitioned Parquet files."""
    os.environ.update(DAFT_PROGRESS_BAR="0", DO_NOT_TRACK="true", DAFT_ANALYTICS_ENABLED="0")
    import daft
    import daft.functions as functions
    import pyarrow.dataset
    from daft import col

    rows = read_rows(manifest)
    began = time.perf_counter()
    frame = daft.from_pydict({name: [row[name] for row in rows] for name in ("path", "caption", "metadata")})
    frame = frame.with_column("image", functions.download(col("path"), on_error="null"))
    frame = frame.with_column("pixels", functions.decode_image(col("image"), on_error="null", mode=None))
    frame = frame.where(col("pixels").not_null())
    frame = frame.with_column("width", functions.image_width(col("pixels")))
    frame = frame.with_column("height", functions.image_height(col("pixels"))).exclude("pixels")
    ratio = (col("width") * 3 / col("height")).cast(daft.DataType.int32()).clip(1, 6)
    scale = ((col("width") * col("height")).cast(daft.DataType.float64()).sqrt() / 768).cast(daft.DataType.int32())
    frame = frame.with_column("ratio", ratio).with_column("scale", scale)
    frame.write_parquet(f"{folder}/images", compression="zstd", partition_cols=[col("scale"), col("ratio")])
    job_s = time.perf_counter() - began
    written = pyarrow.dataset.dataset(f"{folder}/images", partitioning="hive", exclude_invalid_files=True)
    tell(job_s, len(rows), written.count_rows())


if __name__ == "__main__":
    main(*sys.argv[1:])
