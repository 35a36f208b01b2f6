"""Runs of a dataset's job: what is materialised, what is blocked, what a second run does again."""

import asyncio
import base64
import re
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from PIL import Image

from dataset_packaging.orchestration.bucket_events import read_latest
from dataset_packaging.orchestration.keys import BUCKET_KEYS, WHOLE_DATASET_TAGS
from dataset_packaging.packing.pipeline import Pipeline
from dataset_packaging_tests.orchestration.small_dataset import (
    FIRST,
    LAST,
    SQUARE,
    TALL,
    WIDE,
    SmallDataset,
    evaluations,
    failed_evaluations,
    failure_text,
    materialized,
)

RANGE = BUCKET_KEYS[BUCKET_KEYS.index(FIRST) : BUCKET_KEYS.index(LAST) + 1]


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)


def _metadata(result: dg.ExecuteInProcessResult, key: dg.AssetKey, partition: str | None) -> dict[str, object]:
    (event,) = [
        event.materialization
        for event in result.all_events
        if event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION
        and (event.asset_key, event.partition) == (key, partition)
    ]
    return {name: getattr(value, "value", value) for name, value in event.metadata.items()}


def test_a_run_over_a_range_materialises_every_bucket_of_it(small: SmallDataset, instance: dg.DagsterInstance):
    result = small.run(instance)
    assert result.success
    assert materialized(result, small.keys.manifest) == [None]
    assert materialized(result, small.keys.shards) == list(RANGE)
    assert materialized(result, small.keys.sidecars) == list(RANGE)
    assert failed_evaluations(result) == []
    assert small.shard(SQUARE).exists()
    assert small.sidecar(TALL).exists()


def test_a_partition_alone_is_a_run_as_well(small: SmallDataset, instance: dg.DagsterInstance):
    job = small.definitions().resolve_job_def(small.keys.job)
    result = job.execute_in_process(instance=instance, partition_key=WIDE)
    assert materialized(result, small.keys.shards) == [WIDE]
    assert not small.shard(SQUARE).exists()


def test_each_bucket_has_an_evaluation_of_each_check_tied_to_its_materialisation(
    small: SmallDataset, instance: dg.DagsterInstance
):
    """DAG-11: the last evaluation of an asset must not stand for all partitions."""
    result = small.run(instance)
    found = {(e.asset_key.path[-1], e.check_name, e.partition) for e in evaluations(result)}
    by_bucket = {
        *(("shards", name) for name in ("schema", "bucket_membership", "rows_conserved", "contiguous_shards")),
        *(("sidecars", name) for name in ("column_names", "row_alignment", "meta_info_json")),
    }
    whole = {
        ("manifest", "rows_conserved"),
        ("manifest", "unique_keys"),
        ("shards", "reject_fraction"),
        ("shards", "ledger_balance"),
    }
    assert found == {(*check, bucket) for check in by_bucket for bucket in RANGE} | {(*check, None) for check in whole}
    targets = {e.target_materialization_data.run_id for e in evaluations(result) if e.partition}
    assert targets == {result.run_id}


def test_a_bad_bucket_blocks_its_own_sidecar_and_no_other(small: SmallDataset, instance: dg.DagsterInstance):
    """DAG-03, DAG-07: a failed check stops what depends on the bad bucket, and nothing else."""
    small.run(instance)
    stray = small.shard(SQUARE).with_name("notes.txt")
    stray.write_text("not a shard")
    small.add(WIDE, 1)
    small.add(SQUARE, 1)
    result = small.run(instance)
    assert not result.success
    assert failed_evaluations(result) == [("shards", "contiguous_shards", SQUARE)]
    assert materialized(result, small.keys.shards) == list(RANGE)
    assert materialized(result, small.keys.sidecars) == [key for key in RANGE if key != SQUARE]
    assert failure_text(result).startswith(
        f"1 of {len(RANGE)} buckets are not whole, and have no new sidecars: {SQUARE}: "
    )
    assert "notes.txt" in failure_text(result)

    stray.unlink()
    retried = small.run(instance)
    assert retried.success
    assert materialized(retried, small.keys.sidecars) == list(RANGE)


def test_sidecars_alone_refuse_buckets_whose_shards_failed_a_check(small: SmallDataset, instance: dg.DagsterInstance):
    """DAG-03: blocking holds in its own run only, so that the step itself must refuse."""
    small.run(instance)
    small.shard(SQUARE).with_name("notes.txt").write_text("not a shard")
    small.run(instance, assets=[small.keys.shards])
    result = small.run(instance, assets=[small.keys.sidecars])
    assert not result.success
    assert materialized(result, small.keys.sidecars) == [key for key in RANGE if key != SQUARE]
    assert "its shards failed contiguous_shards" in failure_text(result)


def test_a_check_that_breaks_is_a_failure(
    small: SmallDataset, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
):
    """DAG-03: no sidecar is written from shards that nobody could look at."""

    def broken(*_: object) -> None:
        raise RuntimeError("the check itself is broken")

    monkeypatch.setattr(Pipeline, "check_shards", broken)
    result = small.run(instance)
    assert not result.success
    assert "the check itself is broken" in failure_text(result)
    assert materialized(result, small.keys.sidecars) == []


def test_a_shard_that_cannot_be_packed_leaves_its_bucket_unmaterialised(
    small: SmallDataset, instance: dg.DagsterInstance
):
    """DAG-07: of several buckets in one run only the failed one fails, and a retry does it alone."""
    blocker = small.shard(SQUARE)
    blocker.mkdir(parents=True)
    result = small.run(instance)
    assert not result.success
    assert f"buckets are not whole, and have no new sidecars: {SQUARE}: " in failure_text(result)
    assert materialized(result, small.keys.shards) == [key for key in RANGE if key != SQUARE]
    assert materialized(result, small.keys.sidecars) == [key for key in RANGE if key != SQUARE]
    written = {bucket: small.shard(bucket).stat().st_mtime_ns for bucket in (WIDE, TALL)}

    blocker.rmdir()
    retried = small.run(instance)
    assert retried.success
    assert {bucket: small.shard(bucket).stat().st_mtime_ns for bucket in written} == written
    assert _metadata(retried, small.keys.shards, SQUARE)["shards written"] == 1
    assert _metadata(retried, small.keys.shards, WIDE)["shards written"] == 0


def test_a_damaged_shard_is_rebuilt_by_the_next_run(small: SmallDataset, instance: dg.DagsterInstance):
    small.run(instance)
    whole = small.shard(WIDE).read_bytes()
    _damage(small.shard(WIDE))
    result = small.run(instance)
    assert result.success
    assert small.shard(WIDE).read_bytes() == whole
    assert _metadata(result, small.keys.shards, SQUARE)["shards written"] == 0


def test_too_many_rejects_fail_their_check_and_block_nothing_but_the_handoff(
    small: SmallDataset, instance: dg.DagsterInstance
):
    (name,) = small.add(SQUARE, 1)
    picture = small.folder / "images" / name
    picture.write_bytes(picture.read_bytes()[:60])
    small.manifest.write_text(small.manifest.read_text().replace(f'"{name}"', f'"{name}", "width": 48, "height": 48'))
    result = small.run(instance)
    assert failed_evaluations(result) == [("shards", "reject_fraction", None)]
    assert materialized(result, small.keys.sidecars) == list(RANGE)
    assert materialized(result, small.keys.handoff) == []
    assert failure_text(result).startswith("small is not handed off: reject_fraction: 1 of 7 rows are rejected")


def test_empty_buckets_are_materialised_as_such(small: SmallDataset, instance: dg.DagsterInstance):
    result = small.run(instance)
    empty = _metadata(result, small.keys.shards, "0_512/7059")
    assert (empty["dagster/row_count"], empty["empty"]) == (0, True)
    full = _metadata(result, small.keys.shards, SQUARE)
    assert (full["dagster/row_count"], full["empty"], full["shards"]) == (2, False, 1)


def test_a_manifest_that_is_missing_fails_with_one_line(small: SmallDataset, instance: dg.DagsterInstance):
    small.manifest.unlink()
    result = small.run(instance)
    assert not result.success
    assert str(small.manifest) in failure_text(result)
    assert materialized(result, small.keys.shards) == []


def test_rows_in_the_wrong_bucket_move_within_a_run_over_all_buckets(tmp_path: Path, instance: dg.DagsterInstance):
    small = SmallDataset(tmp_path)
    small.add(WIDE, 3, width=48, height=48)
    result = small.run(instance, BUCKET_KEYS[0], BUCKET_KEYS[-1])
    assert result.success, failure_text(result)
    assert _metadata(result, small.keys.shards, WIDE)["dagster/row_count"] == 3
    assert _metadata(result, small.keys.shards, SQUARE)["dagster/row_count"] == 0
    assert materialized(result, small.keys.manifest) == [None, None]
    status = instance.get_latest_data_version_record(small.keys.manifest)
    assert status is not None


def test_a_manifest_that_a_later_step_publishes_is_checked_as_well(tmp_path: Path):
    """DAG-11: the page of the asset shows verdicts on its latest materialisation only."""
    small = SmallDataset(tmp_path / "data")
    small.add(WIDE, 3, width=48, height=48)
    everything = BUCKET_KEYS[0], BUCKET_KEYS[-1]
    with dg.instance_for_test(temp_dir=str(tmp_path)) as on_disk:
        assert small.run(on_disk, assets=[small.keys.manifest]).success
        result = small.run(on_disk, *everything, assets=[small.keys.shards])
        assert result.success, failure_text(result)
        assert materialized(result, small.keys.manifest) == [None]
        latest = read_latest(on_disk, small.keys.manifest)[None]
        for name in ("rows_conserved", "unique_keys"):
            check = dg.AssetCheckKey(small.keys.manifest, name)
            (record,) = on_disk.event_log_storage.get_asset_check_execution_history(check, limit=1)
            assert record.status == AssetCheckExecutionRecordStatus.SUCCEEDED
            assert record.evaluation is not None
            assert record.evaluation.target_materialization_data is not None
            assert record.evaluation.target_materialization_data.storage_id == latest.storage_id
            assert asyncio.run(record.targets_latest_materialization(LoadingContextForTest(on_disk)))


def test_a_run_over_some_buckets_leaves_moved_rows_to_the_next_full_one(tmp_path: Path, instance: dg.DagsterInstance):
    small = SmallDataset(tmp_path)
    small.add(WIDE, 3, width=48, height=48)
    result = small.run(instance)
    assert result.success
    assert materialized(result, small.keys.manifest) == [None]
    assert _metadata(result, small.keys.shards, SQUARE)["moved"] == 3


def test_a_trial_run_takes_only_the_first_rows(small: SmallDataset, instance: dg.DagsterInstance):
    result = small.run(instance, options={"limit_rows": 1})
    assert result.success
    assert _metadata(result, small.keys.manifest, None)["planned rows"] == 1


@pytest.mark.parametrize("rejects", [3, 300])
def test_events_do_not_grow_with_the_rows(tmp_path: Path, instance: dg.DagsterInstance, rejects: int):
    """DAG-09: a log line or metadata per reject fills the event log."""
    small = SmallDataset(tmp_path, yaml="images: {max_rejected_fraction: 1}\n")
    small.add(SQUARE, 1)
    for number in range(rejects):
        small.add_line({"s3_image_path": f"missing_{number}.png", "width": 48, "height": 48})
    result = small.run(instance, SQUARE, SQUARE)
    assert result.success
    assert _metadata(result, small.keys.shards, SQUARE)["rejected"] == rejects
    records = instance.get_records_for_run(result.run_id).records
    assert len(records) < 80
    entries = [(record.event_log_entry.step_key, len(str(record.event_log_entry))) for record in records]
    assert max(size for step, size in entries if step != "small__handoff") < 40_000
    assert max(size for step, size in entries if step == "small__handoff") < 80_000


def test_the_whole_dataset_is_one_range(small: SmallDataset):
    assert {
        "dagster/asset_partition_range_start": BUCKET_KEYS[0],
        "dagster/asset_partition_range_end": BUCKET_KEYS[-1],
    } == WHOLE_DATASET_TAGS


def test_a_partition_shows_its_pictures(small: SmallDataset, instance: dg.DagsterInstance):
    result = small.run(instance)
    shown = str(_metadata(result, small.keys.shards, SQUARE)["contact sheet"])
    sheet = small.folder / "small_parquet_work" / "contact_sheets" / f"{SQUARE}.jpg"
    assert base64.b64decode(shown.partition("base64,")[2].rstrip(")")) == sheet.read_bytes()
    with Image.open(sheet) as picture:
        picture.load()
        assert picture.format == "JPEG"
    assert "contact sheet" not in _metadata(result, small.keys.shards, "0_512/7059")


def test_pictures_are_drawn_again_only_where_shards_were_written(small: SmallDataset, instance: dg.DagsterInstance):
    small.run(instance)
    folder = small.folder / "small_parquet_work" / "contact_sheets"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jpg")}
    small.add(WIDE, 1)
    small.run(instance)
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*.jpg")}
    assert [path.relative_to(folder).as_posix() for path in after if after[path] != before.get(path)] == [f"{WIDE}.jpg"]


def test_a_sheet_of_a_large_bucket_stays_small(tmp_path: Path, instance: dg.DagsterInstance):
    """DAG-09: what stands in an event is bounded, whatever the bucket holds."""
    small = SmallDataset(tmp_path, yaml="packing: {shard_size: 20}\n")
    small.add(SQUARE, 60)
    result = small.run(instance, SQUARE, SQUARE)
    assert len(str(_metadata(result, small.keys.shards, SQUARE)["contact sheet"])) < 100_000


def test_a_sidecar_partition_shows_a_few_rows(small: SmallDataset, instance: dg.DagsterInstance):
    small.add(SQUARE, 1, caption="a | pipe <b>and</b> [more](x)", style="x" * 500)
    preview = str(_metadata(small.run(instance), small.keys.sidecars, SQUARE)["preview"])
    lines = preview.splitlines()
    assert lines[0] == "| column | row 0 | row 1 | row 2 |"
    assert any(line.startswith("| image_key | file:///") for line in lines)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5}


def test_materialisations_are_fresh_until_their_inputs_change(small: SmallDataset, instance: dg.DagsterInstance):
    """DAG-12: the data version of the source, not its name, says what is out of date."""
    assert small.run(instance, BUCKET_KEYS[0], BUCKET_KEYS[-1]).success
    assert _stale(small, instance) == set()
    small.add(SQUARE, 1)
    assert small.run(instance, assets=[small.keys.manifest]).success
    assert _stale(small, instance) == {("shards", SQUARE)}
    assert small.run(instance, SQUARE, SQUARE).success
    assert _stale(small, instance) == set()
    small.yaml.write_text(small.yaml.read_text() + "images: {orientation: stored}\n")
    assert _stale(small, instance) == {("manifest", None), ("shards", SQUARE), ("sidecars", SQUARE)}


def test_other_bytes_of_the_same_counts_are_told_apart(tmp_path: Path, instance: dg.DagsterInstance):
    """DAG-12: an image was replaced by one of the same size; only its own bucket is out of date."""
    small = SmallDataset(tmp_path)
    for bucket in (SQUARE, WIDE):
        small.add(bucket)
    small.run(instance)
    square, wide = (_versions(instance, small.keys.shards)[key] for key in (SQUARE, WIDE))
    picture = small.folder / "images" / "small_0.png"
    before = picture.read_bytes()
    Image.new("RGB", (48, 48), (200, 99, 7)).save(picture)
    assert len(picture.read_bytes()) == len(before)
    assert small.run(instance, options={"rebuild": True}, assets=[small.keys.shards]).success
    after = _versions(instance, small.keys.shards)
    assert (after[SQUARE] != square, after[WIDE] == wide) == (True, True)
    assert _stale(small, instance, SQUARE) == {("sidecars", SQUARE)}
    assert _stale(small, instance, WIDE) == set()


def test_a_new_caption_reaches_the_sidecar_of_its_bucket_alone(small: SmallDataset, instance: dg.DagsterInstance):
    """DAG-12: no byte of a shard differs, and the sidecar must be written again."""
    small.run(instance)
    lines = small.manifest.read_text().splitlines()
    lines[0] = lines[0].replace("}", ', "style": "plain"}')
    small.manifest.write_text("\n".join(lines) + "\n")
    assert small.run(instance, assets=[small.keys.manifest, small.keys.shards]).success
    assert _stale(small, instance, SQUARE) == {("sidecars", SQUARE)}
    assert _stale(small, instance, WIDE) == set()
    assert small.run(instance, assets=[small.keys.sidecars]).success
    assert _stale(small, instance, SQUARE) == set()


def test_a_manifest_that_was_only_copied_leaves_everything_fresh(small: SmallDataset, instance: dg.DagsterInstance):
    """DAG-12: another version of the file, the same rows: the plan is the same, and what was made from it."""
    small.run(instance)
    before = _versions(instance, small.keys.manifest)
    small.manifest.write_text(small.manifest.read_text() + "\n")
    assert small.run(instance, assets=[small.keys.manifest]).success
    assert _versions(instance, small.keys.manifest) == before
    assert _stale(small, instance, SQUARE) == set()


def _versions(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str | None, str | None]:
    """Data version of the latest materialisation of each partition."""
    partitions = None if key.path[-1] == "manifest" else BUCKET_KEYS
    return {bucket: written.data_version for bucket, written in read_latest(instance, key, partitions).items()}


def _stale(small: SmallDataset, instance: dg.DagsterInstance, bucket: str = SQUARE) -> set[tuple[str, str | None]]:
    """What Dagster takes for out of date, of the manifest and of one bucket."""
    graph = small.definitions().get_repository_def().asset_graph
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    looked_at = [(small.keys.manifest, None), (small.keys.shards, bucket), (small.keys.sidecars, bucket)]
    return {
        (key.path[-1], partition)
        for key, partition in looked_at
        if resolver.get_status(key, partition) != StaleStatus.FRESH
    }


RESIZED = "resized: [512, 1024]\nsidecar: {crops: {sizes: [512]}}\n"


def _kinds(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> dict[str, object]:
    return _metadata(result, key, None)


def test_a_run_makes_resized_images_then_sidecars_then_the_handoff(tmp_path: Path, instance: dg.DagsterInstance):
    small = SmallDataset(tmp_path, yaml=RESIZED)
    for bucket in (SQUARE, WIDE, TALL):
        small.add(bucket, 2)
    graph = small.definitions().resolve_asset_graph()
    assert graph.get(small.keys.sidecars).parent_keys == {small.keys.shards, small.keys.resized(512)}
    assert graph.get(small.keys.handoff).parent_keys == {
        small.keys.shards, small.keys.sidecars, small.keys.resized(512), small.keys.resized(1024),
    }  # fmt: skip
    result = small.run(instance, *BUCKET_KEYS[:: len(BUCKET_KEYS) - 1])
    assert result.success
    assert failed_evaluations(result) == []
    assert {key for _, name, key in ((e.asset_key, e.check_name, e.partition) for e in evaluations(result))
            if name == "row_alignment"} == set(BUCKET_KEYS)  # fmt: skip
    for size in (512, 1024):
        assert materialized(result, small.keys.resized(size)) == list(BUCKET_KEYS)
        told = _metadata(result, small.keys.resized(size), SQUARE)
        assert (told["dagster/row_count"], told["rows without an image"]) == (2, 0)
    assert materialized(result, small.keys.handoff) == [None]
    told = _kinds(result, small.keys.handoff)
    assert told["dagster/row_count"] == 6
    assert str(told["card"]).startswith("# small")
    assert "![" not in str(told["card"])
    for name, start in (("stats.png", b"\x89PNG"), ("contact_sheets/0_512.jpg", b"\xff\xd8")):
        kind, data = re.fullmatch(r"!\[.*\]\(data:image/(png|jpeg);base64,(.*)\)", str(told[name])).groups()  # type: ignore[union-attr]
        assert base64.b64decode(data).startswith(start), kind
    summary = told["summary"]
    assert isinstance(summary, dict)
    assert set(summary["prefixes"]) >= {"output_prefix", "sidecar_prefix", "resized_512", "resized_1024"}

    again = small.run(instance, *BUCKET_KEYS[:: len(BUCKET_KEYS) - 1])
    assert _kinds(again, small.keys.handoff)["unchanged"] is True
    assert _metadata(again, small.keys.resized(512), SQUARE)["shards written"] == 0


def test_a_failed_check_leaves_no_handoff(small: SmallDataset, instance: dg.DagsterInstance):
    whole = (BUCKET_KEYS[0], BUCKET_KEYS[-1])
    handoff = small.folder / "small_parquet_work/handoff"
    assert materialized(small.run(instance, *whole), small.keys.handoff) == [None]
    assert (handoff / "HANDOFF.json").exists()
    small.shard(SQUARE).with_name("notes.txt").write_text("not a shard")
    small.add(WIDE, 1)
    result = small.run(instance, *whole)
    assert not result.success
    assert materialized(result, small.keys.handoff) == []
    alone = small.run(instance, *whole, assets=[small.keys.handoff])
    assert not alone.success
    assert failure_text(alone).startswith("small is not handed off: foreign_files: ")
    assert not handoff.exists() or not list(handoff.rglob("*.json"))


def test_a_run_over_some_buckets_hands_nothing_off_and_does_not_fail(small: SmallDataset, instance: dg.DagsterInstance):
    result = small.run(instance, WIDE, WIDE)
    assert result.success
    assert materialized(result, small.keys.handoff) == []
    alone = small.run(instance, WIDE, WIDE, assets=[small.keys.handoff])
    assert not alone.success
    assert "are pending" in failure_text(alone) or "not packed yet" in failure_text(alone)


def test_resized_images_wait_for_whole_shards_bucket_by_bucket(tmp_path: Path, instance: dg.DagsterInstance):
    small = SmallDataset(tmp_path, yaml="resized: [512]\n")
    for bucket in (SQUARE, WIDE):
        small.add(bucket, 1)
    small.shard(SQUARE).mkdir(parents=True)
    result = small.run(instance)
    assert not result.success
    expected = [key for key in RANGE if key != SQUARE]
    assert materialized(result, small.keys.resized(512)) == expected
    small.shard(SQUARE).rmdir()
    retried = small.run(instance)
    assert retried.success
    assert materialized(retried, small.keys.resized(512)) == list(RANGE)
