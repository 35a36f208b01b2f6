"""From runs to a table and a plot: medians, ratios to the floors, memory, damage found. Pure but for `write_plot`."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tree import Measured

FLOOR = "floor: strict and fast, two processes, nothing written"
PILLOW_FLOOR = "floor: Pillow load(), two processes, nothing written"
OURS = "dataset-packaging"
BUSY_CORES = 0.2


@dataclass(frozen=True, slots=True)
class Line:
    """One contestant of the table; times in seconds, `found` counts the rows that were refused."""

    name: str
    job_s: float
    fastest_s: float
    slowest_s: float
    start_s: float
    job_cpu_s: float
    peak_pss_mb: float
    rows: int
    found: int
    others_cores: float


def summarize(name: str, runs: Sequence[Measured]) -> Line | None:
    """Returns the medians of the runs that succeeded, or None where none did."""
    good = [run for run in runs if run.exit_code == 0 and "job_s" in run.figures]
    if not good:
        return None
    jobs = [run.figures["job_s"] for run in good]
    return Line(
        name,
        statistics.median(jobs),
        min(jobs),
        max(jobs),
        statistics.median(run.figures.get("start_s", run.wall_s - run.figures["job_s"]) for run in good),
        statistics.median(run.figures.get("job_cpu_s", run.cpu_s) for run in good),
        statistics.median(run.peak_pss_mb for run in good),
        int(good[-1].figures["rows"]),
        int(good[-1].figures["refused"]),
        statistics.median(run.others_cores for run in good),
    )


def format_table(lines: Sequence[Line]) -> str:
    """Returns a Markdown table; ratios are to the two floors of the same runs."""
    times = {line.name: line.job_s for line in lines}
    floor, pillow = times[FLOOR], times[PILLOW_FLOOR]
    head = (
        "| | job s (range) | × strict floor | × Pillow floor | CPU s (peers: start included) | start s | peak PSS MB "
        "| packed | refused |\n|---|---|---|---|---|---|---|---|---|"
    )
    rows = [
        f"| {line.name} | {line.job_s:.1f} ({line.fastest_s:.1f} to {line.slowest_s:.1f}) | {line.job_s / floor:.2f} "
        f"| {line.job_s / pillow:.2f} | {line.job_cpu_s:.1f} | {line.start_s:.1f} | {line.peak_pss_mb:,.0f} "
        f"| {line.rows:,} | {line.found} |"
        for line in lines
    ]
    return "\n".join([head, *rows])


def format_doubts(lines: Sequence[Line]) -> str:
    """Names the contestants that had to share the machine; empty where none had."""
    busy = [f"{line.name} ({line.others_cores:.1f})" for line in lines if line.others_cores > BUSY_CORES]
    if not busy:
        return ""
    return f"Other processes kept so many cores busy meanwhile, and the times are in doubt: {', '.join(busy)}."


def write_plot(lines: Sequence[Line], path: Path) -> None:
    """Draws the job times as bars, the strict floor as a line."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "benchmarks"
    from matplotlib import pyplot

    ordered = sorted(lines, key=lambda line: -line.job_s)
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(ordered) + 1.2))
    colours = ["tab:blue" if line.name.startswith(OURS) else "tab:gray" for line in ordered]
    bars = axes.barh([line.name for line in ordered], [line.job_s for line in ordered], color=colours)
    axes.bar_label(bars, [f"{line.job_s:.1f} s, {line.found} refused" for line in ordered], padding=3, fontsize=8)
    floor = next(line.job_s for line in lines if line.name == FLOOR)
    axes.axvline(floor, color="black", linestyle=":", linewidth=1)
    axes.set_xlabel("seconds of the job, start apart; dotted: the strict floor")
    axes.margins(x=0.25)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
