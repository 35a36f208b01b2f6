"""Reference, merges, crops, resized sets, handoff, reading and export with everything on a real S3 server."""

import io
import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.config import DatasetConfig, S3Config, parse_dataset
from dataset_packaging.core.schema import sidecar_schema
from dataset_packaging.packing.pipeline import BUCKET_KEYS
from dataset_packaging.reading import PackedDataset, RowReader
from dataset_packaging_tests.servers.s3_server import S3Endpoint
from dataset_packaging_tests.small_dataset import YAML, open_pipeline, write_rows

ROWS = 24
BUCKET = "handoff"
WORK = "out/work"
MORE = """
licence: CC0-1.0
resized: [512]
sidecar:
  reference: s3://handoff/reference/
  merge:
    - {source: s3://handoff/scores.parquet, columns: {aesthetic_score: score}, mode: prefer_source}
    - {source_prefix: s3://handoff/styles, columns: [style], unmatched: skip}
  crops: {}
"""


@pytest.fixture
def client(s3_server: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = s3_server.admin.environ() | {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_REGION": s3_server.region}
    for name, value in made.items():
        monkeypatch.setenv(name, value)
    client = s3_server.client()
    client.create_bucket(Bucket=BUCKET)
    return client


def put_table(client: Any, key: str, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    client.put_object(Bucket=BUCKET, Key=key, Body=buffer.getvalue())


def read_table(client: Any, key: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(client.get_object(Bucket=BUCKET, Key=key)["Body"].read()))


def keys(client: Any, prefix: str) -> list[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [item["Key"] for page in pages for item in page.get("Contents", ())]


@pytest.fixture
def dataset(client: Any, tmp_path: Path) -> DatasetConfig:
    """Images, manifest, reference, scores and styles on S3, and a dataset that reads and writes there alone."""
    write_rows(tmp_path, ROWS, lambda number: {"structured_description": {"bbox": [0, 0, 500, 1000]}})
    for path in (tmp_path / "images").iterdir():
        client.put_object(Bucket=BUCKET, Key=f"images/{path.name}", Body=path.read_bytes())
    client.put_object(Bucket=BUCKET, Key="rows.jsonl", Body=(tmp_path / "rows.jsonl").read_bytes())
    put_table(client, "reference/0_512/10000/shard-000000.parquet", sidecar_schema().empty_table())
    order = [(7 * number) % ROWS for number in range(ROWS)]
    scores = pa.table({"image_key": [f"key-{n:04d}" for n in order], "score": [n / 2 for n in order]})
    put_table(client, "scores.parquet", scores)
    first = (0, 3, 6, 9)
    styles = pa.table({"image_key": [f"key-{n:04d}" for n in first], "style": [f"style {n}" for n in first]})
    put_table(client, "styles/0_512/10000/shard-000000.parquet", styles)
    text = (YAML + MORE).replace("out/", "s3://handoff/out/").replace("images/", "s3://handoff/images/")
    return parse_dataset(text.replace("rows.jsonl", "s3://handoff/rows.jsonl"), "small.yaml", tmp_path, {})


def test_from_manifest_to_export(client: Any, dataset: DatasetConfig, s3_server: S3Endpoint, tmp_path: Path) -> None:
    with open_pipeline(dataset) as pipeline:
        pipeline.build_manifest()
        pipeline.pack_buckets(BUCKET_KEYS)
        resized = pipeline.write_resized(512, BUCKET_KEYS)
        sidecars = pipeline.write_sidecars(BUCKET_KEYS)
        assert not any(bucket.blocked for bucket in (*resized.buckets.values(), *sidecars.buckets.values()))
        assert pipeline.check_reference() == []
        handed = pipeline.write_handoff(deep=True)
        assert handed.findings == ()
        assert pipeline.export_hub(tmp_path / "hub").rows == ROWS

    side = pa.concat_tables(read_table(client, key) for key in keys(client, "out/side/")).to_pylist()
    assert {row["image_key"]: row["aesthetic_score"] for row in side} == {f"key-{n:04d}": n / 2 for n in range(ROWS)}
    styles = {row["image_key"]: row["style"] for row in side if row["style"] is not None}
    assert styles == {f"key-{n:04d}": f"style {n}" for n in (0, 3, 6, 9)}
    assert all(json.loads(row["structured_description_crop_512"])["bbox"] for row in side)
    assert [key.removeprefix("out/main_resized/512/") for key in keys(client, "out/main_resized/")] == [
        key.removeprefix("out/main/") for key in keys(client, "out/main/")
    ]
    told = json.loads(client.get_object(Bucket=BUCKET, Key=f"{WORK}/handoff/HANDOFF.json")["Body"].read())
    assert told["prefixes"]["resized_512"] == "s3://handoff/out/main_resized/512"
    assert told["rows"] == ROWS

    index = f"s3://handoff/{WORK}/handoff/blocks.parquet"
    packed = PackedDataset(
        "s3://handoff/out/main", "s3://handoff/out/side", index, S3Config(endpoint=s3_server.endpoint)
    )
    rows = RowReader(packed, sidecar_columns=["style"])
    assert len(rows) == ROWS
    assert rows.row("0_512/10000", 0, 1)["style"] == "style 3"
    pictures = datasets.load_dataset(str(tmp_path / "hub"), split="train")
    assert pictures.num_rows == ROWS
    assert pictures[0]["image"].size == (64, 64)

    client.put_object(Bucket=BUCKET, Key="out/main_resized/512/0_512/10000/shard-000000.parquet", Body=b"damaged")
    with open_pipeline(dataset) as pipeline:
        findings = pipeline.write_handoff().findings
        assert {(finding.check, finding.bucket, finding.shard) for finding in findings} >= {
            ("resized_state", "0_512/10000", 0)
        }
        assert keys(client, f"{WORK}/handoff/HANDOFF.json") == []
        report = pipeline.write_resized(512, BUCKET_KEYS)
        assert sum(bucket.shards_written for bucket in report.buckets.values()) == 1
        assert pipeline.write_handoff().findings == ()
