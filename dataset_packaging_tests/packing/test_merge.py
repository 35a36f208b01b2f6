"""Values that come late, merged into sidecars without touching a shard."""

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.core.schema import sidecar_schema
from dataset_packaging.errors import MergeConflict, MergeSourceUnusable
from dataset_packaging.packing import merge_keyed, merge_sort, merge_sources
from dataset_packaging.packing.pipeline import BUCKET_KEYS
from dataset_packaging.packing.reports import SidecarsReport
from dataset_packaging_tests.small_dataset import (
    open_pipeline,
    pack,
    read_sidecars,
    rewrite,
    sidecar_paths,
    small_dataset,
    write_rows,
)

ROWS = 30
SCORE = sidecar_schema().field("ernie_image_aes").type


def keys(count: int = ROWS) -> list[str]:
    return [f"key-{number:04d}" for number in range(count)]


def score(number: int) -> dict[str, object]:
    return {"raw_score": number / 7, "score": float(number), "error": None}


def write_scores(path: Path, numbers: list[int], key: str = "image_key", column: str = "ernie_image_aes") -> None:
    names = [f"key-{number:04d}" for number in numbers]
    pq.write_table(pa.table({key: names, column: pa.array([score(number) for number in numbers], SCORE)}), path)


def merge_yaml(**fields: object) -> str:
    return f"sidecar: {{merge: [{json.dumps(fields)}]}}\n"


def write_sidecars(folder: Path, **fields: object) -> SidecarsReport:
    with open_pipeline(small_dataset(folder, merge_yaml(**fields))) as pipeline:
        return pipeline.write_sidecars(BUCKET_KEYS)


def blocked(report: SidecarsReport) -> list[str]:
    return [bucket.blocked for bucket in report.buckets.values() if bucket.blocked]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path, ROWS, lambda number: {} if number % 2 else {"caption": None})
    pack(small_dataset(tmp_path))
    return tmp_path


def shuffled() -> list[int]:
    numbers = list(range(ROWS))
    random.Random(7).shuffle(numbers)
    return numbers


def test_scores_in_any_order_find_their_rows(folder: Path) -> None:
    write_scores(folder / "scores.parquet", shuffled())
    shards = {path: path.stat().st_mtime_ns for path in (folder / "out/main").rglob("*.parquet")}
    report = write_sidecars(folder, source="scores.parquet", columns=["ernie_image_aes"])
    assert blocked(report) == []
    assert [row["ernie_image_aes"] for row in read_sidecars(folder)] == [score(number) for number in range(ROWS)]
    counts = [bucket.merged["ernie_image_aes"] for bucket in report.buckets.values() if bucket.rows]
    assert sum(count.matched for count in counts) == sum(count.taken for count in counts) == ROWS
    assert {path: path.stat().st_mtime_ns for path in (folder / "out/main").rglob("*.parquet")} == shards
    with open_pipeline(small_dataset(folder, merge_yaml(source="scores.parquet", columns=["ernie_image_aes"]))) as p:
        assert p.verify().findings == ()


def test_small_runs_and_parts_give_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a source larger than memory: several pieces, several runs of each, several parts."""
    table = pa.table(
        {"image_key": [f"key-{n:04d}" for n in shuffled()], "style": [f"style {n}" * 5 for n in shuffled()]}
    )
    pq.write_table(table, folder / "styles.parquet", row_group_size=4)
    monkeypatch.setattr(merge_sources, "_PIECE_BYTES", 1)
    monkeypatch.setattr(merge_sources, "_BATCH_ROWS", 64)
    monkeypatch.setattr(merge_sort, "RUN_BYTES", 64)
    monkeypatch.setattr(merge_keyed, "PART_BYTES", 500)
    report = write_sidecars(folder, source="styles.parquet", columns=["style"])
    assert blocked(report) == []
    assert [row["style"] for row in read_sidecars(folder)] == [f"style {n}" * 5 for n in range(ROWS)]
    parts = [path.name for path in (folder / "out" / "work" / "merges").rglob("parts/*")]
    assert len(parts) > 1
    assert not [*(folder / "out" / "work" / "merges").rglob("*.arrow*")], (
        "runs and places are gone when the source is sorted"
    )


@pytest.mark.parametrize("name", ["scores.jsonl", "scores.jsonl.gz"])
def test_jsonl_does_as_well(folder: Path, name: str) -> None:
    import gzip

    lines = [json.dumps({"id": f"key-{n:04d}", "a": {"b": n if n % 3 else None}, "c": n + 100}) for n in shuffled()]
    text = "\n".join([*lines, "", "no json"]).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    report = write_sidecars(
        folder, source=name, source_key="id", columns={"aesthetic_score": {"from": ["a.b", "c"], "cast": "float"}},
        mode="prefer_source",
    )  # fmt: skip
    assert blocked(report) == []
    expected = [float(n) if n % 3 else n + 100.0 for n in range(ROWS)]
    assert [row["aesthetic_score"] for row in read_sidecars(folder)] == expected
    (source,) = report.merge_sources
    assert (source.rows, source.bad_lines, source.null_keys, source.unknown_keys) == (ROWS, 1, 0, 0)


def test_paths_join_as_the_dataset_writes_them(folder: Path) -> None:
    paths = [f"{number}.png" if number % 2 else (folder / f"images/{number}.png").as_uri() for number in range(ROWS)]
    pq.write_table(pa.table({"path": paths, "style": [str(n) for n in range(ROWS)]}), folder / "s.parquet")
    report = write_sidecars(folder, source="s.parquet", key="s3_image_path", source_key="path", columns=["style"])
    assert blocked(report) == []
    assert [row["style"] for row in read_sidecars(folder)] == [str(number) for number in range(ROWS)]


def test_a_base_name_is_no_key(folder: Path) -> None:
    """Two folders may hold an `1.png` each."""
    paths = [f"other/{number}.png" for number in range(ROWS)]
    pq.write_table(pa.table({"path": paths, "style": ["x"] * ROWS}), folder / "s.parquet")
    report = write_sidecars(folder, source="s.parquet", key="s3_image_path", source_key="path", columns=["style"])
    assert len(blocked(report)) == 3


@pytest.mark.parametrize(("mode", "second"), [("fill_missing", "caption 1"), ("prefer_source", "new")])
def test_who_wins(folder: Path, mode: str, second: str) -> None:
    pq.write_table(pa.table({"image_key": keys(), "full_description": ["new"] * ROWS}), folder / "s.parquet")
    write_sidecars(folder, source="s.parquet", columns=["full_description"], mode=mode)
    assert [row["full_description"] for row in read_sidecars(folder)][:3] == [["new"], [second], ["new"]]


@pytest.mark.parametrize("unmatched", ["error", "skip", None])
def test_rows_that_the_source_lacks(folder: Path, unmatched: str | None) -> None:
    pq.write_table(pa.table({"image_key": keys(29), "full_description": ["new"] * 29}), folder / "s.parquet")
    report = write_sidecars(folder, source="s.parquet", columns=["full_description"], unmatched=unmatched)
    value = read_sidecars(folder)[29]["full_description"]
    if unmatched == "error":
        (reason,) = blocked(report)
        assert "1 of " in reason
        assert "'key-0029'" in reason
        assert "set unmatched to skip" in reason
    else:
        assert blocked(report) == []
        assert value == (["caption 29"] if unmatched == "skip" else None)
        counts = [bucket.merged["full_description"] for bucket in report.buckets.values() if bucket.rows]
        assert (sum(c.matched for c in counts), sum(c.unmatched for c in counts)) == (29, 1)


def test_keys_that_the_dataset_lacks_and_repeats_are_counted(folder: Path) -> None:
    names = [*keys(), "other", None, "key-0000"]
    pq.write_table(pa.table({"image_key": names, "style": ["x"] * len(names)}), folder / "s.parquet")
    report = write_sidecars(folder, source="s.parquet", columns=["style"])
    assert blocked(report) == []
    (source,) = report.merge_sources
    assert (source.rows, source.unknown_keys, source.null_keys, source.repeated_rows) == (ROWS + 3, 1, 1, 1)


def test_a_key_with_two_values_is_no_guess(folder: Path) -> None:
    before = read_sidecars(folder)
    pq.write_table(pa.table({"image_key": [*keys(), "key-0003"], "style": [*keys(), "other"]}), folder / "s.parquet")
    with pytest.raises(MergeConflict, match="more than once with different values: 'key-0003'; keep one"):
        write_sidecars(folder, source="s.parquet", columns=["style"])
    assert read_sidecars(folder) == before


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"source": "gone.parquet"}, r"sidecar\.merge\[0\]: source: nothing is found at file://.*gone\.parquet"),
        ({"source": "*.none"}, "nothing is found"),
        ({"source_prefix": "gone"}, r"no \.parquet file is found below"),
        ({"source": "s.parquet", "source_key": "imagekey"}, "has no column imagekey for the key; did you mean `image_"),
        ({"source": "s.parquet", "columns": {"style": "styl"}}, "has no column styl for style; did you mean `style`"),
        ({"source": "twice.parquet"}, "has several columns style for style: rename them"),
        ({"source": "broken.parquet"}, r"merge source .*broken\.parquet cannot be read"),
    ],
)
def test_a_source_that_cannot_be_used_is_named(folder: Path, fields: dict[str, object], words: str) -> None:
    pq.write_table(pa.table({"image_key": keys(), "style": keys()}), folder / "s.parquet")
    twice = pa.Table.from_arrays([pa.array(keys())] * 3, ["image_key", "style", "style"])
    pq.write_table(twice, folder / "twice.parquet")
    (folder / "broken.parquet").write_bytes((folder / "s.parquet").read_bytes()[:-100])
    with pytest.raises(MergeSourceUnusable, match=words):
        write_sidecars(folder, **{"columns": ["style"]} | fields)


def test_a_rerun_does_nothing_and_a_new_source_writes_sidecars_only(folder: Path) -> None:
    write_scores(folder / "scores.parquet", shuffled())
    fields = {"source": "scores.parquet", "columns": ["ernie_image_aes"], "mode": "prefer_source"}
    first = write_sidecars(folder, **fields)
    assert sum(bucket.shards_written for bucket in first.buckets.values()) == len(sidecar_paths(folder))
    second = write_sidecars(folder, **fields)
    assert sum(bucket.shards_written for bucket in second.buckets.values()) == 0
    assert [b.merged for b in second.buckets.values()] == [b.merged for b in first.buckets.values()]
    with open_pipeline(small_dataset(folder, merge_yaml(**fields))) as pipeline:
        assert pipeline.is_up_to_date()
    table = pq.read_table(folder / "scores.parquet")
    pq.write_table(table.slice(0, 29), folder / "scores.parquet")
    os.utime(folder / "scores.parquet", ns=(1, 1))
    with open_pipeline(small_dataset(folder, merge_yaml(**fields))) as pipeline:
        assert pipeline.is_up_to_date() is None
        assert sum(b.shards_written for b in pipeline.pack_buckets(BUCKET_KEYS).buckets.values()) == 0
    third = write_sidecars(folder, **fields | {"unmatched": "skip"})
    assert sum(bucket.shards_written for bucket in third.buckets.values()) == len(sidecar_paths(folder))
    merges = folder / "out" / "work" / "merges"
    assert len([*merges.iterdir()]) >= 1
    assert len([*merges.rglob("DONE.json")]) == 1, "the sorted source of the old version is gone"


def test_without_the_merge_the_sidecars_are_the_old_ones(folder: Path) -> None:
    before = {path: path.read_bytes() for path in sidecar_paths(folder)}
    write_scores(folder / "scores.parquet", shuffled())
    write_sidecars(folder, source="scores.parquet", columns=["ernie_image_aes"])
    assert {path: path.read_bytes() for path in sidecar_paths(folder)} != before
    with open_pipeline(small_dataset(folder)) as pipeline:
        pipeline.write_sidecars(BUCKET_KEYS)
    assert {path: path.read_bytes() for path in sidecar_paths(folder)} == before


def test_the_footer_and_the_receipt_say_where_values_come_from(folder: Path) -> None:
    write_scores(folder / "scores.parquet", shuffled()[:20], "k", "aes")
    write_sidecars(
        folder, source="scores.parquet", source_key="k", columns={"ernie_image_aes": "aes"}, unmatched="skip"
    )
    metadata = [pq.read_metadata(path).metadata[b"dataset_packaging.merge"] for path in sidecar_paths(folder)]
    entries = [entry for text in metadata for entry in json.loads(text)]
    assert {entry["column"] for entry in entries} == {"ernie_image_aes"}
    assert {entry["source"] for entry in entries} == {(folder / "scores.parquet").as_uri()}
    assert {tuple(entry["source_columns"]) for entry in entries} == {("aes",)}
    assert len({entry["fingerprint"] for entry in entries}) == 1
    assert sum(entry["matched"] for entry in entries) == sum(entry["taken"] for entry in entries) == 20
    assert sum(entry["unmatched"] for entry in entries) == 10
    schemas = {pq.read_schema(path).remove_metadata() for path in sidecar_paths(folder)}
    assert len(schemas) == 1


def write_aligned(folder: Path, change=lambda table: table) -> None:
    """A folder with the same relative shard paths, rows and order."""
    for path in sidecar_paths(folder):
        names = pq.ParquetFile(path).read(columns=["image_key"])["image_key"].to_pylist()
        values = pa.array([score(int(name[-4:])) for name in names], SCORE)
        target = folder / "aligned" / path.relative_to(folder / "out/side")
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(change(pa.table({"image_key": names, "aes": values})), target)


ALIGNED = {"source_prefix": "aligned", "columns": {"ernie_image_aes": "aes"}}


def test_an_aligned_family_is_merged_row_by_row(folder: Path) -> None:
    write_aligned(folder)
    report = write_sidecars(folder, **ALIGNED)
    assert blocked(report) == []
    assert [row["ernie_image_aes"] for row in read_sidecars(folder)] == [score(number) for number in range(ROWS)]


def test_a_new_aligned_shard_rewrites_one_sidecar(folder: Path) -> None:
    write_aligned(folder)
    write_sidecars(folder, **ALIGNED)
    rewrite(next(iter(sorted((folder / "aligned").rglob("*.parquet")))), lambda table: table)
    report = write_sidecars(folder, **ALIGNED)
    assert sum(bucket.shards_written for bucket in report.buckets.values()) == 1


def _swap(table: pa.Table) -> pa.Table:
    return table.take(pa.array([1, 0, *range(2, len(table))]))


def _null_key(table: pa.Table) -> pa.Table:
    return table.set_column(0, "image_key", pa.array([None, *table["image_key"].to_pylist()[1:]], pa.string()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            _swap,
            r"row 0 of .* is 'key-00\d\d', that of the shard 'key-00\d\d': it is not row-aligned \(2 rows differ\)",
        ),
        (_null_key, r"row 0 of .* is None, that of the shard 'key-00\d\d': it is not row-aligned \(1 rows differ\)"),
        (lambda table: table.slice(1), r"has \d rows, the shard \d: it is not row-aligned"),
        (lambda table: table.drop_columns(["image_key"]), "has no column image_key for the key"),
    ],
)
def test_rows_that_are_not_aligned_stop_the_sidecar(folder: Path, change, words: str) -> None:
    """SC-02: row i of the sidecar must not describe another picture."""
    import re

    write_aligned(folder)
    before = read_sidecars(folder)
    bad = folder / "aligned/0_512/10000/shard-000001.parquet"
    rewrite(bad, change)
    report = write_sidecars(folder, **ALIGNED)
    (reason,) = blocked(report)
    assert re.search(words, reason)
    assert "shard 1" in reason
    changed = [row for row in read_sidecars(folder) if row not in before]
    assert len(changed) == ROWS - 4, "the others are merged, that one stays as it was"


def test_an_aligned_shard_that_is_missing_counts_as_unmatched(folder: Path) -> None:
    write_aligned(folder)
    (folder / "aligned/0_512/10000/shard-000001.parquet").unlink()
    (reason,) = blocked(write_sidecars(folder, **ALIGNED))
    assert "4 of 4 rows are not in" in reason
    assert blocked(write_sidecars(folder, **ALIGNED | {"unmatched": "skip"})) == []
    assert sum(row["ernie_image_aes"] is None for row in read_sidecars(folder)) == 4


def test_merges_follow_each_other(folder: Path) -> None:
    pq.write_table(pa.table({"image_key": keys(10), "style": ["first"] * 10}), folder / "a.parquet")
    pq.write_table(pa.table({"image_key": keys(20), "style": ["second"] * 20}), folder / "b.parquet")
    entries = [{"source": name, "columns": ["style"], "unmatched": "skip"} for name in ("a.parquet", "b.parquet")]
    with open_pipeline(small_dataset(folder, f"sidecar: {{merge: {json.dumps(entries)}}}\n")) as pipeline:
        assert blocked(pipeline.write_sidecars(BUCKET_KEYS)) == []
    expected = ["first"] * 10 + ["second"] * 10 + [None] * 10
    assert [row["style"] for row in read_sidecars(folder)] == expected


def test_colliding_hashes_cost_no_row(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys of the same 64-bit hash stand in different shards: each gets its own value."""
    import numpy as np

    monkeypatch.setattr(merge_sort, "hash_texts", lambda texts: np.array([len(text) for text in texts], np.uint64))
    pq.write_table(
        pa.table({"p": [f"{n}.png" for n in range(ROWS)], "style": [str(n) for n in range(ROWS)]}), folder / "s.parquet"
    )
    report = write_sidecars(folder, source="s.parquet", key="s3_image_path", source_key="p", columns=["style"])
    assert blocked(report) == []
    assert [row["style"] for row in read_sidecars(folder)] == [str(number) for number in range(ROWS)]


def test_a_column_that_was_declared_after_the_plan_asks_for_a_new_plan(folder: Path) -> None:
    """As where only the sidecars are materialised in the UI."""
    declared = "sidecar: {schema_extensions: [{name: filter_x, type: 'struct<score: double>'}]}\n"
    with open_pipeline(small_dataset(folder, declared)) as pipeline:
        reasons = blocked(pipeline.write_sidecars(BUCKET_KEYS))
    assert len(reasons) == 3
    assert all("the plan was made before filter_x was declared; run pack" in reason for reason in reasons)
