"""`python -m dataset_packaging_tests.checker DATASET.yaml`: prints findings, exits 1 if there are any."""

import sys
from pathlib import Path

from dataset_packaging_tests.checker import check

if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found) if found else "nothing found")
    sys.exit(bool(found))
