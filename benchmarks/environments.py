"""An environment of its own for each peer: its pins may contradict ours and each other's."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Peer:
    """Another library that can do the job.

    Attributes:
        name: in the table.
        script: below `peers/`.
        requirements: what its environment holds.
        arguments: after manifest and folder.
    """

    name: str
    script: str
    requirements: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    @property
    def environment(self) -> str:
        """Names the folder of its environment."""
        return Path(self.script).stem


_IMG2DATASET = ("img2dataset==1.47.0", "pillow==13.0.0", "setuptools<81")

PEERS = (
    Peer("webdataset ShardWriter", "webdataset_writer.py", ("webdataset==1.0.2", "pillow==13.0.0")),
    Peer("mosaicml-streaming MDSWriter", "streaming_writer.py", ("mosaicml-streaming==0.13.0", "pillow==13.0.0")),
    Peer("Hugging Face datasets", "datasets_map.py", ("datasets==5.2.0", "pillow==13.0.0")),
    Peer("Ray Data", "ray_data.py", ("ray[data]==2.60.0", "pillow==13.0.0")),
    Peer("daft", "daft_frame.py", ("daft==0.7.26", "pyarrow==25.0.1", "pillow==13.0.0")),
    Peer("img2dataset", "img2dataset_download.py", _IMG2DATASET),
    Peer("img2dataset, no re-encoding, no check", "img2dataset_download.py", _IMG2DATASET, ("raw",)),
)


class NotInstalledError(Exception):
    """A peer cannot be installed here; the message is the last line that its installation wrote."""


def install(peer: Peer, folder: Path) -> Path:
    """Returns the peer's interpreter, installing it where it is missing. Raises NotInstalledError."""
    root = folder / peer.environment
    python, stamp = root / "bin" / "python", root / "installed.txt"
    wanted = "\n".join(peer.requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    root.parent.mkdir(parents=True, exist_ok=True)
    log = root.with_suffix(".log")
    with log.open("w") as file:
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(root)],
            [str(python), "-m", "pip", "install", "--quiet", *peer.requirements],
        ):
            if subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode:
                raise NotInstalledError(last_line(log))
    stamp.write_text(wanted)
    return python


def last_line(log: Path) -> str:
    """Returns the last line of a log that says something, as far as a table has room for it."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"
