"""Fetching and judging images: order, look-ahead, stuck decoders, several shards at once."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataset_packaging.config import DatasetConfig, parse_dataset
from dataset_packaging.errors import DecoderStuck, NotFound, ObjectTooLarge, TransientStoreError
from dataset_packaging.imaging.verify import ImagePolicy, Verdict
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing import decoder, fetch
from dataset_packaging.packing.decoder import WantedImage, checksum_mismatch
from dataset_packaging.packing.fetch import ImageChecker, image_policy, reject_reason
from dataset_packaging_tests.imaging.samples import encoded, photograph

_DATASET = """
name: images
manifest: rows.jsonl
output_prefix: out
"""


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetConfig:
    return parse_dataset(_DATASET, "images.yaml", tmp_path, {})


@pytest.fixture
def checker(dataset: DatasetConfig) -> ImageChecker:
    return ImageChecker(Stores(StorageConfig.of(dataset)), image_policy(dataset), 60)


def _wanted(folder: Path, count: int, estimated_bytes: int) -> list[WantedImage]:
    """Writes images, every third of them damaged."""
    whole = encoded(photograph("chelsea.png").resize((40, 30)), "PNG")
    found = []
    for number in range(count):
        path = folder / f"{number:03d}.png"
        path.write_bytes(whole[:-40] if number % 3 == 2 else whole)
        found.append(WantedImage(f"file://{path}", estimated_bytes))
    return found


def test_images_come_in_order_whatever_their_fate(checker: ImageChecker, tmp_path: Path) -> None:
    wanted = _wanted(tmp_path, 100, 1000)
    wanted[10] = WantedImage(f"file://{tmp_path}/none.png", 1000)
    reasons = [checked.verdict.reason for checked in checker.check(wanted)]
    assert reasons[10] == "not_found"
    assert [reason is None for number, reason in enumerate(reasons) if number != 10] == [
        number % 3 != 2 for number in range(100) if number != 10
    ]


@pytest.mark.parametrize("estimated_bytes", [0, 1000, 1 << 40])
def test_any_estimate_ends(checker: ImageChecker, tmp_path: Path, estimated_bytes: int) -> None:
    """An object above the whole look-ahead must still be fetched, and a wrong estimate must not stop the rest."""
    assert len(list(checker.check(_wanted(tmp_path, 60, estimated_bytes)))) == 60


def test_leaving_early_gives_the_look_ahead_back(checker: ImageChecker, tmp_path: Path) -> None:
    """A shard that is given up must not starve those that share its worker."""
    wanted = _wanted(tmp_path, 20, fetch.LOOK_AHEAD_BYTES // 4)
    for _ in range(5):
        images = checker.check(wanted)
        next(images)
        images.close()
    assert len(list(checker.check(wanted))) == 20
    assert checker._ahead_bytes == 0


def test_shards_side_by_side_share_one_decoder(
    checker: ImageChecker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCALE: two rasters at once would double the memory of a worker."""
    at_work: list[int] = []
    most: list[int] = []
    verify = decoder.verify_image

    def count(data: memoryview, policy: ImagePolicy) -> Verdict:
        at_work.append(1)
        most.append(len(at_work))
        verdict = verify(data, policy)
        at_work.pop()
        return verdict

    monkeypatch.setattr(decoder, "verify_image", count)
    wanted = _wanted(tmp_path, 50, 1000)
    shards = [threading.Thread(target=lambda: list(checker.check(wanted))) for _ in range(3)]
    for shard in shards:
        shard.start()
    for shard in shards:
        shard.join()
    assert (len(most), max(most)) == (150, 1)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_decode_without_end_is_told_and_the_next_shard_decodes(
    dataset: DatasetConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    """RAY-04: a decoder that hangs must not hang the run."""
    verify = decoder.verify_image

    def hang(data: memoryview, policy: ImagePolicy) -> Verdict:
        released.wait()
        return verify(data, policy)

    monkeypatch.setattr(decoder, "verify_image", hang)
    checker = ImageChecker(Stores(StorageConfig.of(dataset)), image_policy(dataset), 0.5)
    wanted = _wanted(tmp_path, 3, 1000)
    with pytest.raises(DecoderStuck, match=r"00\d\.png has been decoding"):
        list(checker.check(wanted))
    monkeypatch.setattr(decoder, "verify_image", verify)
    assert len(list(checker.check(wanted))) == 3


def test_an_object_above_the_limit_is_rejected_unread(dataset: DatasetConfig, tmp_path: Path) -> None:
    small = ImagePolicy("strict", "upright", ("PNG",), max_pixels=10**6, max_bytes=1000)
    stores = Stores(StorageConfig.of(dataset))
    (checked,) = ImageChecker(stores, small, 60).check(_wanted(tmp_path, 1, 10))
    assert (checked.verdict.reason, checked.data) == ("too_large", None)
    assert stores.stats().get("bytes_read", 0) == 0


def test_a_decoder_without_memory_is_no_verdict_yet(
    checker: ImageChecker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour may have taken the memory: only a process of its own may blame the image."""
    monkeypatch.setattr(decoder, "verify_image", lambda *_: Verdict("decoder_crashed", "MemoryError"))
    with pytest.raises(MemoryError, match=r"000\.png"):
        list(checker.check(_wanted(tmp_path, 1, 1000)))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"expected_bytes": 4}, "3 bytes; the manifest says 4"),
        ({"expected_sha256": "00"}, "the manifest says 00"),
        ({"expected_md5": "00"}, "the manifest says 00"),
    ],
)
def test_what_the_manifest_says_of_the_bytes_is_compared(told: dict[str, Any], words: str) -> None:
    """IMG-08: what no decoder can see."""
    image = WantedImage("file:///0", 3, **told)
    assert words in (checksum_mismatch(memoryview(b"abc"), "11", image) or "")
    right = WantedImage("file:///0", 3, 3, "AA", "900150983CD24FB0D6963F7D28E17F72")
    assert checksum_mismatch(memoryview(b"abc"), "aa", right) is None


def test_reasons_are_told_by_the_type_of_the_error() -> None:
    assert reject_reason(NotFound("u", "x")) == ("not_found", "x")
    assert reject_reason(ObjectTooLarge("u", "x")) == ("too_large", "x")
    assert reject_reason(TransientStoreError("u", "x")) == ("fetch_failed", "x")
