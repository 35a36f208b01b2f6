"""mosaicml-streaming: two processes, each with an MDSWriter of its own."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from job import bucket_of, read_rows, run_processes, verify

_COLUMNS = {"image": "bytes", "path": "str", "width": "int", "height": "int", "is_rgba": "int", "caption": "str",
            "metadata": "str", "bucket": "str"}  # fmt: skip


def main(manifest: str, folder: str) -> None:
    """Packs the manifest into MDS shards."""

    def write(process: int, rows: list[dict[str, Any]], following: Callable[[], int]) -> int:
        from streaming import MDSWriter

        packed = 0
        with MDSWriter(
            out=f"{folder}/{process}", columns=_COLUMNS, compression="zstd:1", hashes=["sha1"], size_limit=1 << 26
        ) as sink:
            while (number := following()) < len(rows):
                row = rows[number]
                data = Path(row["path"]).read_bytes()
                try:
                    width_px, height_px, transparent = verify(data)
                except Exception:
                    continue
                sink.write(
                    {
                        "image": data,
                        "path": row["path"],
                        "width": width_px,
                        "height": height_px,
                        "is_rgba": int(transparent),
                        "caption": row["caption"],
                        "metadata": row["metadata"],
                        "bucket": bucket_of(width_px, height_px),
                    }
                )
                packed += 1
        return packed

    run_processes(write, read_rows(manifest))


if __name__ == "__main__":
    main(*sys.argv[1:])
