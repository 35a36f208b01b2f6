"""What a launch may ask for beyond its partitions, as typed configuration of the launchpad."""

from typing import Any

import dagster as dg
from pydantic import Field, field_validator

from dataset_packaging.core.ledger import REJECT_REASONS
from dataset_packaging.packing.reports import RunOptions


class RunOptionsResource(dg.ConfigurableResource[Any]):
    """Options of one run, the same for its manifest, shards and sidecars."""

    retry_rejected: list[str] = Field(
        default_factory=list,
        description="Reject reasons whose rows are tried again, for example [not_found, decoder_timeout]. "
        f"Transient ones (fetch_failed, access_denied) always are. Known: {', '.join(REJECT_REASONS)}.",
    )
    rebuild: bool = Field(
        default=False,
        description="Write every shard and sidecar of the run anew, whatever stands there. Without it only what is "
        "missing or damaged is written.",
    )
    rewrite: bool = Field(
        default=False,
        description="Allow a change that moves rows between shards that are already published; not safe while they are "
        "read.",
    )
    limit_rows: int | None = Field(
        default=None,
        ge=1,
        description="Trial run: take only the first rows of the manifest, at least 1. Empty for all rows.",
    )

    @field_validator("retry_rejected")
    @classmethod
    def _require_known_reasons(cls, reasons: list[str]) -> list[str]:
        for reason in reasons:
            if reason not in REJECT_REASONS:
                raise ValueError(f"{reason!r} is not a reject reason; expected one of: {', '.join(REJECT_REASONS)}")
        return reasons

    def to_options(self) -> RunOptions:
        """Return the options as the pipeline takes them; pure."""
        return RunOptions(
            rewrite=self.rewrite,
            rebuild=self.rebuild,
            retry_rejected=tuple(self.retry_rejected),
            limit_rows=self.limit_rows,
        )


def options_config(options: RunOptions) -> dict[str, object]:
    """Return the options as configuration of the resource; pure."""
    stated = {"rewrite": options.rewrite, "rebuild": options.rebuild, "retry_rejected": list(options.retry_rejected)}
    return stated if options.limit_rows is None else {**stated, "limit_rows": options.limit_rows}
