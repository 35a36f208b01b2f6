"""What requests cost. One place; a user may override it with a JSON file of the same fields.

Source: the public price list of Amazon S3 Standard, us-east-1, in US dollars, as of 2025-01, per 1,000 requests.
Transfer within a region is free.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from dataset_packaging.errors import ConfigError
from dataset_packaging.packing.request_estimate import Requests

Price = Annotated[float, msgspec.Meta(ge=0)]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per 1,000 requests; a HEAD costs what a GET does."""

    get_per_1000: Price = 0.0004
    put_per_1000: Price = 0.005
    list_per_1000: Price = 0.005

    def dollars(self, requests: Requests) -> float:
        """Returns what the requests cost."""
        reads = (requests.gets + requests.heads) * self.get_per_1000
        return (reads + requests.puts * self.put_per_1000 + requests.lists * self.list_per_1000) / 1000


def read_prices(path: Path) -> Prices:
    """Returns the prices of a JSON file with any of the fields of `Prices`; the others are the built-in ones.

    Raises ConfigError naming the file and what was expected.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Prices)
    except OSError as error:
        raise ConfigError(f"{path}: the price list cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        names = ", ".join(Prices.__struct_fields__)
        raise ConfigError(f"{path}: {error}; expected dollars for any of {names}, as JSON") from error
