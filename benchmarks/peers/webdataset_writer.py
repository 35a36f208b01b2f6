"""webdataset: two processes, each with a ShardWriter of its own."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from job import bucket_of, read_rows, run_processes, verify


def main(manifest: str, folder: str) -> None:
    """Packs the manifest into tar files."""

    def write(process: int, rows: list[dict[str, Any]], following: Callable[[], int]) -> int:
        import webdataset

        packed = 0
        with webdataset.ShardWriter(f"{folder}/{process}-%05d.tar", maxsize=1 << 27, verbose=0) as sink:
            while (number := following()) < len(rows):
                row = rows[number]
                data = Path(row["path"]).read_bytes()
                try:
                    width_px, height_px, transparent = verify(data)
                except Exception:
                    continue
                facts = {**row, "width": width_px, "height": height_px, "is_rgba": transparent}
                facts["bucket"] = bucket_of(width_px, height_px)
                sample = {"__key__": f"{number:08d}", "json": json.dumps(facts).encode()}
                sink.write({**sample, Path(row["path"]).suffix[1:]: data})
                packed += 1
        return packed

    run_processes(write, read_rows(manifest))


if __name__ == "__main__":
    main(*sys.argv[1:])
