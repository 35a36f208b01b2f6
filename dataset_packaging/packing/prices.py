"""What requests and storage cost. One place; a dataset's user may override it with a file of the same shape.

Source: the public price list of Amazon S3 Standard, us-east-1, in US dollars, as of 2025-01; per 1,000 requests and per
GB (2**30 bytes) and month. Transfer within a region is free.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from dataset_packaging.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per 1,000 requests, and per GB and month."""

    get_per_1000: float = 0.0004
    put_per_1000: float = 0.005
    list_per_1000: float = 0.005
    storage_gb_month: float = 0.023

    def dollars(self, gets: int, puts: int, lists: int) -> float:
        """Returns what the requests cost."""
        return (gets * self.get_per_1000 + puts * self.put_per_1000 + lists * self.list_per_1000) / 1000


def read_prices(path: Path | None) -> Prices:
    """Returns the prices of a JSON file with any of the fields of `Prices`, or the built-in ones.

    Raises ConfigError naming the file and what was expected.
    """
    if path is None:
        return Prices()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Prices)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: no price list: {error}; expected numbers for get_per_1000 and the like") from error
