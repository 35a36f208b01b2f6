"""`ui`: the Dagster web UI over a folder of datasets."""

import argparse
from pathlib import Path

from dataset_packaging.cli.outcome import EXIT_DONE, Outcome
from dataset_packaging.cli.streams import tell
from dataset_packaging.config import read_runtime


def run(args: argparse.Namespace) -> Outcome:
    """Become the web UI; returns only where it could not be started."""
    from dataset_packaging.orchestration.web_ui import start_ui

    runtime = read_runtime()
    folder = Path(args.datasets_dir) if args.datasets_dir else runtime.datasets_dir
    if folder.is_dir():
        tell(f"datasets of {folder}; the page will be at http://{args.host}:{args.port}, Ctrl-C ends it")
    start_ui(folder, runtime.dagster_home, args.port, args.host)
    return Outcome(EXIT_DONE, "", {})
