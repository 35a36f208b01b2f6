"""img2dataset: two processes of 16 threads to Parquet; a third argument `raw` switches its re-encoding off."""

import sys
import time
import warnings
from collections import Counter
from pathlib import Path

from job import PROCESSES, read_rows, tell


def main(manifest: str, folder: str, encoding: str = "") -> None:
    """Packs the manifest into Parquet files."""
    warnings.simplefilter("ignore")
    import pyarrow
    import pyarrow.parquet
    from img2dataset import download

    rows = read_rows(manifest)
    urls = f"{folder}/urls.parquet"
    columns = {"url": "path", "caption": "caption", "metadata": "metadata"}
    table = pyarrow.table({name: [f"file://{row[of]}" if name == "url" else row[of] for row in rows]
                           for name, of in columns.items()})  # fmt: skip
    pyarrow.parquet.write_table(table, urls)
    began = time.perf_counter()
    download(
        url_list=urls,
        output_folder=f"{folder}/images",
        processes_count=PROCESSES,
        thread_count=16,
        resize_mode="no",
        skip_reencode=True,
        disable_all_reencoding=encoding == "raw",
        encode_format="jpg",
        output_format="parquet",
        input_format="parquet",
        url_col="url",
        caption_col="caption",
        save_additional_columns=["metadata"],
        number_sample_per_shard=128,
        compute_hash="sha256",
        extract_exif=False,
    )
    job_s = time.perf_counter() - began
    states: Counter[str] = Counter()
    for path in Path(folder, "images").glob("*.parquet"):
        states.update(pyarrow.parquet.read_table(path, columns=["status"])["status"].to_pylist())
    tell(job_s, len(rows), states["success"])


if __name__ == "__main__":
    main(*sys.argv[1:])
