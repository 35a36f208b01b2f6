"""Whose prefixes these are: those of another dataset, or with files of others, are refused before anything is done."""

from collections.abc import Iterable

import msgspec

from dataset_packaging.errors import NotFound, PlanConflict
from dataset_packaging.packing.run import Run


def require_own_folders(run: Run) -> None:
    """Refuses prefixes that belong to another dataset or hold files of others. Reads only.

    A file that appears below the prefixes later, beside the shards, is a finding of `verify` and of the asset checks.

    Raises PlanConflict naming the folder and what was found there.
    """
    owner = _read_owner(run)
    if owner is None:
        folders = (run.dataset.output_prefix, run.dataset.sidecar_prefix, run.dataset.work_prefix)
        for found in _first_objects(run, folders):
            raise PlanConflict(
                f"{found} stands below a prefix of {run.dataset.name}, which has not been packed there: "
                "choose prefixes that are empty, or restore the work_prefix of the dataset that made these files"
            )
        return
    for name, value in _identity(run).items():
        if owner.get(name) != value:
            raise PlanConflict(
                f"{run.dataset.work_prefix} belongs to dataset {owner.get('name')!r} with {name} "
                f"{owner.get(name)!r}, not {value!r}: choose another work_prefix"
            )


def claim_folders(run: Run) -> None:
    """Writes whose work folder this is, once."""
    run.stores.put_if_absent(run.layout.identity_uri, msgspec.json.encode(_identity(run)))


def _read_owner(run: Run) -> dict[str, str] | None:
    uri = run.layout.identity_uri
    try:
        return msgspec.json.decode(run.stores.get(uri), type=dict[str, str])
    except NotFound:
        return None
    except msgspec.DecodeError as error:
        raise PlanConflict(f"{uri} is damaged ({error}): restore it, or remove the whole work_prefix") from error


def _first_objects(run: Run, folders: Iterable[str]) -> Iterable[str]:
    for folder in folders:
        for info in run.stores.list(f"{folder}/"):
            if info.uri != run.layout.lease_uri:
                yield info.uri
                break


def _identity(run: Run) -> dict[str, str]:
    dataset = run.dataset
    return {
        "name": dataset.name,
        "output_prefix": dataset.output_prefix,
        "sidecar_prefix": dataset.sidecar_prefix,
    }
