# ruff: noqa: N818  (the names are the project's published vocabulary: a NotFound is a fate of an object, not only an error)
"""What can go wrong outside of the data, as types.

A leaf: it imports nothing of the project. Whatever a single row or image does wrong is data (a reject, a verdict),
never one of these. All state of an exception stands in `args`, so that each survives the pickling between a worker and
its driver.
"""


class PackagingError(Exception):
    """A failure with one readable line for its user; `exit_code` is what the command line ends with."""

    exit_code: int = 3

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ConfigError(PackagingError):
    """The dataset YAML, an option or the environment is wrong; nothing was read or written yet."""

    exit_code = 2


class NoPermission(ConfigError):
    """A file or folder that the user named may not be read or written by this process; nothing was written yet."""

    exit_code = 3


class ManifestError(PackagingError):
    """The manifest is missing, empty, cut off or unreadable as a whole; one bad line is a reject instead."""

    exit_code = 2


class PlanConflict(PackagingError):
    """What is asked for would change shards that are already published and needs an explicit word of the user."""

    exit_code = 2


class LeaseHeld(PackagingError):
    """Another run works on the same dataset."""


class WorkerFailed(PackagingError):
    """A worker died or failed for a reason that is not in the data."""


class DecoderStuck(WorkerFailed):
    """A decode runs past its time limit; the process that holds it must be given up."""


class IndexDamaged(PackagingError):
    """A work file does not hold what was planned; the next manifest run rebuilds it."""


class MergeSourceUnusable(PackagingError):
    """A source of `sidecar.merge` is missing, unreadable or lacks a field; no sidecar was written."""

    exit_code = 2


class MergeConflict(PackagingError):
    """The rows of a merge source do not fit those of the dataset: other keys, another order, keys that repeat."""

    exit_code = 1


class NotHandedOff(PackagingError):
    """The dataset has findings, so that nobody shall get it yet."""

    exit_code = 1


class ReferenceUnusable(PackagingError):
    """The sidecar family or schema file that a dataset must match cannot be read; nothing was compared."""


class NoReference(ReferenceUnusable):
    """Where the reference of a dataset should stand there is nothing, or something else."""

    exit_code = 2


class StoreError(PackagingError):
    """An object store did not do what was asked.

    Attributes:
        uri: the object or prefix, verbatim.
        detail: what happened, with the identity and what to check where known.
    """

    def __init__(self, uri: str, detail: str) -> None:
        Exception.__init__(self, uri, detail)
        self.uri = uri
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.uri}: {self.detail}"


class TransientStoreError(StoreError):
    """Throttled, reset, timed out, 5xx, expired token or short body, after the retries: a later try may succeed."""


class PermanentStoreError(StoreError):
    """Trying again cannot help."""


class NotFound(PermanentStoreError):
    """There is no object of this key."""


class AccessDenied(PermanentStoreError):
    """The identity in use may not do this."""


class NoGrant(AccessDenied):
    """No S3 Access Grant opens this location for the identity in use; other locations may well be open."""


class Archived(PermanentStoreError):
    """The object is in a storage class that must be restored before it can be read."""


class ObjectTooLarge(PermanentStoreError):
    """The object is larger than its reader would take; its body was not read."""


class ObjectDamaged(PermanentStoreError):
    """The object is there, and its bytes are not a whole file of its kind."""


class UnsupportedKey(PermanentStoreError):
    """The key cannot be said to this store without changing it."""


class PreconditionFailed(PermanentStoreError):
    """The object changed, appeared or vanished between the look and the conditional write."""
