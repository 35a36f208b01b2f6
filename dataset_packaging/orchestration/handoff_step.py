"""The step that hands a dataset off: written where every check holds, else it fails and there is none."""

import dagster as dg

from dataset_packaging.orchestration.failures import EXIT_CODE, EXIT_FINDINGS, failures_explained
from dataset_packaging.orchestration.metadata import describe_finding, describe_handoff, describe_requests
from dataset_packaging.orchestration.step import Step, StepEvents
from dataset_packaging.orchestration.versions import handoff_version


def write_handoff(step: Step) -> StepEvents:
    """Verify everything that landed and write the handoff. Repeating it for the same dataset writes nothing.

    A run over some of the buckets that leaves rows of others pending hands nothing off, which is no failure.

    Raises:
        Failure: a check does not hold, so that there is no handoff any more; or the store or the workers failed.
    """
    with failures_explained():
        pending = step.pipeline.ledger().total.pending
        if pending and step.keys.shards in step.context.job_def.asset_layer.selected_asset_keys:
            step.context.log.info(f"Nothing is handed off: {pending} rows are pending; materialise all partitions.")
            return
        report = step.pipeline.write_handoff()
        step.finish(report)
        told = step.pipeline.read_handoff_files() if not report.findings else None
    if told is None:
        first = "; ".join(describe_finding(finding) for finding in report.findings[:3])
        more = f"; and {len(report.findings) - 3} more" if len(report.findings) > 3 else ""
        raise dg.Failure(
            f"{step.dataset.name} is not handed off: {first}{more}",
            metadata={EXIT_CODE: dg.MetadataValue.int(EXIT_FINDINGS)},
            allow_retries=False,
        )
    yield dg.MaterializeResult(
        asset_key=step.keys.handoff,
        metadata={**describe_handoff(report, told), **describe_requests(step.pipeline.counts())},
        data_version=dg.DataVersion(handoff_version(told.summary)),
    )
