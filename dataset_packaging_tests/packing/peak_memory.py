"""`python -m dataset_packaging_tests.packing.peak_memory DATASET.yaml`: packs and verifies in this process alone.

Prints the largest resident size after each of the two, in bytes, as JSON.
"""

import json
import re
import sys
from pathlib import Path

from dataset_packaging.config import load_dataset
from dataset_packaging_tests.packing.photo_dataset import open_pipeline, pack


def peak_bytes() -> int:
    """Returns the largest resident size of this program; getrusage would count that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10


def resident_bytes() -> int:
    """Returns the resident size of this program now."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) << 10


def main(source: str) -> None:
    """Packs, then reads everything that landed."""
    dataset = load_dataset(source)
    assert pack(dataset).problems == ()
    packed = peak_bytes()
    with open_pipeline(dataset) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
    print(json.dumps({"packed": packed, "verified": peak_bytes()}))


if __name__ == "__main__":
    main(sys.argv[1])
