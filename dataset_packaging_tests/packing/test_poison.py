"""Images that kill, hang or starve a decoder cost only themselves, on real workers: neighbours are packed once."""

import hashlib
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_packaging.imaging.verify import verify_image
from dataset_packaging.packing.isolate import IsolatedVerifier
from dataset_packaging_tests.imaging.samples import STRICT
from dataset_packaging_tests.packing.photo_dataset import PhotoDataset, leftovers, open_pipeline, pack, photo, states
from dataset_packaging_tests.packing.runs import pack_on_ray


def sha256(dataset: PhotoDataset, key: str) -> str:
    return hashlib.sha256(dataset.image_path(dataset.row(key).path).read_bytes()).hexdigest()


@pytest.fixture
def dataset(tmp_path: Path) -> PhotoDataset:
    """Three shards of six square photographs."""
    made = PhotoDataset(tmp_path / "one", settings={"shard_size": 6, "decode_timeout_s": 3.0})
    made.add_photos(18, size=(96, 96))
    made.config()
    return made


def test_images_that_crash_hang_or_starve_the_decoder(dataset: PhotoDataset, tmp_path: Path) -> None:
    """RAY-04: each is rejected with its reason; everything else is packed; a second run does not meet them again."""
    marked = {"k1": "abort", "k3": "exit", "k8": "sleep", "k14": "devour"}
    decoder = {sha256(dataset, key): what for key, what in marked.items()}
    run = pack_on_ray(dataset.yaml, tmp_path / "injected", decoder=decoder)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["problems"] == []
    assert told["rejected"] == {"decoder_crashed": 3, "decoder_timeout": 1}
    with open_pipeline(dataset.config()) as pipeline:
        rejects = {row["image_key"]: row["reason"] for row in pipeline.rejects()}
        assert pipeline.is_up_to_date()
        assert pipeline.verify(deep=True).findings == ()
        assert pipeline.ledger().unbalanced == ()
    assert rejects == {
        "k1": "decoder_crashed",
        "k3": "decoder_crashed",
        "k8": "decoder_timeout",
        "k14": "decoder_crashed",
    }
    keys = pq.read_table(dataset.packed / "main", columns=["image_key"])["image_key"].to_pylist()
    assert sorted(keys) == sorted(f"k{number}" for number in range(18) if f"k{number}" not in marked)
    assert leftovers(dataset.packed) == []


def test_processes_that_are_killed_from_outside_cost_no_row(dataset: PhotoDataset, tmp_path: Path) -> None:
    """RAY-04: the kernel, short of memory, kills whatever is large: that is no verdict about an image."""
    run = pack_on_ray(dataset.yaml, tmp_path / "injected", decoder={sha256(dataset, "k1"): "kill"})
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    problem, _ = told["problems"]  # the other one: no sidecar for want of the shard
    assert "was killed, as the kernel does where memory runs out" in problem
    assert told["rejected"] == {}
    packed = pack(dataset)
    assert (packed.problems, packed.ledger.total.packed) == ((), 18)


def test_an_image_that_crashes_the_decoder_while_its_size_is_found_out(tmp_path: Path) -> None:
    """The manifest step verifies what tells no size: it must not die of it either."""
    dataset = PhotoDataset(tmp_path / "one", settings={"decode_timeout_s": 3.0})
    dataset.add_photos(6, size=(96, 96))
    dataset.rows += [dataset.photo_row(number, size=(96, 96), sizes=False) for number in (20, 21)]
    # A WebP with metadata: its header alone does not tell which side is up.
    dataset.write_image(dataset.row("k20").path, _webp_with_exif())
    dataset.config()
    run = pack_on_ray(dataset.yaml, tmp_path / "injected", decoder={sha256(dataset, "k20"): "abort"})
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout.splitlines()[-1])
    assert told["rejected"] == {"decoder_crashed": 1}
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.ledger().total.packed == 7


def test_a_rejected_image_is_tried_again_in_a_process_of_its_own(dataset: PhotoDataset, tmp_path: Path) -> None:
    """A retry of what killed a decoder kills no worker, and what is whole by then is packed."""
    decoder = {sha256(dataset, key): "abort" for key in ("k1", "k3")}
    run = pack_on_ray(dataset.yaml, tmp_path / "injected", decoder=decoder)
    assert json.loads(run.stdout.splitlines()[-1])["rejected"] == {"decoder_crashed": 2}
    before = states(dataset.packed / "main")
    with open_pipeline(dataset.config()) as pipeline:
        assert pipeline.retry(["decoder_crashed"]).succeeded == 2
    packed = pack(dataset)
    assert packed.ledger.total.rejected == {}
    after = states(dataset.packed / "main")
    assert {name: after[name] for name in before} == before


def test_the_isolated_verifier_comes_to_the_same_verdict_as_the_worker() -> None:
    with IsolatedVerifier(STRICT, 60) as verifier:
        for data in (photo(0).data, photo(1).data[:-50], b"", b"not an image", photo(24).data):
            assert verifier.verify(memoryview(data)) == verify_image(data, STRICT)


def _webp_with_exif() -> bytes:
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(io.BytesIO(photo(20).data)).convert("RGB").save(buffer, "WEBP", exif=exif)
    return buffer.getvalue()
