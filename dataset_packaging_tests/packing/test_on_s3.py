"""The same promises on a real S3 server: whole runs, and runs that are killed in the middle of an upload."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_packaging.io import s3_sink
from dataset_packaging_tests.packing.injection import Kill
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset, Row, open_pipeline, pack
from dataset_packaging_tests.packing.runs import KILLED, pack_on_ray, pack_until_killed
from dataset_packaging_tests.packing.s3_dataset import Bucket, output_key, uploaded
from dataset_packaging_tests.packing.test_kills import small_dataset
from dataset_packaging_tests.servers.s3_server import S3Endpoint

PART_BYTES = 5 << 20
"""The least that S3 takes: a shard of a few large images is then an upload of several parts."""


@pytest.fixture(scope="module")
def bucket(s3_server: S3Endpoint) -> Bucket:
    client = s3_server.client()
    client.create_bucket(Bucket="durability")
    return Bucket("durability", client)


@pytest.fixture(scope="module")
def environ(s3_server: S3Endpoint) -> Iterator[dict[str, str]]:
    made = s3_server.admin.environ() | {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_REGION": s3_server.region}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, bucket: Bucket, environ: dict[str, str]) -> PhotoDataset:
    """Images, manifest and output on S3; packed without a disturbance."""
    dataset = uploaded(small_dataset(tmp_path_factory.mktemp("s3")), bucket, "small")
    packed = pack(dataset)
    assert packed.problems == ()
    return dataset


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, bucket: Bucket, environ: dict[str, str]) -> PhotoDataset:
    """One shard of 15 MB; packed without a disturbance, as one plain put."""
    local = PhotoDataset(tmp_path_factory.mktemp("large"))
    pixels = np.random.default_rng(1)
    for number in range(6):
        buffer = io.BytesIO()
        noise = pixels.integers(0, 256, (900, 900, 3), np.uint8)
        Image.fromarray(noise).save(buffer, "PNG", compress_level=0)
        local.rows.append(Row(f"k{number}", f"{number}.png", "noise", (900, 900)))
        local.write_image(f"{number}.png", buffer.getvalue())
    dataset = uploaded(local, bucket, "large")
    pack(dataset)
    return dataset


@pytest.fixture
def disturbed(clean: PhotoDataset, bucket: Bucket, request: pytest.FixtureRequest) -> PhotoDataset:
    return elsewhere(clean, bucket, request)


@pytest.fixture
def disturbed_upload(large: PhotoDataset, bucket: Bucket, request: pytest.FixtureRequest) -> PhotoDataset:
    return elsewhere(large, bucket, request)


def elsewhere(dataset: PhotoDataset, bucket: Bucket, request: pytest.FixtureRequest) -> PhotoDataset:
    name = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    return replace(dataset, output=f"s3://{bucket.name}/{name}")


def assert_ends_as(dataset: PhotoDataset, clean: PhotoDataset, bucket: Bucket) -> None:
    output = output_key(dataset)
    for key in bucket.keys(f"{output}/main/"):
        pq.read_table(pa.BufferReader(bucket.read(key)))
    packed = pack(dataset)
    assert packed.problems == ()
    assert packed.ledger.unbalanced == ()
    assert bucket.contents(output) == bucket.contents(output_key(clean))
    assert bucket.open_uploads() == []
    assert "/".join((output, "work", "LEASE.json")) not in bucket.keys(f"{output}/")


def test_a_whole_run(clean: PhotoDataset, bucket: Bucket) -> None:
    with open_pipeline(clean.config()) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
        assert "up to date" in (pipeline.is_up_to_date() or "")
        ledger = pipeline.ledger()
    assert (ledger.total.packed, ledger.total.rejected) == (9, {"truncated_image": 1, "bad_row": 1})
    assert len([key for key in bucket.keys("small/clean/main/") if key.endswith(".parquet")]) == 4


def test_a_second_run_writes_nothing(clean: PhotoDataset, bucket: Bucket) -> None:
    def written() -> dict[str, Any]:
        page = bucket.client.list_objects_v2(Bucket=bucket.name, Prefix="small/clean/")
        return {item["Key"]: item["LastModified"] for item in page["Contents"]}

    before = written()
    again = pack(clean)
    assert (again.written, again.sidecars) == ({}, 0)
    assert written() == before


STEPS = [
    ("after put_if_absent work/LEASE.json", 1),
    ("after put work/generation-N/generation.json", 1),
    ("after put work/CURRENT.json", 1),
    ("before publish main/BUCKET/shard-N.parquet", 1),
    ("after publish main/BUCKET/shard-N.parquet", 2),
    ("after put work/receipts/BUCKET/shard-N.json", 2),
    ("after put work/facts/BUCKET/shard-N.parquet", 1),
    ("before put work/ledger.json", 1),
    ("after put side/BUCKET/shard-N.parquet", 1),
    ("before delete work/LEASE.json", 2),
]


@pytest.mark.parametrize(("step", "occurrence"), STEPS)
def test_a_run_that_is_killed_at_a_step(
    disturbed: PhotoDataset,
    clean: PhotoDataset,
    bucket: Bucket,
    environ: dict[str, str],
    tmp_path: Path,
    step: str,
    occurrence: int,
) -> None:
    disturbed.config()
    hits = tmp_path / "hits"
    hits.mkdir()
    kill = Kill(step, hits, occurrence)
    assert pack_until_killed(disturbed.yaml, disturbed.output, kill, environ=environ) == KILLED
    assert_ends_as(disturbed, clean, bucket)


@pytest.mark.parametrize("step", ["before publish", "after publish"])
def test_a_run_that_is_killed_in_the_middle_of_an_upload(
    disturbed_upload: PhotoDataset,
    large: PhotoDataset,
    bucket: Bucket,
    environ: dict[str, str],
    tmp_path: Path,
    step: str,
) -> None:
    """S3-10: no object is there, and the parts that the killed run has sent are thrown away by the next one."""
    disturbed_upload.config()
    hits = tmp_path / "hits"
    hits.mkdir()
    kill = Kill(f"{step} main/BUCKET/shard-N.parquet", hits)
    root = disturbed_upload.output
    code = pack_until_killed(disturbed_upload.yaml, root, kill, environ=environ, part_bytes=PART_BYTES)
    assert code == KILLED
    shards = bucket.keys(f"{output_key(disturbed_upload)}/main/")
    if step == "before publish":
        assert shards == []
        assert len(bucket.open_uploads()) == 1
    else:
        assert len(shards) == 1
    assert_ends_as(disturbed_upload, large, bucket)


@pytest.mark.parametrize("victim", ["self", "everything"])
def test_a_ray_run_that_is_killed_before_it_publishes(
    disturbed: PhotoDataset, clean: PhotoDataset, bucket: Bucket, tmp_path: Path, victim: str
) -> None:
    disturbed.config()
    hits = tmp_path / "hits"
    hits.mkdir()
    step = "before publish main/BUCKET/shard-N.parquet"
    kill = Kill(step, hits, victim=victim)  # type: ignore[arg-type]
    run = pack_on_ray(disturbed.yaml, tmp_path / "injected", root=disturbed.output, kill=kill)
    assert run.returncode == (0 if victim == "self" else KILLED), run.stderr
    assert_ends_as(disturbed, clean, bucket)


def test_an_upload_in_parts_gives_the_bytes_of_a_plain_one(
    disturbed_upload: PhotoDataset, large: PhotoDataset, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_sink, "PART_BYTES", PART_BYTES)
    pack(disturbed_upload)
    assert bucket.contents(output_key(disturbed_upload)) == bucket.contents(output_key(large))
    with open_pipeline(disturbed_upload.config()) as pipeline:
        assert pipeline.is_up_to_date()


@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_a_damaged_shard_is_rebuilt(disturbed: PhotoDataset, clean: PhotoDataset, bucket: Bucket, damage: str) -> None:
    """PQ-06: its ETag and size tell it."""
    pack(disturbed)
    key = f"{output_key(disturbed)}/main/0_512/10000/shard-000000.parquet"
    body = bucket.read(key)
    if damage == "remove":
        bucket.client.delete_object(Bucket=bucket.name, Key=key)
    else:
        bad = body[:-1] if damage == "cut" else body[:300] + bytes([body[300] ^ 0xFF]) + body[301:]
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=bad)
    with open_pipeline(disturbed.config()) as pipeline:
        (finding,) = [each for each in pipeline.verify().findings if each.check == "shard_state"]
        assert (finding.bucket, finding.shard) == ("0_512/10000", 0)
    assert pack(disturbed).written == {"0_512/10000": 1}
    assert bucket.contents(output_key(disturbed)) == bucket.contents(output_key(clean))
