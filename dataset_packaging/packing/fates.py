"""What the comparison of keys decided, read per bucket."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataset_packaging.core.layout import GenerationLayout
from dataset_packaging.io.parquet import read_matching
from dataset_packaging.io.store import Stores

_COLUMNS = ["part", "row", "fate", "shard", "position"]


@dataclass(frozen=True, slots=True)
class Fates:
    """The decided rows of one bucket, sorted by part and row: duplicates, and rows that keep an earlier place."""

    part: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    fate: npt.NDArray[np.uint8]
    shard: npt.NDArray[np.int32]
    position: npt.NDArray[np.int32]

    @classmethod
    def read(cls, stores: Stores, generation: GenerationLayout, partitions: int, bucket_id: int) -> "Fates":
        """Reads the fates of a bucket from the files of all partitions."""
        tables = [
            table
            for partition in range(partitions)
            for table in read_of_bucket(stores, generation.fates_uri(partition), bucket_id, _COLUMNS)
        ]
        if not tables:
            none = np.zeros(0, np.int32)
            return cls(none, none, np.zeros(0, np.uint8), none, none)
        table = pa.concat_tables(tables).sort_by([("part", "ascending"), ("row", "ascending")])
        return cls(*(table[name].to_numpy() for name in _COLUMNS))

    def of_part(self, part: int) -> "Fates":
        """Returns those of one part."""
        start, end = np.searchsorted(self.part, [part, part + 1])
        chosen = slice(int(start), int(end))
        return Fates(self.part[chosen], self.row[chosen], self.fate[chosen], self.shard[chosen], self.position[chosen])


def read_of_bucket(stores: Stores, uri: str, bucket_id: int, columns: list[str]) -> list[pa.Table]:
    """Reads the rows of one bucket from a file that is sorted by bucket."""
    wanted = ["bucket", *(name for name in columns if name != "bucket")]
    groups = read_matching(stores, uri, "bucket", lambda least, most: least <= bucket_id <= most, wanted)
    return [group.filter(pa.array(group["bucket"].to_numpy() == bucket_id)).select(columns) for group in groups]
