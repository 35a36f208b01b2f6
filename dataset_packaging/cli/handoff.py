"""`handoff`: a packed dataset verified, with its card, statistics and sheets, as a run of its Dagster asset."""

import argparse
from pathlib import Path

from dataset_packaging.cli.execution import read_execution_options, read_pipeline
from dataset_packaging.cli.outcome import JsonValue, Outcome
from dataset_packaging.cli.progress import open_progress
from dataset_packaging.cli.streams import only_own_output
from dataset_packaging.cli.tables import format_count, format_items
from dataset_packaging.cli.verify import render_findings, summarize_findings
from dataset_packaging.config import load_dataset
from dataset_packaging.packing.reports import HandoffReport


def run(args: argparse.Namespace) -> Outcome:
    """Hand a dataset off where every check holds; an earlier handoff is removed where one does not."""
    dataset = load_dataset(args.dataset)
    read_pipeline(dataset).require_packed()  # before there is a Dagster instance
    from dataset_packaging.orchestration.instance import open_instance
    from dataset_packaging.orchestration.local_runs import run_handoff
    from dataset_packaging.orchestration.resources import RayCluster

    runtime = read_execution_options(args)
    with (
        only_own_output(enabled=not args.debug) as stream,
        open_progress(stream, enabled=not args.no_progress) as progress,
        open_instance(runtime.dagster_home) as instance,
    ):
        outcome = run_handoff(Path(args.dataset), instance, progress, RayCluster.of(runtime))
    report = outcome.report
    summary: dict[str, JsonValue] = {
        "dataset": dataset.name,
        "run_id": outcome.run_id,
        "handed_off": outcome.exit_code == 0,
        "message": outcome.message,
        "prefix": report.prefix if report else None,
        "files": [*report.files] if report else [],
        "rows": report.rows if report else None,
        "shards": report.shards if report else None,
        "unchanged": report.unchanged if report else None,
        "findings": summarize_findings(report.findings) if report else [],
    }
    notes = (f"dataset-packaging handoff: {outcome.message}",) if outcome.message else ()
    return Outcome(outcome.exit_code, _render(dataset.name, report) if report else "", summary, notes)


def _render(name: str, report: HandoffReport) -> str:
    if report.findings:
        return render_findings(report.findings)
    told = "stands already as it is" if report.unchanged else "is written"
    return (
        f"{name}: every check holds over {format_items(report.rows, 'row')} in {format_items(report.shards, 'shard')}; "
        f"the handoff of {format_count(len(report.files))} files {told}\n"
        f"card: {report.prefix}README.md\n"
    )
