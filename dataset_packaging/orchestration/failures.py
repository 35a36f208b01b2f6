"""How a step of a run fails: one line that says what happened and what to do, and the exit code it stands for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import dagster as dg

from dataset_packaging.errors import LeaseHeld, PackagingError, TransientStoreError, WorkerFailed
from dataset_packaging.orchestration.metadata import shorten

EXIT_CODE = "exit code"
EXIT_FINDINGS = 1
EXIT_INFRASTRUCTURE = 3

_SHOWN_MAX = 5
_WORTH_A_RETRY = (TransientStoreError, WorkerFailed, LeaseHeld)


@contextmanager
def failures_explained() -> Iterator[None]:
    """Turn the package's errors into Dagster's failure with the same message; everything else passes as it is."""
    try:
        yield
    except PackagingError as error:
        raise dg.Failure(
            description=str(error),
            metadata={"error": type(error).__name__, EXIT_CODE: dg.MetadataValue.int(error.exit_code)},
            allow_retries=isinstance(error, _WORTH_A_RETRY),
        ) from error


def buckets_failed(
    unpublished: Mapping[str, str], bad: Mapping[str, str], bucket_count: int, lacking: str = "sidecars"
) -> dg.Failure:
    """Build the failure of a step that wrote all buckets but these; pure.

    Args:
        unpublished: Buckets with rows that wait, and why: the next run takes them up again.
        bad: Buckets that are there and must not be used, and why.
        bucket_count: Buckets of the run.
        lacking: What these buckets do not get.
    """
    reasons = {**bad, **unpublished}
    shown = "; ".join(f"{key}: {shorten(reason)}" for key, reason in list(reasons.items())[:_SHOWN_MAX])
    more = f"; and {len(reasons) - _SHOWN_MAX} more" if len(reasons) > _SHOWN_MAX else ""
    exit_code = EXIT_INFRASTRUCTURE if unpublished else EXIT_FINDINGS
    return dg.Failure(
        description=f"{len(reasons)} of {bucket_count} buckets are not whole, and have no new {lacking}: {shown}"
        f"{more}. "
        "All others are done. Run again, or retry from failure: only these are written again.",
        metadata={
            EXIT_CODE: dg.MetadataValue.int(exit_code),
            "buckets": dg.MetadataValue.md("\n".join(f"- {key}: {shorten(reason)}" for key, reason in reasons.items())),
        },
        allow_retries=bool(unpublished),
    )
