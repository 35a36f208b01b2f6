"""The reference of a dataset's sidecars: a family of sidecars, one file of it, or an exported schema file. Reads only.

Of Parquet files only footers are read.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.reference import (
    Columns,
    Difference,
    columns_of,
    decode_schema_file,
    find_differences,
    plan_sample,
    settle_family,
)
from dataset_packaging.core.schema import EXTENSION_PREFIX, sidecar_schema
from dataset_packaging.errors import NoReference, NotFound, ObjectDamaged, ReferenceUnusable, StoreError
from dataset_packaging.io.parquet import open_parquet
from dataset_packaging.io.store import Stores

SAMPLED_FOOTERS = 32
"""Of a family; its folders are the buckets, so that up to so many buckets are looked at."""

_READ_THREADS = 16
_DISAGREEMENTS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Reference:
    """Names and types to be matched.

    Attributes:
        source: where they come from.
        columns: names and comparable types.
        sampled: files whose footers were read.
        files: of the family.
        disagreements: how sampled files differ from most of them; at most ten lines.
    """

    source: str
    columns: Columns
    sampled: int
    files: int
    disagreements: tuple[str, ...]


def contract_reference() -> Reference:
    """Return the reference of a dataset that names none: the sidecar columns of the public contract; pure."""
    return Reference("the sidecar columns of this version", columns_of(sidecar_schema()), 0, 0, ())


def declared_columns(dataset: DatasetConfig) -> Columns:
    """Return the columns of the dataset's own sidecars; pure."""
    return columns_of(sidecar_schema(dataset.sidecar.extension_columns()))


def read_reference(stores: Stores, uri: str) -> Reference:
    """Read a reference: a `.json` schema file, a `.parquet` file, or the folder of a family.

    Raises:
        ReferenceUnusable: it cannot be reached; the message says how to go on with a schema file.
        NoReference: it is not there, or is none.
    """
    try:
        if uri.endswith(".json"):
            return Reference(uri, decode_schema_file(bytes(stores.get(uri)).decode("utf-8-sig")), 1, 1, ())
        if uri.endswith(".parquet"):
            return Reference(uri, _read_columns(stores, uri), 1, 1, ())
        return _read_family(stores, uri.rstrip("/") + "/")
    except NotFound as error:
        raise NoReference(f"the reference {uri} cannot be read: {error}; {_way_out(uri)}") from error
    except StoreError as error:
        raise ReferenceUnusable(f"the reference {uri} cannot be read: {error}; {_way_out(uri)}") from error
    except (ValueError, pa.ArrowException, OSError) as error:
        raise NoReference(f"the reference {uri} cannot be used: {_first_line(error)}; {_way_out(uri)}") from error


def _read_family(stores: Stores, prefix: str) -> Reference:
    uris = [
        info.uri
        for info in stores.list(prefix)
        if info.uri.endswith(".parquet") and not _is_hidden(info.uri.removeprefix(prefix))
    ]
    if not uris:
        raise ValueError("there is no .parquet file below it")
    sample = plan_sample(uris, SAMPLED_FOOTERS)
    with ThreadPoolExecutor(_READ_THREADS, "footers") as pool:
        columns = list(pool.map(lambda uri: _read_columns(stores, uri), sample))
    family = settle_family([(uri.removeprefix(prefix), found) for uri, found in zip(sample, columns, strict=True)])
    disagreements = family.disagreements[:_DISAGREEMENTS_SHOWN]
    if len(family.disagreements) > len(disagreements):
        disagreements += (f"and {len(family.disagreements) - len(disagreements)} more disagreements",)
    return Reference(prefix, family.columns, len(sample), len(uris), disagreements)


def _is_hidden(key: str) -> bool:
    return any(part.startswith(("_", ".")) for part in key.split("/"))


def _read_columns(stores: Stores, uri: str) -> Columns:
    try:
        return columns_of(open_parquet(stores, uri).schema_arrow)
    except ObjectDamaged as error:
        raise ValueError(f"{uri} is no Parquet file that can be read ({error.detail})") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _way_out(uri: str) -> str:
    if uri.endswith(".json"):
        return "write a new one with `dataset-packaging schema export FAMILY -o reference.json`"
    return (
        f"to go on without it, let somebody who can read it run `dataset-packaging schema export {uri} "
        "-o reference.json`, and set `sidecar.reference: reference.json`"
    )


def find_dataset_differences(dataset: DatasetConfig, columns: Columns) -> list[Difference]:
    """Return how the dataset's sidecars would differ from the columns of a reference; pure.

    Columns of `sidecar.schema_extensions` extend the reference: it need not have them, but where it does, types match.
    """
    own = [column.name for column in dataset.sidecar.extension_columns()]
    return [
        replace(difference, detail=f"{difference.detail}; declare it in sidecar.schema_extensions")
        if difference.kind == "missing" and difference.column.startswith(EXTENSION_PREFIX)
        else difference
        for difference in find_differences(columns, declared_columns(dataset), own)
    ]


def find_reference_faults(dataset: DatasetConfig, reference: Reference) -> list[str]:
    """Return how the dataset's sidecars would differ from a reference, and a reference from itself; pure."""
    faults = [
        f"{difference.detail} (reference: {reference.source})"
        for difference in find_dataset_differences(dataset, reference.columns)
    ]
    faults += [
        f"the reference disagrees with itself: {line}; export the schema that is meant with "
        f"`dataset-packaging schema export`, and set sidecar.reference to that file"
        for line in reference.disagreements
    ]
    return faults
