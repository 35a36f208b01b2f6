"""Whose prefixes these are: those of another dataset, or with files of others, are refused before anything is done."""

from collections.abc import Iterable

import msgspec

from dataset_packaging.core.invariants import Finding
from dataset_packaging.errors import ConfigError, IndexDamaged, NotFound, PlanConflict, UnsupportedKey
from dataset_packaging.io.local_store import SCHEME as LOCAL_SCHEME
from dataset_packaging.io.local_store import require_writable_folder
from dataset_packaging.packing.generation import generation_numbers, owner_of, read_summary
from dataset_packaging.packing.run import Run


def require_own_folders(run: Run) -> None:
    """Refuses prefixes that belong to another dataset or hold files of others. Reads only.

    A file that appears below the prefixes later, beside the shards, is a finding of `verify` and of the asset checks.

    Raises PlanConflict naming the folder and what was found there.
    """
    owner = _read_owner(run) or _told_by_generations(run)
    if owner is None:
        for found in _first_objects(run, run.dataset.prefixes.values()):
            raise PlanConflict(
                f"{found} stands below a prefix of {run.dataset.name}, which has not been packed there: "
                "choose prefixes that are empty, or restore the work_prefix of the dataset that made these files"
            )
        return
    for name, value in owner_of(run.dataset).items():
        if owner.get(name) != value:
            raise PlanConflict(
                f"{run.dataset.work_prefix} belongs to dataset {owner.get('name')!r} with {name} "
                f"{owner.get(name)!r}, not {value!r}: choose another work_prefix"
            )


def require_writable_folders(run: Run) -> None:
    """Makes sure that local prefixes can be written to; of S3 only a write tells. Reads only.

    Raises ConfigError where a file stands in the way of a prefix, AccessDenied where this user may not write there.
    """
    for field, uri in run.dataset.prefixes.items():
        if uri.startswith(LOCAL_SCHEME):
            try:
                require_writable_folder(uri)
            except UnsupportedKey as error:
                raise ConfigError(f"{field}: {error}") from error


def claim_folders(run: Run) -> None:
    """Writes whose work folder this is, where nothing says so yet."""
    if _read_owner(run) is None:
        run.stores.put(run.layout.identity_uri, msgspec.json.encode(owner_of(run.dataset)))


def find_ownership_faults(run: Run) -> list[Finding]:
    """Returns a finding where the work folder does not say whose it is. Reads only."""
    if _read_owner(run) is not None:
        return []
    detail = f"{run.layout.identity_uri} is missing or damaged; run pack again: it is rebuilt"
    return [Finding("work_files", None, None, detail)]


def _read_owner(run: Run) -> dict[str, str] | None:
    try:
        return msgspec.json.decode(run.stores.get(run.layout.identity_uri), type=dict[str, str])
    except (NotFound, msgspec.DecodeError):
        return None


def _told_by_generations(run: Run) -> dict[str, str] | None:
    """Returns the owner that the newest generation names, be it published or not."""
    uris = (info.uri for info in run.stores.list(run.layout.generations_prefix))
    for number in generation_numbers(run.layout, uris):
        try:
            return read_summary(run.stores, run.layout, number).owner
        except IndexDamaged:
            continue
    return None


def _first_objects(run: Run, folders: Iterable[str]) -> Iterable[str]:
    for folder in folders:
        for info in run.stores.list(f"{folder}/"):
            if info.uri not in (run.layout.lease_uri, run.layout.identity_uri):
                yield info.uri
                break
