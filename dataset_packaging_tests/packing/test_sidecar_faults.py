"""Faults that sidecars have had elsewhere, from the manifest to what landed: invalid JSON, other rows, odd values."""

import datetime
import decimal
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.packing.pipeline import BUCKET_KEYS
from dataset_packaging_tests.packing import photo_dataset
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset
from dataset_packaging_tests.small_dataset import (
    open_pipeline,
    pack,
    picture_bytes,
    read_sidecars,
    rewrite,
    sidecar_paths,
    small_dataset,
)


def write_lines(folder: Path, lines: list[str]) -> None:
    """Writes lines of a manifest as they are, and a picture for each."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for number in range(len(lines)):
        (folder / "images" / f"{number}.png").write_bytes(picture_bytes(number, (64, 64)))
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def line(number: int, more: str = "", key: str = "") -> str:
    """Returns a line with a key, a path and whatever JSON text follows."""
    return f'{{"id": {json.dumps(key or f"k{number}")}, "url": "{number}.png"{", " + more if more else ""}}}'


def packed_rows(folder: Path, lines: list[str], more_yaml: str = "") -> list[dict[str, Any]]:
    """Packs the lines; returns the sidecar rows by key, `meta_info` read by a strict parser."""
    write_lines(folder, lines)
    dataset = small_dataset(folder, more_yaml)
    pack(dataset)
    with open_pipeline(dataset) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
    return [{**row, "meta_info": orjson.loads(str(row["meta_info"]))} for row in read_sidecars(folder)]


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
def test_numbers_that_are_none_become_null_and_are_counted(tmp_path: Path, token: str) -> None:
    """SC-01: the value becomes null, the row is kept with the warning `non_finite`, the JSON is strict."""
    lines = [line(0, f'"score": {token}, "deep": {{"x": [1, {token}]}}, "aesthetic_score": {token}'), line(1)]
    odd, plain = packed_rows(tmp_path, lines)
    assert (odd["meta_info"]["score"], odd["meta_info"]["deep"], odd["aesthetic_score"]) == (
        None,
        {"x": [1, None]},
        None,
    )
    assert "non_finite" in odd["meta_info"]["_packaging"]["warnings"]
    assert plain["meta_info"]["_packaging"]["warnings"] == []


def test_rows_stay_aligned_around_rejected_ones(tmp_path: Path) -> None:
    """SC-02: 100 rows, every seventh corrupt, formats that decode at different speeds, boundaries in the middle."""
    dataset = PhotoDataset(tmp_path / "photos", settings={"shard_size": 13})
    rows = dataset.add_photos(100, size=(96, 96))
    corrupt = {row.key for row in rows[::7]}
    expected = {}
    for row in rows:
        path = dataset.image_path(row.path)
        if row.key in corrupt:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        expected[row.key] = hashlib.sha256(path.read_bytes()).hexdigest()
    packed = photo_dataset.pack(dataset)
    assert packed.ledger.total.rejected_rows == len(corrupt)
    seen = []
    for name in dataset.shards():
        main = pq.read_table(dataset.packed / "main" / name, columns=["image_key", "image"])
        side = pq.read_table(dataset.packed / "side" / name, columns=["image_key", "full_description", "meta_info"])
        assert main["image_key"].to_pylist() == side["image_key"].to_pylist()
        for image, key, caption, meta in zip(
            main["image"].to_pylist(), *(c.to_pylist() for c in side.columns), strict=True
        ):
            digest = hashlib.sha256(image).hexdigest()
            assert digest == orjson.loads(meta)["_packaging"]["sha256"] == expected[key]
            assert caption == [f"photograph {key[1:]}"]
            seen.append(key)
    assert sorted(seen) == sorted(set(expected) - corrupt)


@pytest.mark.parametrize(
    ("caption", "landed"),
    [
        ('["a", "b"]', ["a", "b"]),
        ("null", None),
        ("5", ["5"]),
        ("true", ["true"]),
        ('""', [""]),
        ("[]", []),
        ('"Grüße 写真 \\ud83d\\ude00"', ["Grüße 写真 😀"]),
        ('"a\\u0000b"', ["a\0b"]),
        ('"line\u2028break"', ["line\u2028break"]),
    ],
)
def test_captions_of_any_type(tmp_path: Path, caption: str, landed: list[str] | None) -> None:
    """SC-05: a text becomes a list of one, `""` is not null, a number or bool becomes its JSON text."""
    (row,) = packed_rows(tmp_path, [line(0, f'"caption": {caption}')])
    assert row["full_description"] == landed


@pytest.mark.parametrize(
    ("caption", "landed"),
    [
        ('["a", null, 5]', ["a", None, "5"]),
        ('{"en": "x"}', ['{"en": "x"}']),
        ('[["a"], "b"]', ['["a"]', "b"]),
        ("1e400", None),
        ("123456789012345678901234567890", ["123456789012345678901234567890"]),
    ],
)
def test_captions_that_are_no_texts_lose_nothing(tmp_path: Path, caption: str, landed: list[str] | None) -> None:
    (row,) = packed_rows(tmp_path, [line(0, f'"caption": {caption}')])
    assert row["full_description"] == landed


def test_meta_info_keeps_what_no_column_takes(tmp_path: Path) -> None:
    more = (
        '"_packaging": {"mine": 1}, "big": 123456789012345678901234567890, "tiny": 1e-320, "twice": 1, "twice": 2, '
        '"": "empty name", "objects_raw": [{"bbox": [0, 0, 1, 1]}], "nested": {"width": "not a size", "image": null}, '
        '"deep": ' + "[" * 60 + "]" * 60
    )
    (row,) = packed_rows(tmp_path, [line(0, more)])
    meta = row["meta_info"]
    assert meta["_packaging_source"] == {"mine": 1}
    assert meta["_packaging"]["format"] == "PNG"
    assert json.loads(str(read_sidecars(tmp_path)[0]["meta_info"]))["big"] == 123456789012345678901234567890
    assert (meta["twice"], meta[""], meta["nested"]) == (2, "empty name", {"width": "not a size", "image": None})
    assert "duplicate_json_key" in meta["_packaging"]["warnings"]


NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
NFC, NFD = "caf\u00e9", "cafe\u0301"


def test_keys_that_look_alike_are_other_keys(tmp_path: Path) -> None:
    """Both Unicode forms, blanks at the end, and upper case: no join may take one for another."""
    keys = [NFC, NFD, "a", "a ", "A", "0", "00", "k/../k"]
    write_lines(tmp_path, [line(number, key=key) for number, key in enumerate(keys)])
    order = [5, 2, 7, 0, 3, 1, 6, 4]
    table = pa.table({"image_key": [keys[n] for n in order], "score": [float(n) for n in order]})
    pq.write_table(table, tmp_path / "scores.parquet")
    merge = "sidecar: {merge: [{source: scores.parquet, columns: {aesthetic_score: score}}]}\n"
    pack(small_dataset(tmp_path, merge))
    rows = {row["image_key"]: row["aesthetic_score"] for row in read_sidecars(tmp_path)}
    assert rows == {key: float(number) for number, key in enumerate(keys)}


@pytest.mark.parametrize("kind", ["dictionary", "large_string", "int64"])
def test_keys_of_a_source_in_another_encoding_find_their_rows(tmp_path: Path, kind: str) -> None:
    write_lines(tmp_path, [line(number, key=str(number + 1000)) for number in range(6)])
    keys = pa.array([str(number + 1000) for number in reversed(range(6))])
    encoded = {
        "dictionary": keys.dictionary_encode(),
        "large_string": keys.cast(pa.large_string()),
        "int64": keys.cast(pa.int64()),
    }[kind]
    pq.write_table(pa.table({"image_key": encoded, "score": pa.array([float(n) for n in reversed(range(6))])}),
                   tmp_path / "scores.parquet")  # fmt: skip
    merge = "sidecar: {merge: [{source: scores.parquet, columns: {aesthetic_score: score}}]}\n"
    pack(small_dataset(tmp_path, merge))
    assert {row["image_key"]: row["aesthetic_score"] for row in read_sidecars(tmp_path)} == {
        str(number + 1000): float(number) for number in range(6)
    }


def test_scores_that_are_no_numbers_are_counted_and_null(tmp_path: Path) -> None:
    write_lines(tmp_path, [line(number) for number in range(4)])
    values = ['"high"', "1e400", "NaN", "7"]
    (tmp_path / "scores.jsonl").write_text(
        "".join(f'{{"image_key": "k{number}", "score": {value}}}\n' for number, value in enumerate(values))
    )
    merge = "sidecar: {merge: [{source: scores.jsonl, columns: {aesthetic_score: score}}]}\n"
    report = pack(small_dataset(tmp_path, merge))
    assert [row["aesthetic_score"] for row in read_sidecars(tmp_path)] == [None, None, None, 7.0]
    (counts,) = [bucket.merged["aesthetic_score"] for bucket in report.buckets.values() if bucket.merged]
    assert (counts.matched, counts.taken) == (4, 1)
    assert counts.bad_values == 3


def test_a_line_with_a_number_that_is_none_counts_as_bad_where_it_says_so(tmp_path: Path) -> None:
    """`NaN` is a bad score and no key at all; a null, and a name that stands there twice, are neither."""
    write_lines(tmp_path, [line(number) for number in range(4)])
    lines = [
        '{"image_key": "k0", "a": {"score": NaN}, "score": Infinity}',
        '{"image_key": "k1", "score": 1, "score": null}',
        '{"image_key": "k2", "a": {"score": 2}, "score": NaN}',
        '{"image_key": "k3", "score": NaN, "style": "kept"}',
        '{"image_key": NaN, "score": 4}',
    ]
    (tmp_path / "scores.jsonl").write_text("\n".join(lines))
    merge = (
        "sidecar: {merge: [{source: scores.jsonl, columns: {aesthetic_score: {from: [a.score, score]}, style: style}}]}"
    )
    report = pack(small_dataset(tmp_path, merge + "\n"))
    landed = [(row["aesthetic_score"], row["style"]) for row in read_sidecars(tmp_path)]
    assert landed == [(None, None), (None, None), (2.0, None), (None, "kept")]
    (counts,) = [bucket.merged["aesthetic_score"] for bucket in report.buckets.values() if bucket.merged]
    assert (counts.matched, counts.taken, counts.bad_values) == (4, 1, 2)
    (source,) = report.merge_sources
    assert (source.rows, source.bad_lines, source.null_keys, source.unknown_keys) == (5, 0, 1, 0)


def _struct_of(**values: object) -> pa.Array:
    return pa.array([values] * 4)


@pytest.mark.parametrize(
    ("column", "values", "landed"),
    [
        ("aesthetic_score", pa.array([decimal.Decimal("1.25")] * 4), 1.25),
        ("aesthetic_score", pa.array([1e300] * 4), None),
        ("aesthetic_score", pa.array([1.5] * 4, pa.float16()), 1.5),
        ("style", pa.array(["a"] * 4, pa.string_view()), "a"),
        ("style", pa.array(["a"] * 4).dictionary_encode(), "a"),
        ("style", pa.array([NOON] * 4, pa.timestamp("us", "UTC")), "2026-01-02T12:00:00Z"),
        ("style", pa.array([b"\xff"] * 4), None),
        ("objects", pa.array([[{"b": 1, "a": None}]] * 4), '[{"b":1,"a":null}]'),
        ("objects", _struct_of(b=float("nan"), a="x"), '{"b":null,"a":"x"}'),
        ("full_description", pa.array([["a", None, ""]] * 4, pa.large_list(pa.large_string())), ["a", None, ""]),
        ("dqm_d1_v6_1", _struct_of(error=None, raw_score=0.5, more=1), {"raw_score": 0.5, "error": None}),
        ("dqm_d1_v6_1", _struct_of(error=None, raw_score=float("inf")), None),
        ("has_mosaic", pa.array([1] * 4, pa.int8()), True),
        ("has_mosaic", pa.array(["yes"] * 4), None),
        ("keywords", pa.nulls(4), None),
    ],
)  # fmt: skip
def test_values_of_a_source_of_any_type_land_or_are_counted(
    tmp_path: Path, column: str, values: pa.Array, landed: object
) -> None:
    """What a column cannot hold is null and counted, never the text of something else; a null is not counted."""
    write_lines(tmp_path, [line(number) for number in range(4)])
    pq.write_table(pa.table({"image_key": [f"k{n}" for n in range(4)], "found": values}), tmp_path / "more.parquet")
    merge = f"sidecar: {{merge: [{{source: more.parquet, columns: {{{column}: found}}}}]}}\n"
    report = pack(small_dataset(tmp_path, merge))
    assert [row[column] for row in read_sidecars(tmp_path)] == [landed] * 4
    (counts,) = [bucket.merged[column] for bucket in report.buckets.values() if bucket.merged]
    is_bad = landed is None and values.type != pa.null()
    assert (counts.taken, counts.bad_values) == (0 if landed is None else 4, 4 if is_bad else 0)


def _captions_shuffled(path: Path) -> None:
    rewrite(path, lambda table: table.set_column(
        table.schema.get_field_index("full_description"), table.schema.field("full_description"),
        table["full_description"].take(pa.array(range(len(table) - 1, -1, -1)))))  # fmt: skip


def _one_byte(path: Path) -> None:
    """Changes one byte and puts size and time back, as a failing disk does."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _of_another_shard(path: Path) -> None:
    shutil.copy(path.with_name("shard-000001.parquet"), path)


@pytest.mark.parametrize("damage", [_captions_shuffled, _one_byte, _of_another_shard])
def test_damage_that_leaves_rows_and_keys_countable_is_found_and_repaired(tmp_path: Path, damage: Any) -> None:
    write_lines(tmp_path, [line(number, f'"caption": "caption {number}"') for number in range(9)])
    dataset = small_dataset(tmp_path)
    pack(dataset)
    path = sidecar_paths(tmp_path)[0]
    whole = path.read_bytes()
    damage(path)
    with open_pipeline(dataset) as pipeline:
        found = pipeline.verify().findings
        assert {(finding.bucket, finding.shard) for finding in found} == {("0_512/10000", 0)}
        assert "sidecar_state" in {finding.check for finding in found}
        assert sum(bucket.shards_written for bucket in pipeline.write_sidecars(BUCKET_KEYS).buckets.values()) == 1
        assert pipeline.verify(deep=True).findings == ()
    assert path.read_bytes() == whole
