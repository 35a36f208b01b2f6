import pickle

import pytest

from dataset_packaging import errors


def _all_error_classes(root: type[errors.PackagingError]) -> list[type[errors.PackagingError]]:
    return [root] + [c for child in root.__subclasses__() for c in _all_error_classes(child)]


@pytest.mark.parametrize("cls", _all_error_classes(errors.PackagingError), ids=lambda c: c.__name__)
def test_every_error_survives_pickling(cls: type[errors.PackagingError]) -> None:
    """RAY-01: an exception that cannot be rebuilt hides its cause from the driver."""
    error = cls("s3://b/k", "gone") if issubclass(cls, errors.StoreError) else cls("what happened")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == str(error)
    assert copy.args == error.args
    assert copy.exit_code == error.exit_code
    assert vars(copy) == vars(error)


def test_exit_codes_tell_configuration_from_infrastructure() -> None:
    assert {c.__name__: c.exit_code for c in _all_error_classes(errors.PackagingError)} == {
        "PackagingError": 3, "ConfigError": 2, "ManifestError": 2, "PlanConflict": 2, "LeaseHeld": 3, "WorkerFailed": 3,
        "StoreError": 3, "TransientStoreError": 3, "PermanentStoreError": 3, "NotFound": 3, "AccessDenied": 3,
        "Archived": 3, "UnsupportedKey": 3, "PreconditionFailed": 3, "NoGrant": 3, "ObjectTooLarge": 3,
        "DecoderStuck": 3, "IndexDamaged": 3, "ObjectDamaged": 3, "ReferenceUnusable": 3, "MergeSourceUnusable": 2,
        "MergeConflict": 1, "NotHandedOff": 1, "NoPermission": 3, "NoReference": 2,
    }  # fmt: skip


def test_a_store_error_reads_as_one_line() -> None:
    assert str(errors.NotFound("s3://b/a b#1", "no such key")) == "s3://b/a b#1: no such key"
