"""`pack`: manifest to shards to sidecars, as a run of the Dagster job in this process."""

import argparse
import logging
from collections import Counter
from pathlib import Path

from dataset_packaging.cli.execution import read_execution_options, read_pipeline, require_reasons
from dataset_packaging.cli.outcome import EXIT_DONE, EXIT_FINDINGS, Outcome
from dataset_packaging.cli.pack_report import CheckFailure, PackResult, render_result, summarize_result
from dataset_packaging.cli.progress import open_progress
from dataset_packaging.cli.streams import only_own_output
from dataset_packaging.config import DatasetConfig, load_dataset
from dataset_packaging.core.ledger import REJECT_REASONS
from dataset_packaging.packing.log_relay import relayed_logs
from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging.packing.reports import RunOptions

WARNINGS_SHOWN = 5


def run(args: argparse.Namespace) -> Outcome:
    """Pack what is not packed yet; safe to repeat and to interrupt."""
    options = RunOptions(
        rewrite=args.rewrite,
        rebuild=args.rebuild,
        retry_rejected=require_reasons("--retry-rejected", args.retry_rejected, REJECT_REASONS),
        limit_rows=args.limit,
    )
    return pack_dataset(args, options)


def pack_dataset(args: argparse.Namespace, options: RunOptions) -> Outcome:
    """Run the job with these options and say what came of it; without options only if something is to be done."""
    dataset = load_dataset(args.dataset)
    pipeline = read_pipeline(dataset)
    if options == RunOptions():
        idle = _find_idle(dataset, pipeline)
        if idle is not None:
            return idle
    pipeline.require_startable(options)
    # Imported here: where there is nothing to do, half of the time would go into loading Dagster.
    from dataset_packaging.orchestration.instance import open_instance
    from dataset_packaging.orchestration.local_runs import run_packaging

    runtime = read_execution_options(args)
    warnings: list[str] = []
    with (
        relayed_logs(lambda level, text: warnings.append(text) if level >= logging.WARNING else None),
        only_own_output(enabled=not args.debug) as stream,
        open_progress(stream, enabled=not args.no_progress) as progress,
        open_instance(runtime.dagster_home) as instance,
    ):
        packed = run_packaging(
            Path(args.dataset), instance, options, progress=progress, runtime=runtime, assume_due=True
        )
    failed_checks = tuple(CheckFailure(check.check, check.bucket, check.detail) for check in packed.failed_checks)
    result = PackResult(
        idle=False,
        message=packed.message,
        run_ids=packed.run_ids,
        ledger=packed.ledger,
        plan=packed.plan,
        manifest=packed.manifest,
        shards=packed.shards,
        resized=packed.resized,
        sidecars=packed.sidecars,
        failed_checks=failed_checks,
        counts=Counter(packed.counts) + Counter(pipeline.counts()),
    )
    notes = tuple(f"dataset-packaging {args.command}: {said}" for said in (*_first(warnings), packed.message) if said)
    return Outcome(packed.exit_code, render_result(dataset, result), summarize_result(dataset, result), notes)


def _first(warnings: list[str]) -> list[str]:
    """Return the first few different warnings, and where all stand if there are more; pure."""
    different = list(dict.fromkeys(warnings))
    more = len(different) - WARNINGS_SHOWN
    return [*different[:WARNINGS_SHOWN], *([f"and {more} more warnings, in the log of the run"] if more > 0 else [])]


def _find_idle(dataset: DatasetConfig, pipeline: Pipeline) -> Outcome | None:
    """Say that there is nothing to do, and what is wrong with the data nevertheless; None where something is due."""
    message = pipeline.is_up_to_date()
    if message is None:
        return None
    findings = [CheckFailure(found.check, found.bucket, found.detail) for found in pipeline.check_reject_fraction()]
    result = PackResult(
        idle=True,
        message=message,
        run_ids=(),
        ledger=pipeline.ledger(),
        manifest=None,
        shards=None,
        sidecars=None,
        failed_checks=tuple(findings),
        counts=pipeline.counts(),
    )
    exit_code = EXIT_FINDINGS if findings else EXIT_DONE
    return Outcome(exit_code, render_result(dataset, result), summarize_result(dataset, result))
