"""Small datasets of real photographs in a local folder, and what the tests do with them: pack, look, damage."""

import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import skimage
from PIL import Image

from dataset_packaging.config import DatasetConfig, load_dataset
from dataset_packaging.core.ledger import Ledger
from dataset_packaging.packing.executor import Executor, SerialExecutor
from dataset_packaging.packing.pipeline import BUCKET_KEYS, MAX_ROUNDS, Pipeline
from dataset_packaging.packing.reports import RunOptions, SilentProgress

_SOURCES = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "retina.jpg", "hubble_deep_field.jpg")
_SIZES = ((96, 96), (120, 80), (96, 96), (80, 120), (96, 96), (120, 80), (160, 90))
_FORMATS = (("jpg", "JPEG", {"quality": 80}), ("jpg", "JPEG", {"quality": 70, "progressive": True}))
_FORMATS_IN_TURN = (*_FORMATS, *_FORMATS, _FORMATS[0], ("png", "PNG", {}), ("webp", "WEBP", {"quality": 60}))

_RUN_NUMBERS = itertools.count(1)


@cache
def _source(name: str) -> Image.Image:
    with Image.open(Path(skimage.__file__).parent / "data" / name) as image:
        return image.convert("RGB")


@dataclass(frozen=True, slots=True)
class Photo:
    """An encoded photograph: a crop of one of scikit-image's, different for each number."""

    data: bytes
    width_px: int
    height_px: int
    suffix: str


@cache
def photo(number: int, size: tuple[int, int] | None = None) -> Photo:
    """Returns photograph `number`; the same bytes each time. Sizes and formats come in turn."""
    source = _source(_SOURCES[number % len(_SOURCES)])
    width, height = size or _SIZES[number % len(_SIZES)]
    suffix, format_name, options = _FORMATS_IN_TURN[(number // 3) % len(_FORMATS_IN_TURN)]
    scale = 2 if 2 * max(width, height) + 40 <= min(source.size) else 1
    left = (number * 37) % max(1, source.width - scale * width)
    top = (number * 53) % max(1, source.height - scale * height)
    crop = source.crop((left, top, left + scale * width, top + scale * height)).resize((width, height))
    buffer = io.BytesIO()
    crop.save(buffer, format_name, **options)
    return Photo(buffer.getvalue(), width, height, suffix)


@dataclass(slots=True)
class Row:
    """One line of the manifest; `size` None: the line tells none."""

    key: str
    path: str
    caption: str
    size: tuple[int, int] | None
    extra: dict[str, object] = field(default_factory=dict)

    def line(self) -> str:
        """Returns the JSON text."""
        fields: dict[str, object] = {"id": self.key, "image_uri": self.path, "caption": self.caption, **self.extra}
        if self.size is not None:
            fields |= {"width": self.size[0], "height": self.size[1]}
        return json.dumps(fields, ensure_ascii=False)


YAML = """
name: {name}
manifest: {manifest}
output_prefix: {output}/main
sidecar_prefix: {output}/side
work_prefix: {output}/work
mapping:
  direct: {{image_key: id, full_description: {{from: caption, cast: list_string}}{direct_more}}}
  base_uri: {images}/
images: {{integrity: {integrity}, max_rejected_fraction: 1.0, decode_timeout_s: {decode_timeout_s}{images_more}}}
packing: {{shard_size: {shard_size}, row_group_bytes: {row_group_bytes}}}
{more}
"""


@dataclass(slots=True)
class PhotoDataset:
    """A manifest, its images and its YAML below one folder.

    Attributes:
        root: holds `manifest.jsonl`, `images/`, `dataset.yaml` and, by default, the output in `packed/`.
        rows: lines of the manifest, in order; texts are taken as they are (broken lines).
        output: folder of the three prefixes, relative to the root, or a URI.
        settings: fields of the YAML that tests change.
    """

    root: Path
    rows: list[Row | str] = field(default_factory=list)
    name: str = "photos"
    output: str = "packed"
    images: str = "images"
    manifest: str = "manifest.jsonl"
    settings: dict[str, object] = field(default_factory=dict)

    def add_photos(self, count: int, *, sizes: bool = True, size: tuple[int, int] | None = None) -> list[Row]:
        """Adds photographs with their lines; returns the lines."""
        start = len(self.rows)
        added = [self.photo_row(start + number, sizes=sizes, size=size) for number in range(count)]
        self.rows.extend(added)
        return added

    def photo_row(self, number: int, *, sizes: bool = True, size: tuple[int, int] | None = None) -> Row:
        """Writes photograph `number` and returns a line for it, which is not in the manifest yet."""
        made = photo(number, size)
        path = f"{number:05d}.{made.suffix}"
        self.write_image(path, made.data)
        return Row(f"k{number}", path, f"photograph {number}", (made.width_px, made.height_px) if sizes else None)

    def write_image(self, path: str, data: bytes) -> None:
        """Writes or replaces the object at a path of the manifest."""
        target = self.image_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def image_path(self, path: str) -> Path:
        """Returns where the object of a path stands."""
        return self.root / self.images / path

    def row(self, key: str) -> Row:
        """Returns the first line of a key."""
        return next(row for row in self.rows if isinstance(row, Row) and row.key == key)

    def config(self) -> DatasetConfig:
        """Writes manifest and YAML and loads them."""
        self.root.mkdir(parents=True, exist_ok=True)
        if "://" not in self.manifest:
            lines = [row if isinstance(row, str) else row.line() for row in self.rows]
            text = "".join(f"{line}\n" for line in lines)
            path = self.root / self.manifest
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
        return load_dataset(self.write_yaml())

    def write_yaml(self) -> Path:
        """Writes the YAML and returns its path."""
        values: dict[str, object] = {
            "integrity": "strict",
            "shard_size": 8,
            "row_group_bytes": 8192,
            "decode_timeout_s": 30.0,
            "direct_more": "",
            "images_more": "",
            "more": "",
            **self.settings,
        }
        places = {"name": self.name, "manifest": self.manifest, "output": self.output, "images": self.images}
        self.yaml.write_text(YAML.format(**places, **values), encoding="utf-8")
        return self.yaml

    @property
    def yaml(self) -> Path:
        """The dataset's file."""
        return self.root / "dataset.yaml"

    @property
    def packed(self) -> Path:
        """The folder of the three prefixes."""
        return self.root / self.output

    def shards(self) -> list[str]:
        """Returns the main shards, as paths below the prefix."""
        main = self.packed / "main"
        return sorted(path.relative_to(main).as_posix() for path in main.rglob("*.parquet"))


@dataclass(frozen=True, slots=True)
class Packed:
    """What a run did.

    Attributes:
        generation: that is current.
        written: (bucket, shards written), of the buckets in which some were.
        sidecars: sidecars written.
        problems: why shards or sidecars are not there.
        ledger: the balance.
    """

    generation: int
    written: dict[str, int]
    sidecars: int
    problems: tuple[str, ...]
    ledger: Ledger


OpenExecutor = Callable[[], AbstractContextManager[Executor]]


def serial() -> AbstractContextManager[Executor]:
    """Opens the executor that runs tasks here."""
    return nullcontext(SerialExecutor())


def open_pipeline(dataset: DatasetConfig, run_id: str = "", executor: OpenExecutor = serial) -> Pipeline:
    """Opens a pipeline under a run id that nobody has used."""
    return Pipeline(dataset, executor, SilentProgress(), run_id or f"run-{next(_RUN_NUMBERS)}")


def pack(
    dataset: PhotoDataset | DatasetConfig,
    options: RunOptions = RunOptions(),  # noqa: B008
    *,
    executor: OpenExecutor = serial,
    keys: Sequence[str] = BUCKET_KEYS,
) -> Packed:
    """Packs as the command does: manifest, shards, rounds for moved rows, sidecars."""
    config = dataset.config() if isinstance(dataset, PhotoDataset) else dataset
    written: dict[str, int] = {}
    problems: list[str] = []
    with open_pipeline(config, executor=executor) as pipeline:
        manifest = pipeline.build_manifest(options)
        for _ in range(MAX_ROUNDS):
            report = pipeline.pack_buckets(keys, options)
            options = RunOptions()
            for key, bucket in report.buckets.items():
                if bucket.shards_written:
                    written[key] = written.get(key, 0) + bucket.shards_written
                problems += bucket.problems
            if not pipeline.needs_another_round():
                break
            manifest = pipeline.build_manifest()
        side = pipeline.write_sidecars(keys)
        problems += [bucket.blocked for bucket in side.buckets.values() if bucket.blocked]
        sidecars = sum(bucket.shards_written for bucket in side.buckets.values())
        return Packed(manifest.generation, written, sidecars, tuple(problems), pipeline.ledger())


@dataclass(frozen=True, slots=True)
class FileState:
    """A file: the hash of its bytes, and when it was written."""

    sha256: str
    mtime_ns: int


def states(folder: Path) -> dict[str, FileState]:
    """Returns every file below a folder, hidden ones included."""
    return {
        path.relative_to(folder).as_posix(): FileState(
            hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def contents(dataset: PhotoDataset) -> dict[str, str]:
    """Returns the hash of everything that readers see, and of the reject lists and the ledger."""
    parts = ("main/", "side/", "work/rejects/", "work/ledger")
    return {name: state.sha256 for name, state in states(dataset.packed).items() if name.startswith(parts)}


def leftovers(folder: Path) -> list[str]:
    """Returns what killed writers left: temporary files and the lease (but not the lock of conditional writes)."""
    left = [name for name in states(folder) if ".tmp-" in name or name.endswith("LEASE.json")]
    return [name for name in left if not name.endswith("/.tmp-lock")]


def changed(before: dict[str, FileState], after: dict[str, FileState]) -> Iterator[str]:
    """Yields the files that were written, added or removed between two looks, in order."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield name
