"""The public contract as tables, and a small reading of a dataset's YAML; shares no code with the product."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import yaml

SCALE_LIMITS = (("0_512", 512), ("512_1024", 1024), ("1024_1536", 1536), ("1536_2048", 2048))
RATIOS = tuple(
    float(text)
    for text in (
        "0.3333 0.4000 0.4348 0.5000 0.5625 0.6316 0.6667 0.7059 0.7500 0.7778 0.8000 1.0000 1.1930 1.2500 1.2857 "
        "1.3333 1.4167 1.5000 1.7500 1.7778 1.9091 2.0000 2.3000 2.6667 3.0000 3.3750 4.0000"
    ).split()
)
PATH_ALIASES = ("s3_image_path", "s3_path", "image_s3_uri", "image_uri", "url")
RESERVED = ("image", "is_rgba", "meta_info")
REASONS = frozenset(
    "bad_row missing_path bad_path duplicate_key not_found access_denied archived empty_object fetch_failed too_large "
    "too_many_pixels unsupported_format corrupt_image truncated_image checksum_mismatch decoder_crashed "
    "decoder_timeout".split()
)
PACKAGING_FIELDS = frozenset(
    ["format", "mode", "frames", "stored_width", "stored_height", "exif_orientation", "bytes", "sha256", "warnings"]
)
TEXTS = pa.list_(pa.string())
MAIN_COLUMNS: dict[str, pa.DataType] = {
    "image_key": pa.string(),
    "image": pa.binary(),
    "width": pa.int32(),
    "height": pa.int32(),
    "s3_image_path": pa.string(),
    "is_rgba": pa.bool_(),
    "task": pa.string(),
    "data_source": pa.string(),
    "ocr_text": TEXTS,
    "detailed_description": TEXTS,
    "full_description": TEXTS,
    "short_description": TEXTS,
    "user_prompt": TEXTS,
    "keywords": TEXTS,
    "structured_description": pa.string(),
    "style": pa.string(),
    "image_type": pa.string(),
    "image_quality_score": pa.float32(),
    "design_quality_score": pa.float32(),
    "aesthetic_score": pa.float32(),
    **dict.fromkeys(
        "is_aigc has_barcode has_watermark has_artifact has_mosaic has_rotation text_overlay".split(), pa.bool_()
    ),
}
NOT_NULL = frozenset({"image_key", "image", "width", "height", "s3_image_path", "is_rgba"})
SIDECAR_COLUMNS: dict[str, pa.DataType] = {
    "objects": pa.string(),
    "ocr_bbox": pa.string(),
    "ernie_image_aes": pa.struct([("raw_score", pa.float64()), ("score", pa.float64()), ("error", pa.string())]),
    "dqm_d1_v6_1": pa.struct([("raw_score", pa.float64()), ("error", pa.string())]),
    "structured_description_crop_512": pa.string(),
    "structured_description_crop_1024": pa.string(),
    "bbox_resize_meta": pa.string(),
}
JSON_TEXTS = frozenset({"structured_description", *SIDECAR_COLUMNS} - {"ernie_image_aes", "dqm_d1_v6_1"})


def bucket_of(width: int, height: int) -> str:
    """Returns `scale/ar_id`: inclusive area limits; nearest ratio by absolute difference, the lower of two."""
    scale = next((name for name, side in SCALE_LIMITS if width * height <= side * side), "2048_inf")
    ratio = min(RATIOS, key=lambda target: (abs(target - width / height), target))
    return f"{scale}/{round(ratio * 10000)}"


BUCKETS = frozenset(
    f"{scale}/{round(ratio * 10000)}" for scale in (*(name for name, _ in SCALE_LIMITS), "2048_inf") for ratio in RATIOS
)


@dataclass(frozen=True, slots=True)
class Dataset:
    """What the checker needs to know of a dataset's YAML; all folders and files are local."""

    manifests: tuple[Path, ...]
    output: Path
    sidecar: Path
    work: Path
    constants: dict[str, object]
    sources: dict[str, tuple[str, ...]]
    base_uri: str | None
    drop: frozenset[str]
    keep: frozenset[str] | None
    upright: bool
    strict: bool
    formats: tuple[str, ...]
    max_pixels: int
    max_bytes: int
    shard_rows: int
    row_group_bytes: int
    extensions: dict[str, pa.DataType]

    @property
    def sidecar_columns(self) -> dict[str, pa.DataType]:
        """The sidecar's columns in their declared order."""
        main = {name: type_ for name, type_ in MAIN_COLUMNS.items() if name != "image"}
        return {**main, **SIDECAR_COLUMNS, **self.extensions, "meta_info": pa.string()}


def read_dataset(source: Path) -> Dataset:
    """Reads the YAML of a dataset whose prefixes are local; defaults as the contract gives them."""
    text = re.sub(r"\$\{(\w+)\}", lambda found: os.environ[found[1]], source.read_text(encoding="utf-8"))
    raw = yaml.safe_load(text)
    mapping, images, packing = (raw.get(part) or {} for part in ("mapping", "images", "packing"))
    folder = source.resolve().parent
    output = raw["output_prefix"].rstrip("/")
    listed = raw["manifest"] if isinstance(raw["manifest"], list) else [raw["manifest"]]
    base = mapping.get("base_uri")
    formats = images.get("formats", ["JPEG", "MPO", "PNG", "WEBP", "GIF", "TIFF", "BMP"])
    extensions = (raw.get("sidecar") or {}).get("schema_extensions") or []
    return Dataset(
        manifests=tuple(dict.fromkeys(path for pattern in listed for path in _expand(folder, pattern))),
        output=_local(folder, output),
        sidecar=_local(folder, raw.get("sidecar_prefix", f"{output}_sidecar")),
        work=_local(folder, raw.get("work_prefix", f"{output}_work")),
        constants=mapping.get("constants") or {},
        sources={column: _sources(given) for column, given in (mapping.get("direct") or {}).items()},
        base_uri=None if base is None else _folder_uri(folder, base),
        drop=frozenset(mapping.get("drop") or ()),
        keep=None if mapping.get("keep") is None else frozenset(mapping["keep"]),
        upright=images.get("orientation", "upright") == "upright",
        strict=images.get("integrity", "strict") == "strict",
        formats=tuple(formats),
        max_pixels=int(images.get("max_pixels", 300_000_000)),
        max_bytes=int(images.get("max_bytes", 268_435_456)),
        shard_rows=int(packing.get("shard_size", 1000)),
        row_group_bytes=int(packing.get("row_group_bytes", 64 * 1024 * 1024)),
        extensions={extension["name"]: parse_type(extension["type"]) for extension in extensions},
    )


def _local(folder: Path, text: str) -> Path:
    if text.startswith("s3://"):
        raise SystemExit(f"{text}: the checker reads local folders only; copy the objects first")
    return Path(os.path.normpath(folder / text.removeprefix("file://")))


def _folder_uri(folder: Path, text: str) -> str:
    return (text if "://" in text else f"file://{_local(folder, text)}").rstrip("/") + "/"


def _expand(folder: Path, pattern: str) -> list[Path]:
    path = _local(folder, pattern)
    if not any(sign in pattern for sign in "*?["):
        return [path]
    return sorted(path.parent.glob(path.name), key=lambda found: os.fsencode(found))


def _sources(given: object) -> tuple[str, ...]:
    names = given["from"] if isinstance(given, dict) else given
    return tuple(names) if isinstance(names, list) else (str(names),)


_SCALARS: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int": pa.int64(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
}


def parse_type(text: str) -> pa.DataType:
    """Reads `struct<score: double, tags: list<string>>` and the like."""
    text = text.strip()
    if text in _SCALARS:
        return _SCALARS[text]
    outer, _, inner = text.removesuffix(">").partition("<")
    if outer.strip() == "list":
        return pa.list_(parse_type(inner))
    fields = [part.partition(":") for part in _split_top_level(inner)]
    return pa.struct([(name.strip(), parse_type(type_)) for name, _, type_ in fields])


def _split_top_level(text: str) -> list[str]:
    parts, depth = [""], 0
    for sign in text:
        depth += {"<": 1, ">": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
