"""`inspect` on shards, prefixes and things that are neither."""

from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.schema import MAIN_SCHEMA
from dataset_packaging.io.parquet import shard_writer
from dataset_packaging_tests.cli.command import run_command


def _image(number: int) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (40, 40), (number * 9 % 256, 80, 160)).save(buffer, "PNG")
    return buffer.getvalue()


def _table(rows: int, schema: pa.Schema = MAIN_SCHEMA) -> pa.Table:
    columns: dict[str, list[object]] = {name: [None] * rows for name in schema.names}
    columns |= {
        "image_key": [f"key-{number}" for number in range(rows)],
        "image": [_image(number) for number in range(rows)],
        "width": [40] * rows,
        "height": [40] * rows,
        "s3_image_path": [f"s3://bucket/{number}.png" for number in range(rows)],
        "is_rgba": [False] * rows,
    }
    return pa.table({name: columns[name] for name in schema.names}, schema)


def _write_shard(path: Path, rows: int, group_rows: int = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as sink, shard_writer(sink, MAIN_SCHEMA, "image") as writer:
        table = _table(rows)
        for start in range(0, rows, group_rows):
            writer.write_table(table.slice(start, group_rows), row_group_size=group_rows)
    return path


def _write_prefix(folder: Path, shards: int = 3, rows: int = 9) -> Path:
    for number in range(shards):
        bucket = BUCKETS[number // 2].key
        _write_shard(folder / bucket / f"shard-{number % 2:06}.parquet", rows)
    return folder


def test_a_shard_shows_schema_rows_groups_and_codecs(tmp_path: Path):
    shard = _write_shard(tmp_path / "shard-000000.parquet", 10)
    shown = run_command("inspect", shard, cwd=tmp_path)
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert "1 file, 10 rows" in shown.stdout
    assert ["image", "binary", "not", "null", "ZSTD", "no"] in [line[:6] for line in lines]
    assert [line[:2] for line in lines if line[:1] in (["0"], ["1"], ["2"]) and len(line) == 4] == [
        ["0", "4"],
        ["1", "4"],
        ["2", "2"],
    ]
    assert shown.table_width <= 100
    assert sum(line[:1] == [name] for name in MAIN_SCHEMA.names for line in lines) == len(MAIN_SCHEMA.names)


def test_a_prefix_shows_buckets_in_their_order(tmp_path: Path):
    """Order of the buckets, not of their names."""
    folder = tmp_path / "out"
    for bucket in (BUCKETS[11], BUCKETS[0], BUCKETS[30]):
        _write_shard(folder / bucket.key / "shard-000000.parquet", 2)
    found = run_command("inspect", "out/", "--json", cwd=tmp_path)
    assert found.exit_code == 0
    assert list(found.json["buckets"]) == [BUCKETS[0].key, BUCKETS[11].key, BUCKETS[30].key]
    assert found.json["rows"] == 6
    assert found.json["shards"] == 3
    assert found.json["rows_estimated"] is False
    assert {column["name"]: column["codecs"] for column in found.json["columns"]}["image"] == ["ZSTD"]


def test_of_many_shards_a_sample_is_read_and_said_to_be_one(tmp_path: Path):
    _write_prefix(tmp_path / "out", shards=6)
    found = run_command("inspect", "out", "--max-footers", "2", "--json", cwd=tmp_path).json
    assert (found["shards"], found["footers_read"], found["rows_estimated"]) == (6, 2, True)
    assert abs(found["rows"] - 54) <= 2
    assert "about" in run_command("inspect", "out", "--max-footers", "2", cwd=tmp_path).stdout


def test_a_contact_sheet_shows_pictures_of_all_shards(tmp_path: Path):
    _write_prefix(tmp_path / "out")
    shown = run_command("inspect", "out", "--contact-sheet", "sheet.png", cwd=tmp_path)
    assert shown.exit_code == 0
    assert "contact sheet: sheet.png" in shown.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.size == (6 * 104 + 8, 4 * (96 + 24 + 8) + 8)


def test_a_contact_sheet_of_many_shards_takes_one_picture_of_each(tmp_path: Path):
    for number in range(30):
        _write_shard(tmp_path / "out" / BUCKETS[number].key / "shard-000000.parquet", 1)
    run_command("inspect", "out", "--contact-sheet", "sheet.jpg", cwd=tmp_path)
    with Image.open(tmp_path / "sheet.jpg") as sheet:
        assert sheet.format == "JPEG"
        assert sheet.height == 4 * (96 + 24 + 8) + 8


def test_an_empty_shard_is_no_problem(tmp_path: Path):
    """PQ-11: a shard whose rows were all rejected."""
    _write_shard(tmp_path / "out" / "shard-000000.parquet", 0)
    found = run_command("inspect", "out", "--json", "--contact-sheet", "sheet.png", cwd=tmp_path)
    assert found.exit_code == 0
    assert (found.json["rows"], found.json["row_groups"]) == (0, 0)
    assert (tmp_path / "sheet.png").exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "html"])
def test_a_damaged_shard_is_named_and_the_others_are_shown(damage: str, tmp_path: Path):
    """PQ-06."""
    _write_prefix(tmp_path / "out")
    victim = tmp_path / "out" / BUCKETS[0].key / "shard-000001.parquet"
    whole = victim.read_bytes()
    victim.write_bytes({"cut": whole[:-8], "empty": b"", "html": b"<html>" * 100}[damage])
    found = run_command("inspect", "out", "--json", cwd=tmp_path)
    assert found.exit_code == 1
    assert len(found.json["problems"]) == 1
    assert str(victim) in found.json["problems"][0]
    assert found.json["footers_read"] == 2


def test_a_shard_of_another_schema_is_named(tmp_path: Path):
    _write_prefix(tmp_path / "out")
    other = tmp_path / "out" / BUCKETS[5].key / "shard-000000.parquet"
    other.parent.mkdir(parents=True)
    schema = MAIN_SCHEMA.remove(MAIN_SCHEMA.get_field_index("style"))
    pq.write_table(_table(2, schema), other)
    found = run_command("inspect", "out", "--json", cwd=tmp_path)
    assert found.exit_code == 1
    assert "column style is missing" in found.json["problems"][0]


def test_files_that_are_no_shards_are_told(tmp_path: Path):
    _write_prefix(tmp_path / "out")
    (tmp_path / "out" / "README.md").write_text("hello")
    found = run_command("inspect", "out", "--json", cwd=tmp_path)
    assert found.json["strangers"] == [f"file://{tmp_path}/out/README.md"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere",), "no .parquet file"),
        (("out", "--contact-sheet", "sheet.gif"), ".png or .jpg"),
        (("out", "--contact-sheet", "absent/sheet.png"), "there is no folder"),
        (("gopher://x/y",), "gopher://x/y"),
        (("side", "--contact-sheet", "sheet.png"), "no column image"),
    ],
)
def test_wrong_targets_are_one_line_and_2(arguments: tuple[str, ...], told: str, tmp_path: Path):
    _write_prefix(tmp_path / "out")
    (tmp_path / "side").mkdir()
    pq.write_table(pa.table({"image_key": ["a"]}), tmp_path / "side" / "shard-000000.parquet")
    ended = run_command("inspect", *arguments, cwd=tmp_path)
    assert ended.exit_code == 2
    assert told in ended.error_line
    assert not list(tmp_path.glob("sheet.*"))


def test_a_prefix_on_s3(s3_bucket: str, s3_server, s3_environ, tmp_path: Path):
    for path in _write_prefix(tmp_path / "out").rglob("*.parquet"):
        s3_server.client().upload_file(str(path), s3_bucket, f"set/{path.relative_to(tmp_path)}")
    found = run_command("inspect", f"s3://{s3_bucket}/set/out", "--json", "--contact-sheet", "sheet.png", cwd=tmp_path)
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.json["rows"] == 27
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height == 4 * (96 + 24 + 8) + 8
