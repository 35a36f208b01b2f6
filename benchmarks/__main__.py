"""Runs floors, ours and peers in turn on one corpus and tells medians and ratios.

`python -m benchmarks` runs everything in three rounds, and writes the table and the plot of docs/performance.md;
`--quick` ours and the floors in two rounds, on a quarter of the pictures and as many rows; `--folder DIRECTORY` on the
images below a directory instead.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.corpus import CorpusSpec, build_corpus, list_folder
from benchmarks.environments import PEERS, NotInstalledError, install, last_line
from benchmarks.report import FLOOR, OURS, PILLOW_FLOOR, Line, format_doubts, format_table, summarize, write_plot
from benchmarks.tree import Measured, measure

_HERE = Path(__file__).parent
_DOCUMENT = _HERE.parent / "docs" / "performance.md"
_MARKS = ("<!-- results: written by `make bench` -->", "<!-- end of results -->")
_PACKAGES = ("ray", "pyarrow", "pillow", "simplejpeg", "isal", "imagecodecs", "numpy")
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Contestant:
    """A command of the table, and the folder that it may fill."""

    name: str
    command: tuple[str, ...]
    folder: Path


def main(arguments: Sequence[str]) -> int:
    """Builds the corpus, runs the rounds, prints and writes the table; 1 where ours did not finish."""
    options = _parse(arguments)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    manifest = _manifest(options, out)
    contestants, missing = _contestants(manifest, out, quick=options.quick)
    runs: dict[str, list[Measured]] = {contestant.name: [] for contestant in contestants}
    for number in range(options.rounds):
        for contestant in contestants:
            _say(f"round {number + 1} of {options.rounds}: {contestant.name}")
            runs[contestant.name].append(_run(contestant, out))
    lines = [line for name, measured in runs.items() if (line := summarize(name, measured)) is not None]
    finished = {line.name for line in lines}
    missing |= {
        name: _failure(measured[-1], _log(out, name)) for name, measured in runs.items() if name not in finished
    }
    report = _report(lines, missing, manifest, options.rounds)
    print(report)
    _write_results(out, runs, report)
    if FLOOR not in runs or OURS in missing:
        return 1
    if not options.quick and options.folder is None:
        _write_document(lines, report)
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="ours and the floors, under two minutes")
    parser.add_argument("--rounds", type=int, help="by default 3; 2 with --quick")
    parser.add_argument("--folder", type=Path, help="take the images below this directory")
    parser.add_argument("--out", type=Path, default=_HERE / "out", help="corpus, environments, results")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (2 if options.quick else 3)
    return options


def _manifest(options: argparse.Namespace, out: Path) -> Path:
    if options.folder is not None:
        return list_folder(options.folder.resolve(), out / "folder.jsonl")
    spec = CorpusSpec(images=175, repeats=8) if options.quick else CorpusSpec()
    _say(f"the corpus: {spec.name}")
    return build_corpus(out, spec)


def _contestants(manifest: Path, out: Path, *, quick: bool) -> tuple[list[Contestant], dict[str, str]]:
    """Returns who takes part, and for those who cannot be installed here why."""

    def own(name: str, module: str, *arguments: str) -> Contestant:
        return Contestant(name, (sys.executable, "-m", f"benchmarks.{module}", *arguments), out / "job")

    found = [
        own(FLOOR, "floors", "strict", str(manifest)),
        own(PILLOW_FLOOR, "floors", "pillow", str(manifest)),
        own(OURS, "ours", str(manifest), str(out / "job")),
    ]
    missing: dict[str, str] = {}
    for peer in () if quick else PEERS:
        _say(f"the environment of {peer.name}")
        try:
            python = install(peer, out / "environments")
        except NotInstalledError as error:
            missing[peer.name] = f"cannot be installed here: {error}"
            continue
        command = (str(python), str(_HERE / "peers" / peer.script), str(manifest), str(out / "job"), *peer.arguments)
        found.append(Contestant(peer.name, command, out / "job"))
    return found, missing


def _log(out: Path, name: str) -> Path:
    return out / f"{''.join(letter if letter.isalnum() else '-' for letter in name)}.log"


def _failure(measured: Measured, log: Path) -> str:
    if measured.wall_s >= _TIMEOUT_S:
        return f"not done after {_TIMEOUT_S} s"
    return f"exit code {measured.exit_code}: {last_line(log)}"


def _run(contestant: Contestant, out: Path) -> Measured:
    shutil.rmtree(contestant.folder, ignore_errors=True)
    contestant.folder.mkdir()
    os.sync()
    log = _log(out, contestant.name)
    measured = measure(list(contestant.command), {}, log, _TIMEOUT_S)
    shutil.rmtree(contestant.folder, ignore_errors=True)
    if measured.exit_code:
        _say(f"  failed with exit code {measured.exit_code}: see {log}")
    return measured


def _report(lines: list[Line], missing: dict[str, str], manifest: Path, rounds: int) -> str:
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    size_bytes = sum(Path(row["s3_image_path"].removeprefix("file://")).stat().st_size for row in rows)
    megapixels = sum(row["width"] * row["height"] for row in rows) / 1e6
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    parts = [
        f"{len(rows):,} files, {size_bytes / 1e9:.2f} GB, {megapixels:,.0f} MP; {rounds} rounds in turn, medians; "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {versions}.",
        format_table(lines) if {FLOOR, PILLOW_FLOOR} <= {line.name for line in lines} else "The floors did not finish.",
        format_doubts(lines),
        "\n".join(f"- Not in the table: {name} ({reason})" for name, reason in missing.items()),
    ]
    return "\n\n".join(part for part in parts if part)


def _write_results(out: Path, runs: dict[str, list[Measured]], report: str) -> None:
    figures = {name: [dataclasses.asdict(run) for run in measured] for name, measured in runs.items()}
    (out / "results.json").write_text(json.dumps(figures, indent=1))
    (out / "results.md").write_text(report + "\n")


def _write_document(lines: list[Line], report: str) -> None:
    write_plot(lines, _DOCUMENT.with_suffix(".svg"))
    text = _DOCUMENT.read_text()
    before, after = text.split(_MARKS[0])[0], text.split(_MARKS[1])[1]
    _DOCUMENT.write_text(f"{before}{_MARKS[0]}\n\n{report}\n\n{_MARKS[1]}{after}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
