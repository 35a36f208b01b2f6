"""The arguments of every command. Imports nothing but argparse, so that `--help` answers at once."""

import argparse
from typing import NoReturn

from dataset_packaging import __version__

DESCRIPTION = "Pack image datasets on object storage into verified, bucketed Parquet shards."
EPILOG = """\
a first dataset:
  dataset-packaging init s3://bucket/photos/entry.jsonl   write photos.yaml, look at it, change it
  dataset-packaging plan photos.yaml                      what would be done, and what it would cost
  dataset-packaging pack photos.yaml                      do it; run it again after any interruption
  dataset-packaging verify photos.yaml                    re-read what landed
  dataset-packaging handoff photos.yaml                   write its card, statistics and sheets

exit codes: 0 done, 1 findings in the data, 2 wrong usage or configuration, 3 infrastructure failed
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands; pure."""
    parser = _Parser(
        prog="dataset-packaging",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.set_defaults(json=False, debug=False)
    _add_output_options(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_init(commands)
    _add_plan(commands)
    _add_pack(commands)
    _add_verify(commands)
    _add_rejects(commands)
    _add_inspect(commands)
    _add_schema(commands)
    _add_handoff(commands)
    _add_export(commands)
    _add_ui(commands)
    return parser


_Commands = argparse._SubParsersAction  # argparse exports no public name for what add_subparsers returns


def _add_command(commands: "_Commands[_Parser]", name: str, summary: str) -> _Parser:
    command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    _add_output_options(command)
    return command


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    # SUPPRESS: an option given before the command is not overwritten by the command's default.
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print a machine-readable summary on stdout"
    )
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )


def _add_dataset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", metavar="DATASET.yaml", help="the YAML file of one dataset")


def _add_execution_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="Ray cluster to run on, host:port or ray://host:port (default: $RAY_ADDRESS, else Ray on this machine)",
    )
    parser.add_argument("--no-progress", action="store_true", help="no progress bar and no progress lines on stderr")


def _add_storage_options(parser: argparse.ArgumentParser) -> None:
    storage = parser.add_argument_group("how to reach S3, where the defaults of the AWS SDK are not right")
    storage.add_argument("--s3-endpoint", metavar="URL", help="endpoint of an S3-compatible store")
    storage.add_argument("--s3-region", metavar="REGION", help="region of the bucket")
    storage.add_argument("--s3-profile", metavar="NAME", help="profile of the AWS configuration files")
    storage.add_argument("--s3-anonymous", action="store_true", help="send unsigned requests (public buckets)")


def _add_init(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "init", "look at a JSONL manifest and write a starter YAML with its fields mapped")
    parser.add_argument("manifest", metavar="MANIFEST", help="URI, path or glob of .jsonl files, plain, gzip or zstd")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the YAML file to write, - for stdout (default: NAME.yaml here)"
    )
    parser.add_argument("--name", help="name of the dataset (default: made from the manifest's name)")
    parser.add_argument(
        "--output-prefix",
        metavar="URI",
        help="where shards will stand (default: NAME_parquet beside the manifest on S3, else the YAML)",
    )
    parser.add_argument(
        "--sample-rows", type=_positive_int, default=4000, metavar="N", help="rows to look at (default: %(default)s)"
    )
    parser.add_argument("--no-fetch", action="store_true", help="do not look for the images of the sampled rows")
    parser.add_argument("--force", action="store_true", help="replace the YAML file if it exists")
    _add_storage_options(parser)


def _add_plan(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(
        commands, "plan", "say what pack would do: rows, buckets, shards, bytes, requests, cost; writes nothing"
    )
    _add_dataset(parser)
    parser.add_argument(
        "--sample",
        type=_positive_int,
        metavar="ROWS",
        help="tell it from so many rows, evenly spread, as if nothing were packed; takes seconds",
    )
    parser.add_argument(
        "--prices",
        metavar="FILE",
        help="JSON with get_per_1000, put_per_1000, list_per_1000 in dollars, where S3's list prices are not yours",
    )
    _add_execution_options(parser)


def _add_pack(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "pack", "pack a dataset: manifest, shards, sidecars; run it again to resume")
    _add_dataset(parser)
    parser.add_argument(
        "--retry-rejected",
        metavar="REASON",
        action="append",
        default=[],
        help="try rows rejected for this reason again, also a permanent one (may be repeated, or a,b,c)",
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="write every shard and sidecar anew, whatever stands there"
    )
    parser.add_argument(
        "--rewrite",
        action="store_true",
        help="allow a change that moves rows between existing shards; not while somebody reads them",
    )
    parser.add_argument("--limit", type=_positive_int, metavar="ROWS", help="a trial run: only the first ROWS rows")
    _add_execution_options(parser)


def _add_verify(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "verify", "re-read what landed and check everything; exit 1 on any finding")
    _add_dataset(parser)
    parser.add_argument("--deep", action="store_true", help="read and hash every image too")
    _add_execution_options(parser)


def _add_rejects(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "rejects", "count the rejected rows by reason and show examples")
    _add_dataset(parser)
    parser.add_argument("--reason", action="append", default=[], metavar="REASON", help="only this reason")
    parser.add_argument(
        "--examples", type=_natural_int, default=3, metavar="N", help="examples of each reason (default: %(default)s)"
    )
    parser.add_argument(
        "--retry", metavar="REASON", action="append", default=[], help="try the rows of this reason again, by a pack"
    )
    _add_execution_options(parser)


def _add_inspect(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "inspect", "show the schema, rows, row groups and codecs of a shard or a prefix")
    parser.add_argument("target", metavar="SHARD_OR_PREFIX", help="URI or path of a .parquet file or of a folder")
    parser.add_argument("--contact-sheet", metavar="OUT.png", help="draw at most 24 of the pictures into this file")
    parser.add_argument(
        "--dataset", metavar="DATASET.yaml", help="reach S3 as this dataset does (identities, Access Grants)"
    )
    parser.add_argument(
        "--max-footers",
        type=_positive_int,
        default=1000,
        metavar="N",
        help="read at most N footers of a prefix, evenly spread; beyond that rows are estimated (default: %(default)s)",
    )
    _add_storage_options(parser)


def _add_schema(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "schema", "export names and types of sidecars to a file, or compare two of them")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    sides = "a sidecar prefix, a .parquet file, an exported .json file or a DATASET.yaml"
    export = _add_command(actions, "export", "write the names and types of sidecars to a schema file")
    export.add_argument("source", nargs="?", metavar="SOURCE", help=f"{sides} (default: the columns of this version)")
    export.add_argument("-o", "--output", metavar="FILE", help="the file to write (default: stdout)")
    diff = _add_command(actions, "diff", "compare names and types of sidecars with a reference; exit 1 if they differ")
    diff.add_argument("reference", metavar="REFERENCE", help=sides)
    diff.add_argument("actual", metavar="ACTUAL", help="the same, to be held against it")
    for action in (export, diff):
        action.add_argument(
            "--dataset", metavar="DATASET.yaml", help="reach S3 as this dataset does (identities, Access Grants)"
        )
        _add_storage_options(action)


def _add_handoff(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "handoff", "verify it and write card, statistics and sheets for those who train")
    _add_dataset(parser)
    _add_execution_options(parser)


def _add_export(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "export", "lay a packed dataset out for another tool")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    hub = _add_command(actions, "hf", "verify it and lay it out as a repository of the Hugging Face Hub, with its card")
    tuner = _add_command(actions, "simpletuner", "verify it and write image files with SimpleTuner's Parquet metadata")
    for action in (hub, tuner):
        _add_dataset(action)
        action.add_argument("folder", metavar="DIR", help="folder to write; what is the same already is kept")
        _add_execution_options(action)


def _add_ui(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "ui", "serve the Dagster web UI over a folder of dataset YAML files")
    parser.add_argument(
        "--datasets-dir", metavar="DIR", help="folder of YAML files (default: $DATASETS_DIR, else examples/)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=3000, help="port to listen on (default: %(default)s)")


def _positive_int(text: str) -> int:
    number = _natural_int(text)
    if number == 0:
        raise argparse.ArgumentTypeError("expected a whole number of at least 1, got 0")
    return number


def _natural_int(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}")
    return int(text)


def _port(text: str) -> int:
    number = _natural_int(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 1 to 65535, got {text}")
    return number
