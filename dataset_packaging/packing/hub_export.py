"""A dataset laid out as a repository of the Hugging Face Hub: shards and sidecars as two configurations, and a card.

`load_dataset(FOLDER)` and the viewer show the flat `image` column as pictures, since the card says that it holds some.
"""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_packaging.core.bucketing import Bucket
from dataset_packaging.core.layout import shard_name
from dataset_packaging.core.receipts import StoredObject
from dataset_packaging.core.schema import MAIN_SCHEMA, sidecar_schema
from dataset_packaging.errors import ConfigError, NotFound, NotHandedOff, PackagingError
from dataset_packaging.packing.dataset_card import CardFacts, hub_features, write_card
from dataset_packaging.packing.handoff import describe_landed, read_landed, summarize_landed
from dataset_packaging.packing.reports import StageClock
from dataset_packaging.packing.run import Run
from dataset_packaging.packing.verify_step import verify_dataset

_PART_SUFFIX = ".part"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file to copy: where it stands, and its place in the repository."""

    uri: str
    key: str
    object: StoredObject


@dataclass(frozen=True, slots=True)
class HubReport:
    """A repository that was laid out.

    Attributes:
        folder: of the repository.
        rows: of each configuration.
        files: shards and sidecars in it.
        copied: of which this call has written.
        bytes: of all of them.
    """

    folder: Path
    rows: int
    files: int
    copied: int
    bytes: int


def export_hub(run: Run, folder: Path) -> HubReport:
    """Verifies a dataset and lays it out below `folder`; shards that stand there already are kept.

    Each file appears whole or not at all; the card is written last. Raises NotHandedOff where the dataset has
    findings, ConfigError where the folder cannot be written or holds something else.
    """
    verified = verify_dataset(run, deep=False)
    if verified.findings:
        raise NotHandedOff(
            f"{run.dataset.name} is not handed off: {len(verified.findings)} findings, the first one: "
            f"{verified.findings[0]}; see `dataset-packaging verify`"
        )
    clock = StageClock("verify", "bytes", run.progress)
    landed = read_landed(run)
    files = list(_plan_files(run, landed.statuses))
    total = sum(file.object.size_bytes for file in files)
    _require_own_folder(folder, {file.key for file in files})
    copied = done = 0
    for file in files:
        copied += _copy(run, file, folder / file.key)
        done += file.object.size_bytes
        clock.report("copying to the repository", done, total, 0, done)
    _, stats, pictures = describe_landed(run, landed)
    (folder / "stats.png").write_bytes(pictures["stats.png"])
    shown = [("stats.png", "Buckets, sizes, ratios, bytes and null rates")]
    facts = CardFacts(stats, summarize_landed(run, landed), shown)
    (folder / "README.md").write_text(write_card(run.dataset, facts, _configurations(run, files, stats)), "utf-8")
    return HubReport(folder, int(stats["rows"]), len(files), copied, total)


def _plan_files(run: Run, statuses: Any) -> Iterator[HubFile]:
    """Yields shards with rows, each followed by its sidecar; empty shards are needed by nobody there."""
    for status in statuses:
        for shard, sidecar in zip(status.shards, status.sidecars, strict=True):
            if shard.receipt is None or sidecar.receipt is None or not shard.receipt.packed_rows:
                continue
            bucket, number = Bucket.parse(shard.receipt.bucket), shard.receipt.number
            key = f"{bucket.key}/{shard_name(number)}.parquet"
            yield HubFile(run.layout.shard_uri(bucket, number), f"data/{key}", shard.receipt.object)
            yield HubFile(run.layout.sidecar_uri(bucket, number), f"sidecar/{key}", sidecar.receipt.object)


def _require_own_folder(folder: Path, keys: set[str]) -> None:
    """Makes the folder; refuses one that holds Parquet files of something else: the Hub would show them as well."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be made: {error.strerror}") from error
    others = [path for path in sorted(folder.rglob("*.parquet")) if path.relative_to(folder).as_posix() not in keys]
    if others:
        raise ConfigError(f"{folder} holds {len(others)} Parquet files of something else, such as {others[0]}")


def _copy(run: Run, file: HubFile, target: Path) -> bool:
    """Copies one file unless the same bytes stand there; returns whether it did."""
    if target.exists() and target.stat().st_size == file.object.size_bytes and _sha256(target) == file.object.sha256:
        return False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + _PART_SUFFIX)
        with run.stores.open(file.uri) as source, part.open("wb") as sink:
            shutil.copyfileobj(source, sink, 8 << 20)
        part.replace(target)
    except NotFound as error:
        raise PackagingError(f"{file.uri} has vanished; run pack again") from error
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from error
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _configurations(run: Run, files: list[HubFile], stats: dict[str, Any]) -> dict[str, Any]:
    """Returns the front matter that tells the Hub what stands where: shards by default, sidecars as another one."""
    side = sidecar_schema(run.dataset.sidecar.extension_columns())
    infos: list[dict[str, Any]] = []
    configs: list[dict[str, Any]] = []
    for name, folder, schema in (("default", "data", MAIN_SCHEMA), ("sidecar", "sidecar", side)):
        size = sum(file.object.size_bytes for file in files if file.key.startswith(f"{folder}/"))
        infos.append(
            {
                "config_name": name,
                "features": hub_features(schema),
                "splits": [{"name": "train", "num_bytes": size, "num_examples": int(stats["rows"])}],
                "download_size": size,
                "dataset_size": size,
            }
        )
        configs.append({"config_name": name, "data_files": [{"split": "train", "path": f"{folder}/**/*.parquet"}]})
    configs[0]["default"] = True
    return {"dataset_info": infos, "configs": configs}
