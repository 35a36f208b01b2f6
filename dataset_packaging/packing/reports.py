"""What the pipeline tells its callers: plain frozen records of counts, never images."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from dataset_packaging.core.crops import CropCounts
from dataset_packaging.core.invariants import Finding

Unit = Literal["rows", "shards", "bytes", "tasks"]
Stage = Literal["manifest", "shards", "resized", "sidecars", "verify"]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run may be asked beyond the dataset's configuration.

    Attributes:
        rewrite: allow a change that moves rows between shards; not safe for readers at the same time.
        rebuild: write every shard and sidecar of the run anew, whatever stands there.
        retry_rejected: reasons of rejected rows to try again, beside the transient ones.
        limit_rows: take only so many rows of the manifest, for a trial run.
    """

    rewrite: bool = False
    rebuild: bool = False
    retry_rejected: tuple[str, ...] = ()
    limit_rows: int | None = None


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """How far a stage is.

    Attributes:
        stage: which.
        note: what it is doing.
        done: of `total`, in `unit`.
        total: None where it is not known.
        unit: of done and total.
        rows: done so far.
        bytes: done so far.
        rate_rows_s: rows per second since the stage began.
        rate_bytes_s: bytes per second since the stage began.
        eta_s: seconds left at this rate; None where it cannot be told.
        in_flight: tasks at work.
        concurrency: requests that a worker keeps in flight, as the store's throttling allows; 0 where unknown.
    """

    stage: Stage
    note: str
    done: int
    total: int | None
    unit: Unit
    rows: int
    bytes: int
    rate_rows_s: float
    rate_bytes_s: float
    eta_s: float | None
    in_flight: int = 0
    concurrency: int = 0


class Progress(Protocol):
    """Receives progress; called often, and from one thread."""

    def report(self, report: ProgressReport) -> None:
        """Takes one report; must not raise."""
        ...


class SilentProgress:
    """Drops all reports."""

    def report(self, report: ProgressReport) -> None:
        """Does nothing."""


@dataclass(slots=True)
class StageClock:
    """Turns counts of one stage into reports with rates and time left."""

    stage: Stage
    unit: Unit
    progress: Progress
    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds since the stage began."""
        return self.clock() - self._started

    def report(
        self,
        note: str,
        done: int,
        total: int | None,
        rows: int,
        size_bytes: int,
        in_flight: int = 0,
        concurrency: int = 0,
        unit: Unit | None = None,
    ) -> None:
        """Sends one report; `unit` where a part of the stage counts something else."""
        elapsed = max(self.seconds, 1e-9)
        left = elapsed / done * (total - done) if total is not None and done else None
        self.progress.report(
            ProgressReport(
                self.stage,
                note,
                done,
                total,
                unit or self.unit,
                rows,
                size_bytes,
                rows / elapsed,
                size_bytes / elapsed,
                left,
                in_flight,
                concurrency,
            )
        )


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """What the plan says of one bucket; `estimated_px` is 0 where no size is known."""

    rows: int
    duplicates: int
    shards: int
    estimated_bytes: int
    estimated_px: int = 0


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """The manifest step: rows = planned + duplicates + rejected + pending.

    Attributes:
        generation: that is current now.
        unchanged: whether there was nothing to do.
        rows: non-blank lines.
        duplicates: rows whose key stood before.
        rejected: rows without a bucket, by reason.
        pending: rows without a bucket, to be tried again.
        probed: objects whose header was read by this step.
        buckets: by key; those with rows or shards.
        sources: URIs of the manifest files.
        seconds: of the step.
        content: digest of the plan: equal where every row stands in the same place with the same values.
    """

    generation: int
    unchanged: bool
    rows: int
    duplicates: int
    rejected: dict[str, int]
    pending: int
    probed: int
    buckets: dict[str, BucketPlan]
    sources: tuple[str, ...]
    seconds: float
    content: str = ""


@dataclass(frozen=True, slots=True)
class BucketShards:
    """The shards of one bucket after a run.

    Attributes:
        rows: packed.
        bytes: of the packed images.
        shards: planned.
        shards_written: by this run.
        rejects: rows by reason.
        moved: rows that wait for the next generation.
        pending: rows of shards that are not durable.
        row_groups: in all shards.
        seconds: of the workers in this run.
        problems: why shards are not durable.
        content: digest of the bytes of all shards, and of all else that their sidecars are made from.
    """

    rows: int
    bytes: int
    shards: int
    shards_written: int
    rejects: dict[str, int]
    moved: int
    pending: int
    row_groups: int
    seconds: float
    problems: tuple[str, ...]
    content: str = ""

    def followed_by(self, later: "BucketShards") -> "BucketShards":
        """Returns how things stand after a later round, with the work of both. Pure."""
        return replace(
            later, shards_written=self.shards_written + later.shards_written, seconds=self.seconds + later.seconds
        )


@dataclass(frozen=True, slots=True)
class ShardsReport:
    """The shards step.

    Attributes:
        buckets: by key, of the buckets that were asked for.
        seconds: of the step.
    """

    buckets: dict[str, BucketShards]
    seconds: float

    def followed_by(self, later: "ShardsReport") -> "ShardsReport":
        """Returns both reports as one: of a bucket in both, how it stands later and the work of both. Pure."""
        again = {key: self.buckets[key].followed_by(later.buckets[key]) for key in self.buckets.keys() & later.buckets}
        return ShardsReport({**self.buckets, **later.buckets, **again}, self.seconds + later.seconds)


@dataclass(frozen=True, slots=True)
class MergedCounts:
    """One merged column over all sidecars of a bucket; see `MergedColumn`. matched + unmatched are all rows.

    Attributes:
        sources: where its values come from.
        matched: rows that the source knows.
        unmatched: rows that it does not.
        taken: rows whose value is the source's.
        bad_values: values of the source that the column cannot hold.
    """

    sources: tuple[str, ...]
    matched: int
    unmatched: int
    taken: int
    bad_values: int


@dataclass(frozen=True, slots=True)
class MergeSourceReport:
    """A keyed merge source as a whole.

    Attributes:
        source: its URIs, joined by a blank.
        rows: of the source.
        bad_lines: lines that hold no object.
        null_keys: rows without a key.
        unknown_keys: rows whose key the dataset does not have.
        repeated_rows: rows that repeat an earlier one of the same key and values.
    """

    source: str
    rows: int
    bad_lines: int
    null_keys: int
    unknown_keys: int
    repeated_rows: int


@dataclass(frozen=True, slots=True)
class BucketSidecars:
    """The sidecars of one bucket after a run.

    Attributes:
        rows: in the sidecars that are done.
        shards: planned.
        shards_written: by this run.
        null_counts: nulls by column.
        blocked: why they could not all be written, else None.
        merged: merged columns, by name.
        crops: captions after the crops, by size.
        content: digest of the bytes of all sidecars.
    """

    rows: int
    shards: int
    shards_written: int
    null_counts: dict[str, int]
    blocked: str | None
    merged: dict[str, MergedCounts] = field(default_factory=dict)
    crops: tuple[CropCounts, ...] = ()
    content: str = ""


@dataclass(frozen=True, slots=True)
class SidecarsReport:
    """The sidecars step, by bucket key, and the keyed merge sources that it used."""

    buckets: dict[str, BucketSidecars]
    seconds: float
    merge_sources: tuple[MergeSourceReport, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketResized:
    """The resized images of one bucket after a run.

    Attributes:
        rows: in the files that are done.
        bytes: of the resized images.
        shards: planned.
        shards_written: by this run.
        failed: rows without a resized image, by reason.
        blocked: why they could not all be made, else None.
        content: digest of the bytes of all files.
    """

    rows: int
    bytes: int
    shards: int
    shards_written: int
    failed: dict[str, int]
    blocked: str | None
    content: str = ""


@dataclass(frozen=True, slots=True)
class ResizedReport:
    """The step of resized images of one size, by bucket key."""

    size: int
    buckets: dict[str, BucketResized]
    seconds: float


@dataclass(frozen=True, slots=True)
class RetryReport:
    """Rejected rows that were tried again; those that succeeded wait for the next generation."""

    tried: int
    succeeded: int
    failed: dict[str, int]


@dataclass(frozen=True, slots=True)
class StoreWork:
    """What a step did to the stores, its tasks included; see `Stores.stats`."""

    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class HandoffReport:
    """The handoff step.

    Attributes:
        findings: why there is no handoff; empty where there is one.
        unchanged: whether it stood already.
        prefix: where it stands.
        files: URIs of what it consists of.
        shards: that were verified.
        rows: that were verified.
        seconds: of the step.
    """

    findings: tuple[Finding, ...]
    unchanged: bool
    prefix: str
    files: tuple[str, ...]
    shards: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was looked at, and what is wrong with it."""

    findings: tuple[Finding, ...]
    shards: int
    rows: int
    bytes: int
    seconds: float
