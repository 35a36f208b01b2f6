"""The independent checker is silent about a good dataset and names each planted fault."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_packaging_tests.checker import check
from dataset_packaging_tests.checker.contract import MAIN_COLUMNS, NOT_NULL, Dataset, bucket_of, read_dataset

YAML = """
name: hand_made
manifest: rows.jsonl
output_prefix: out/main
mapping:
  constants: {task: t2i}
  direct:
    image_key: [id]
    full_description: {from: [caption], cast: list_string}
  base_uri: pictures/
  drop: [huge]
images: {integrity: load}
packing: {shard_size: 2}
sidecar:
  schema_extensions: [{name: filter_clarity, type: "struct<score: double, pass: bool>"}]
"""
Fields = dict[str, object]
Change = Callable[[list[Fields]], object]
Plant = Callable[[Path], object]
CAPTIONS = {"a": "red", "b": "green", "c": "clear", "d": "wide"}


def _encoded(mode: str, size: tuple[int, int], format_: str) -> bytes:
    target = BytesIO()
    Image.effect_mandelbrot(size, (-2, -1.5, 1, 1.5), 20).convert(mode).save(target, format_)
    return target.getvalue()


PICTURES = {
    "a": _encoded("RGB", (64, 64), "PNG"),
    "b": _encoded("RGB", (60, 60), "JPEG"),
    "c": _encoded("RGBA", (50, 50), "PNG"),
    "d": _encoded("L", (90, 45), "WEBP"),
}


def _source(key: str) -> dict[str, object]:
    return {
        "id": key,
        "image_uri": key,
        "caption": CAPTIONS[key],
        "meta": {"n": 1.50, "big": 12345678901234567890123},
        "filter_clarity": {"score": 0.25, "pass": True},
        "aesthetic_score": 0.1,
        "huge": "x" * 100,
    }


def _write(path: Path, rows: list[Fields], schema: pa.Schema, **options: object) -> None:
    others = [name for name in schema.names if name != "image"]
    settings = {
        "compression": "zstd",
        "write_page_checksum": True,
        "use_dictionary": [name for name in others if not pa.types.is_nested(schema.field(name).type)],
        "write_statistics": [name for name in others if not pa.types.is_nested(schema.field(name).type)],
        **options,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path, **settings)


def _schema(columns: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, type_, nullable=name not in NOT_NULL) for name, type_ in columns.items()])


def _main_row(folder: Path, key: str) -> dict[str, object]:
    with Image.open(BytesIO(PICTURES[key])) as picture:
        return {
            "image_key": key,
            "image": PICTURES[key],
            "width": picture.width,
            "height": picture.height,
            "s3_image_path": f"file://{folder}/pictures/{key}",
            "is_rgba": picture.mode == "RGBA",
            "task": "t2i",
            "full_description": [CAPTIONS[key]],
            "aesthetic_score": 0.1,
        }


def _meta_info(key: str) -> str:
    with Image.open(BytesIO(PICTURES[key])) as picture:
        block = {
            "format": picture.format,
            "mode": picture.mode,
            "frames": 1,
            "stored_width": picture.width,
            "stored_height": picture.height,
            "exif_orientation": 1,
            "bytes": len(PICTURES[key]),
            "sha256": hashlib.sha256(PICTURES[key]).hexdigest(),
            "warnings": [],
        }
    source = _source(key)
    kept = {name: source[name] for name in ("image_uri", "meta", "aesthetic_score")}
    return json.dumps({**kept, "_packaging": block})


def _sidecar_row(folder: Path, key: str) -> dict[str, object]:
    main = {name: value for name, value in _main_row(folder, key).items() if name != "image"}
    return {**main, "filter_clarity": {"score": 0.25, "pass": True}, "meta_info": _meta_info(key)}


def _write_pair(dataset: Dataset, folder: Path, bucket: str, number: int, keys: str) -> None:
    name = f"{bucket}/shard-{number:06d}.parquet"
    _write(dataset.output / name, [_main_row(folder, key) for key in keys], _schema(MAIN_COLUMNS))
    sidecar = _schema(dataset.sidecar_columns)
    _write(dataset.sidecar / name, [_sidecar_row(folder, key) for key in keys], sidecar)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good dataset of four packed pictures in three shards, a cut picture, a duplicate and a broken line."""
    for name, data in {**PICTURES, "cut": PICTURES["b"][:-200]}.items():
        (tmp_path / "pictures").mkdir(exist_ok=True)
        (tmp_path / "pictures" / name).write_bytes(data)
    lines = [json.dumps(_source(key)) for key in "abcd"]
    lines[1:1] = ["", '{"id": "broken"', '{"id": "cut", "url": "cut"}', json.dumps({**_source("a"), "url": "b"})]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "hand_made.yaml").write_text(YAML)
    dataset = read_dataset(tmp_path / "hand_made.yaml")
    _write_pair(dataset, tmp_path, "0_512/10000", 0, "ab")
    _write_pair(dataset, tmp_path, "0_512/10000", 1, "c")
    _write_pair(dataset, tmp_path, "0_512/20000", 0, "d")
    _write_rejects(tmp_path, REJECTS)
    counts = {"rows": 7, "packed": 4, "rejected": {"bad_row": 1, "truncated_image": 1}, "duplicates": 1, "pending": 0}
    (dataset.work / "ledger.json").write_text(json.dumps(counts))
    return tmp_path


def _write_rejects(folder: Path, rejects: Sequence[tuple[int, str, str | None]]) -> None:
    rows = [
        {
            "image_key": key,
            "s3_image_path": None,
            "manifest_uri": f"file://{folder}/rows.jsonl",
            "line": line,
            "reason": reason,
            "detail": "",
        }
        for line, reason, key in rejects
    ]
    types = {name: pa.string() for name in rows[0]} | {"line": pa.int64()}
    path = folder / "out/main_work/rejects/manifest.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(types)), path)


def test_a_good_dataset_has_no_findings(folder: Path):
    assert check(folder / "hand_made.yaml") == []


def _rewrite(folder: Path, name: str, change: Change, **options: object) -> None:
    path = folder / "out" / name
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    _write(path, rows, table.schema, **options)


def _set(**values: object) -> Change:
    return lambda rows: rows[0].update(values)


def _set_meta(**values: object) -> Change:
    def change(rows: list[Fields]) -> None:
        kept = json.loads(str(rows[0]["meta_info"]))
        kept.update(values)
        rows[0]["meta_info"] = json.dumps({name: value for name, value in kept.items() if value != "absent"})

    return change


def _move(name: str, to: str) -> Plant:
    def plant(folder: Path) -> None:
        for side in ("main", "main_sidecar"):
            target = folder / "out" / side / to
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder / "out" / side / name, target)

    return plant


def _redeclare(name: str, change: Callable[[list[pa.Field]], list[pa.Field]]) -> Plant:
    def plant(folder: Path) -> None:
        path = folder / "out/main" / name
        table = pq.read_table(path)
        _write(path, table.to_pylist(), pa.schema(change(list(table.schema))))

    return plant


def _main(name: str, change: Change, **options: object) -> Plant:
    return lambda folder: _rewrite(folder, f"main/{name}", change, **options)


def _side(change: Change) -> Plant:
    return lambda folder: _rewrite(folder, f"main_sidecar/{FIRST}", change)


def _bytes(change: Callable[[bytes], bytes]) -> Plant:
    def plant(folder: Path) -> None:
        path = folder / "out/main" / FIRST
        path.write_bytes(change(path.read_bytes()))

    return plant


def _keep(rows: list[Fields]) -> None:
    """Changes nothing: the file is written again with other options."""


def _repeat(rows: list[Fields]) -> None:
    rows.append(rows[0])


def _lose_row(folder: Path) -> None:
    for side in ("main", "main_sidecar"):
        _rewrite(folder, f"{side}/{WIDE}", list.clear)


FIRST = "0_512/10000/shard-000000.parquet"
SECOND = "0_512/10000/shard-000001.parquet"
WIDE = "0_512/20000/shard-000000.parquet"
REJECTS = ((3, "bad_row", None), (4, "truncated_image", "cut"), (5, "duplicate_key", "a"))
PLANTED: dict[str, tuple[str, Plant]] = {
    "another byte": ("bytes are not those", _main(FIRST, _set(image=PICTURES["c"]))),
    "wrong size": ("the size is (65, 64)", _main(FIRST, _set(width=65))),
    "wrong transparency": ("is_rgba is False", _main(SECOND, _set(is_rgba=False))),
    "wrong path": ("s3_image_path is 'file:///a'", _main(FIRST, _set(s3_image_path="file:///a"))),
    "wrong caption": ("full_description is ['blue']", _main(FIRST, _set(full_description=["blue"]))),
    "wrong score": ("aesthetic_score is 0.5", _main(FIRST, _set(aesthetic_score=0.5))),
    "wrong constant": ("task is 'x', not the constant", _main(FIRST, _set(task="x"))),
    "foreign row": ("'z' stands in no line", _main(FIRST, _set(image_key="z"))),
    "row twice": ("'d' is packed 2 times", _main(WIDE, _repeat)),
    "row lost": ("is lost ('d')", _lose_row),
    "order in the sidecar": ("the sidecar's row is that", _side(list.reverse)),
    "row missing in the sidecar": ("the sidecar has 1 rows", _side(list.pop)),
    "other value in the sidecar": ("the sidecar's task is another", _side(_set(task=None))),
    "extension lost": ("filter_clarity is None", _side(_set(filter_clarity=None))),
    "meta_info with NaN": ("no strict JSON", _side(_set(meta_info='{"a": NaN}'))),
    "meta_info without a field": ("meta_info lacks meta", _side(_set_meta(meta="absent"))),
    "meta_info with lost digits": ("meta_info.meta is", _side(_set_meta(meta={"n": 1.5, "big": 1e22}))),
    "meta_info with a dropped field": ("to be dropped", _side(_set_meta(huge="x"))),
    "meta_info with a mapped field": ("repeats id", _side(_set_meta(id="a"))),
    "meta_info with an invented field": ("holds extra", _side(_set_meta(extra=1))),
    "no _packaging": ("no _packaging block", _side(_set_meta(_packaging="absent"))),
    "not zstd": ("is SNAPPY", _main(FIRST, _keep, compression="snappy")),
    "no page checksums": ("without checksum", _main(FIRST, _keep, write_page_checksum=False)),
    "image with statistics": ("has statistics", _main(FIRST, _keep, write_statistics=True)),
    "image with dictionary": ("has a dictionary", _main(FIRST, _keep, use_dictionary=["image"])),
    "row groups by rows": ("small enough to be one", _main(FIRST, _keep, row_group_size=1)),
    "too many rows": ("more than shard_size", _main(FIRST, _repeat)),
    "flipped byte": ("whose checksum is wrong", _bytes(lambda data: data[:300] + bytes([data[300] ^ 1]) + data[301:])),
    "cut file": ("cannot be read", _bytes(lambda data: data[:-1])),
    "empty file": ("cannot be read", _bytes(lambda data: b"")),
    "gap in the numbers": ("numbers are [0, 2]", _move(SECOND, "0_512/10000/shard-000002.parquet")),
    "wrong bucket": ("belongs into 0_512/20000", _move(WIDE, "0_512/13333/shard-000000.parquet")),
    "no such bucket": ("is no shard of any bucket", _move(WIDE, "0_512/9999/shard-000000.parquet")),
    "foreign file": ("is no shard", lambda folder: (folder / "out/main/_SUCCESS").write_bytes(b"")),
    "temporary file": ("is no shard", lambda folder: (folder / "out/main/0_512/.tmp-x").write_bytes(b"")),
    "sidecar missing": (f"main_sidecar/{WIDE} is missing", lambda f: (f / "out/main_sidecar" / WIDE).unlink()),
    "shard missing": (f"main/{WIDE} is missing", lambda folder: (folder / "out/main" / WIDE).unlink()),
    "column order": ("schema: columns are", _redeclare(FIRST, lambda fields: fields[::-1])),
    "declared otherwise": (
        "another schema",
        _redeclare(SECOND, lambda fields: [field.with_metadata({"description": "other"}) for field in fields]),
    ),
    "reject lost": ("rows.jsonl:4: is lost", lambda folder: _write_rejects(folder, REJECTS[::2])),
    "reject with the wrong reason": (
        "expected ['corrupt_image'",
        lambda folder: _write_rejects(folder, (*REJECTS[::2], (4, "not_found", "cut"))),
    ),
    "reject on the wrong line": (
        "rows.jsonl:2 is no row",
        lambda folder: _write_rejects(folder, (*REJECTS[1:], (2, "bad_row", None))),
    ),
    "packed and rejected": (
        "is packed and rejected",
        lambda folder: _write_rejects(folder, (*REJECTS, (1, "bad_row", None))),
    ),
    "second of two kept": (
        "rows.jsonl:5: is lost",
        lambda folder: _write_rejects(folder, (*REJECTS[:2], (1, "duplicate_key", "a"))),
    ),
    "good picture refused": ("its picture is whole", lambda f: (f / "pictures/cut").write_bytes(PICTURES["b"])),
    "broken picture packed": ("must be rejected", lambda f: (f / "pictures/a").write_bytes(PICTURES["b"][:-200])),
    "ledger out of balance": ("the ledger says packed = 4", _main(WIDE, list.clear)),
}


@pytest.mark.parametrize(("said", "plant"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_named(folder: Path, said: str, plant: Plant):
    plant(folder)
    findings = check(folder / "hand_made.yaml")
    assert any(said in finding for finding in findings), findings


def test_buckets_have_inclusive_limits_and_the_lower_of_two_equals():
    assert bucket_of(512, 512) == "0_512/10000"
    assert bucket_of(513, 512) == "512_1024/10000"
    assert bucket_of(2048, 2048) == "1536_2048/10000"
    assert bucket_of(2049, 2048) == "2048_inf/10000"
    assert bucket_of(1, 20000) == "0_512/3333"
    assert bucket_of(90, 100) == "0_512/8000", "0.9 lies between 0.8 and 1.0"
