"""`python -m dataset_packaging_tests.packing.peak_memory DATASET.yaml`: packs and verifies in this process alone.

Prints the largest resident size after each of the two, in bytes, as JSON.
"""

import json
import resource
import sys

from dataset_packaging.config import load_dataset
from dataset_packaging_tests.packing.photo_dataset import open_pipeline, pack


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main(source: str) -> None:
    """Packs, then reads everything that landed."""
    dataset = load_dataset(source)
    assert pack(dataset).problems == ()
    packed = _peak_bytes()
    with open_pipeline(dataset) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
    print(json.dumps({"packed": packed, "verified": _peak_bytes()}))


if __name__ == "__main__":
    main(sys.argv[1])
