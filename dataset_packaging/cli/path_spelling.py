"""Paths of a manifest that are spelled otherwise than their files: by Windows, or percent-encoded. Pure.

Packing takes paths as they stand, since names of objects may hold `\\` and `%20`. `init` tells what it finds.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote

HOW_TO = "rewrite the manifest, see 'Paths that are spelled otherwise' in docs/cli.md"

_WINDOWS_DISK = re.compile(r"(?:file:///)?[A-Za-z]:[\\/]")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a path is spelled, and how its file is probably named.

    Attributes:
        path: as the file is probably named.
        wrong: what is odd, in a few words; empty if nothing is.
    """

    path: str
    wrong: str


def respell(path: str) -> Spelling:
    """Return the path with `/` between folders and percent-encoding resolved; pure."""
    slashed = path.replace("\\", "/")
    decoded = unquote(slashed)
    wrong = [
        *(["has backslashes"] if slashed != path else []),
        *(["is percent-encoded"] if decoded != slashed else []),
    ]
    return Spelling(decoded, " and ".join(wrong))


def is_on_windows_disk(path: str) -> bool:
    """Return whether a path starts at a disk letter, as `D:\\images`; pure."""
    return _WINDOWS_DISK.match(path) is not None
