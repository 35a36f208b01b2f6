"""A dataset's life on local files and on real S3 servers, step by step: the same fates, places, bytes and captions."""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging.packing.reports import RunOptions
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset, Row, open_pipeline, pack, photo
from dataset_packaging_tests.packing.s3_dataset import Bucket, output_key, uploaded
from dataset_packaging_tests.servers.s3_server import S3Endpoint

COLUMNS = ["image_key", "image", "width", "height", "is_rgba", "full_description"]


@dataclass(frozen=True, slots=True)
class Stand:
    """Everything of a packed dataset that does not name where it stands."""

    rows: dict[str, list[tuple[object, ...]]]
    sidecar_rows: dict[str, list[object]]
    fates: dict[str, tuple[int, int, dict[str, int], int, int]]
    rejects: list[tuple[object, object]]


class OnFiles:
    """The local dataset itself."""

    def __init__(self, local: PhotoDataset) -> None:
        self.dataset = local

    def publish(self) -> PhotoDataset:
        return self.dataset

    def shards(self, part: str) -> dict[str, bytes]:
        root = self.dataset.packed / part
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.parquet"))}


class OnS3:
    """The same images, manifest and prefixes in a bucket."""

    def __init__(self, local: PhotoDataset, bucket: Bucket) -> None:
        self.local, self.bucket = local, bucket
        self.known: set[str] = set()
        self.output = ""

    def publish(self) -> PhotoDataset:
        """Puts what the local folder holds by now, and deletes what it holds no more."""
        dataset = uploaded(self.local, self.bucket, "set")
        images = self.local.root / self.local.images
        there = {path.relative_to(images).as_posix() for path in images.rglob("*") if path.is_file()}
        for gone in self.known - there:
            self.bucket.client.delete_object(Bucket=self.bucket.name, Key=f"set/images/{gone}")
        self.known = there
        dataset.root = self.local.root / "on-s3"
        self.output = output_key(dataset)
        return dataset

    def shards(self, part: str) -> dict[str, bytes]:
        prefix = f"{self.output}/{part}/"
        return {key.removeprefix(prefix): self.bucket.read(key) for key in sorted(self.bucket.keys(prefix))}


def stand_of(place: OnFiles | OnS3, pipeline: Pipeline) -> Stand:
    rows = {}
    for name, data in place.shards("main").items():
        table = pq.read_table(pa.BufferReader(data), columns=COLUMNS).to_pylist()
        rows[name] = [
            tuple(hashlib.sha256(row[c]).hexdigest() if c == "image" else row[c] for c in COLUMNS) for row in table
        ]
    side = {
        name: pq.read_table(io.BytesIO(data), columns=["image_key", "full_description"]).to_pylist()
        for name, data in place.shards("side").items()
    }
    fates = {
        line.bucket: (line.rows, line.packed, line.rejected, line.duplicates, line.pending)
        for line in pipeline.ledger().lines
    }
    rejects = sorted(((row["image_key"], row["reason"]) for row in pipeline.rejects()), key=str)
    return Stand(rows, side, fates, rejects)


def live(place: OnFiles | OnS3, *, whole: bool = True) -> list[Stand]:
    """Packs, repeats, repairs and grows, and packs again; how it stands after each step.

    Without `whole` it ends after the first run and a repair: Ceph takes five times as long for a write.
    """
    local = place.dataset if isinstance(place, OnFiles) else place.local
    stands = []

    def step(options: RunOptions = RunOptions()) -> None:  # noqa: B008
        dataset = place.publish()
        assert pack(dataset, options).problems == ()
        with open_pipeline(dataset.config()) as pipeline:
            assert pipeline.verify(deep=True).findings == ()
            stands.append(stand_of(place, pipeline))

    step()
    local.write_image(local.row("k8").path, photo(8).data)
    local.write_image(local.row("k7").path, photo(7).data)
    step(RunOptions(retry_rejected=("not_found", "truncated_image")))
    if not whole:
        return stands
    step()
    local.add_photos(12)
    local.add_photos(4, sizes=False)
    step()
    local.row("k2").caption = "another caption"
    del local.rows[0]
    step()
    return stands


def dataset(root: Path) -> PhotoDataset:
    """Sizes told, untold and wrong; duplicates, broken lines, damaged, empty and missing images."""
    made = PhotoDataset(root)
    made.add_photos(24)
    made.add_photos(10, sizes=False)
    made.rows += ["{broken", "", '{"id": "no path"}']
    made.rows.append(Row("k3", made.row("k3").path, "again", (96, 96)))
    made.row("k5").size = (160, 90)
    made.write_image(made.row("k7").path, photo(7).data[:-50])
    made.image_path(made.row("k8").path).unlink()
    made.write_image(made.row("k9").path, b"")
    made.write_image(made.row("k30").path, b"not an image")
    return made


@pytest.fixture(scope="module")
def on_files(tmp_path_factory: pytest.TempPathFactory) -> list[Stand]:
    return live(OnFiles(dataset(tmp_path_factory.mktemp("files") / "one")))


@pytest.mark.parametrize("server", ["s3", "rgw"])
def test_a_dataset_lives_on_s3_as_on_files(
    on_files: list[Stand], server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    endpoint: S3Endpoint = request.getfixturevalue(f"{server}_server")
    request.getfixturevalue(f"{server}_environ")
    bucket = Bucket(request.getfixturevalue(f"{server}_bucket"), endpoint.client())
    on_s3 = live(OnS3(dataset(tmp_path / "one"), bucket), whole=server == "s3")
    for number, (here, there) in enumerate(zip(on_files[: len(on_s3)], on_s3, strict=True)):
        assert there == here, f"after step {number}"
    assert on_files[1] == on_files[2], "a second run changes nothing"
    assert set(on_files[2].rows) < set(on_files[3].rows), "new rows come into new shards"
    assert bucket.open_uploads() == []
