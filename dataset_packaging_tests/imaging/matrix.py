"""The corruption matrix: how many damaged files each integrity refuses. Run as a module, it prints the table."""

from collections.abc import Sequence
from dataclasses import dataclass

from dataset_packaging.imaging.verify import verify_image
from dataset_packaging_tests.imaging.damage import (
    Case,
    Sample,
    damaged,
    jpeg_samples,
    png_samples,
    webp_samples,
)
from dataset_packaging_tests.imaging.samples import LOAD, STRICT


@dataclass(frozen=True, slots=True)
class Outcome:
    """One damaged file and the reasons that the two integrities give, None for accepted."""

    case: Case
    load: str | None
    strict: str | None


def outcomes(samples: Sequence[Sample]) -> list[Outcome]:
    """Judge every damaged version of every sample under both integrities."""
    return [
        Outcome(case, verify_image(case.data, LOAD).reason, verify_image(case.data, STRICT).reason)
        for sample in samples
        for case in damaged(sample)
    ]


def table_rows() -> list[tuple[str, str, int, int, int]]:
    """List format, kind of damage, files, refused by ``load``, refused by ``strict``; a total ends each format."""
    rows = []
    for name, samples in (("JPEG", jpeg_samples()), ("PNG", png_samples()), ("WebP", webp_samples())):
        judged = outcomes(samples)
        kinds = list(dict.fromkeys(outcome.case.kind for outcome in judged))
        for kind in (*kinds, "all"):
            chosen = [outcome for outcome in judged if kind in (outcome.case.kind, "all")]
            load, strict = (sum(reason is not None for reason in reasons) for reasons in zip(
                *((outcome.load, outcome.strict) for outcome in chosen), strict=True))  # fmt: skip
            rows.append((name, kind, len(chosen), load, strict))
    return rows


def markdown() -> str:
    """Write the table as it stands in docs/integrity.md."""
    lines = ["| format | damage | files | refused by `load` | refused by `strict` |", "|---|---|---:|---:|---:|"]
    for name, kind, files, load, strict in table_rows():
        mark = "**" if kind == "all" else ""
        lines.append(f"| {name} | {mark}{kind}{mark} | {files} | {load} | {mark}{strict}{mark} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())
