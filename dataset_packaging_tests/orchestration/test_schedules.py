"""Schedules and sensors: one run for the whole dataset, one for each tick, none while nothing is to be done."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.definitions.observe import observe
from dagster._utils.schedules import cron_string_iterator, is_valid_cron_schedule

from dataset_packaging.config import ScheduleConfig
from dataset_packaging.orchestration.keys import BUCKET_KEYS, range_tags
from dataset_packaging.orchestration.resources import S3Access
from dataset_packaging_tests.orchestration.small_dataset import SQUARE, SmallDataset

TICK = datetime(2026, 3, 28, 2, 0, tzinfo=ZoneInfo("Europe/Vienna"))
RANGE_TAGS = {
    "dagster/asset_partition_range_start": BUCKET_KEYS[0],
    "dagster/asset_partition_range_end": BUCKET_KEYS[-1],
    "dataset_packaging/dataset": "small",
}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance on disk: what a schedule is given must be one that other processes can open."""
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def scheduled(tmp_path: Path) -> SmallDataset:
    small = SmallDataset(tmp_path, yaml='schedule: {cron: "0 2 * * *", timezone: Europe/Vienna}\ntrigger: on_change\n')
    small.add(SQUARE)
    return small


def _tick(small: SmallDataset, instance: dg.DagsterInstance, at: datetime = TICK) -> dg.RunRequest | str:
    """Evaluate the schedule: the one run that it asks for, or why it skips."""
    schedule = small.definitions().resolve_schedule_def("package_small_schedule")
    with dg.build_schedule_context(instance, scheduled_execution_time=at, resources={"s3": S3Access()}) as context:
        data = schedule.evaluate_tick(context)
    return _only(data.run_requests or (), data.skip_message)


def _look(
    small: SmallDataset, instance: dg.DagsterInstance, cursor: str | None
) -> tuple[dg.RunRequest | str, str | None]:
    """Evaluate the sensor: the one run that it asks for, or why it skips; and its next cursor."""
    sensor = small.definitions().resolve_sensor_def("package_small_on_change")
    with dg.build_sensor_context(instance, cursor=cursor, resources={"s3": S3Access()}) as context:
        data = sensor.evaluate_tick(context)
    return _only(data.run_requests or (), data.skip_message), data.cursor or cursor


def _only(requests: Sequence[dg.RunRequest], skip_message: str | None) -> dg.RunRequest | str:
    if not requests:
        assert skip_message
        return skip_message
    (request,) = requests
    return request


def test_a_tick_asks_for_one_run_over_all_buckets(scheduled: SmallDataset, instance: dg.DagsterInstance):
    request = _tick(scheduled, instance)
    assert isinstance(request, dg.RunRequest)
    assert request.tags == {**request.tags, **RANGE_TAGS}


def test_a_tick_has_one_run_key_however_often_it_is_evaluated(scheduled: SmallDataset, instance: dg.DagsterInstance):
    first, again = _tick(scheduled, instance), _tick(scheduled, instance)
    later = _tick(scheduled, instance, TICK.replace(day=29))
    assert isinstance(first, dg.RunRequest)
    assert isinstance(again, dg.RunRequest)
    assert isinstance(later, dg.RunRequest)
    assert first.run_key == again.run_key != later.run_key


def test_an_unchanged_dataset_is_skipped_and_a_changed_one_is_not(
    scheduled: SmallDataset, instance: dg.DagsterInstance
):
    """DAG-12: the state of the input decides, not its name."""
    assert scheduled.run(instance).success
    reason = _tick(scheduled, instance)
    assert isinstance(reason, str)
    assert "small is up to date" in reason
    scheduled.add(SQUARE, 1)
    assert isinstance(_tick(scheduled, instance), dg.RunRequest)


def test_a_manifest_that_is_overwritten_under_its_name_counts_as_changed(
    scheduled: SmallDataset, instance: dg.DagsterInstance
):
    """DAG-12: a manifest that changed under an unchanged key must not look materialised."""
    assert scheduled.run(instance).success
    before = instance.get_latest_data_version_record(scheduled.keys.manifest)
    scheduled.manifest.write_text(scheduled.manifest.read_text().replace("}", ', "caption": "a square"}'))
    assert isinstance(_tick(scheduled, instance), dg.RunRequest)
    assert scheduled.run(instance).success
    after = instance.get_latest_data_version_record(scheduled.keys.manifest)
    assert before is not None
    assert after is not None
    tags = [record.asset_materialization.tags for record in (before, after) if record.asset_materialization]
    assert tags[0]["dagster/data_version"] != tags[1]["dagster/data_version"]


def test_a_missing_shard_is_reason_enough_for_a_run(scheduled: SmallDataset, instance: dg.DagsterInstance):
    assert scheduled.run(instance).success
    scheduled.shard(SQUARE).unlink()
    assert isinstance(_tick(scheduled, instance), dg.RunRequest)


def test_while_a_run_is_under_way_no_other_is_asked_for(scheduled: SmallDataset, instance: dg.DagsterInstance):
    """DAG-06: a schedule must not start what is being done."""
    job = scheduled.definitions().resolve_job_def("package_small")
    tags = {"dataset_packaging/dataset": "small", **range_tags(SQUARE, SQUARE)}
    run = instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    assert _tick(scheduled, instance) == f"run {run.run_id} of small is still under way"
    reason, cursor = _look(scheduled, instance, None)
    assert reason == f"run {run.run_id} of small is still under way"
    assert cursor is None


def test_ticks_keep_their_hour_when_clocks_change():
    """On 2026-03-29 Vienna goes from 02:00 to 03:00, on 2026-10-25 back: each day has one tick all the same."""
    for first in (date(2026, 3, 28), date(2026, 10, 24)):
        start = datetime(first.year, first.month, first.day, tzinfo=ZoneInfo("Europe/Vienna"))
        ticks = cron_string_iterator(start.timestamp(), "0 2 * * *", "Europe/Vienna")
        days = [next(ticks).date() for _ in range(3)]
        assert days == [first, first + timedelta(days=1), first + timedelta(days=2)]


def test_the_sensor_asks_for_a_run_when_the_objects_of_the_manifest_change(
    scheduled: SmallDataset, instance: dg.DagsterInstance
):
    request, cursor = _look(scheduled, instance, None)
    assert isinstance(request, dg.RunRequest)
    assert request.tags == {**request.tags, **RANGE_TAGS}
    again, same = _look(scheduled, instance, cursor)
    assert (again, same) == ("the 1 objects of the manifest are unchanged", cursor)
    scheduled.add(SQUARE, 1)
    changed, _ = _look(scheduled, instance, cursor)
    assert isinstance(changed, dg.RunRequest)
    assert changed.run_key != request.run_key


def test_a_state_that_comes_back_is_a_change_as_well(scheduled: SmallDataset, instance: dg.DagsterInstance):
    request, cursor = _look(scheduled, instance, None)
    _, other = _look(scheduled, instance, '{"digest": "another", "change_count": 7}')
    assert isinstance(request, dg.RunRequest)
    assert cursor != other


def test_the_sensor_starts_nothing_for_a_dataset_that_is_packed_already(
    scheduled: SmallDataset, instance: dg.DagsterInstance
):
    assert scheduled.run(instance).success
    reason, cursor = _look(scheduled, instance, None)
    assert isinstance(reason, str)
    assert "up to date" in reason
    assert cursor


def test_a_manifest_that_cannot_be_found_fails_the_tick_with_its_name(
    scheduled: SmallDataset, instance: dg.DagsterInstance
):
    scheduled.manifest.unlink()
    with pytest.raises(Exception, match=r"small\.jsonl"):
        _look(scheduled, instance, None)


def test_observing_the_source_tells_its_state(scheduled: SmallDataset, instance: dg.DagsterInstance):
    source = scheduled.definitions().resolve_assets_def(scheduled.keys.source)
    versions = []
    for _ in range(2):
        result = observe([source], instance=instance)
        (event,) = result.get_asset_observation_events()
        versions.append(event.asset_observation_data.asset_observation.tags["dagster/data_version"])
        scheduled.add(SQUARE, 1)
    assert versions[0] != versions[1]


@pytest.mark.parametrize(
    "cron",
    [
        "0 2 * * *",
        "*/15 0-23/2 1,15 JAN-MAR mon,fri",
        "0 22-2 L * FRI-MON",
        "0 0 ? * 1#2",
        "5/10 * * * 7",
        "99 2 * * *",
        "0 24 * * *",
        "0 0 0 * *",
        "0 0 * 13 *",
        "0 0 * * 8",
        "-1 * * * *",
        "1- * * * *",
        "*/0 * * * *",
        "0-5-7 * * * *",
        "a b c d e",
    ],
)
def test_a_dataset_has_the_schedules_that_dagster_runs(cron: str):
    try:
        accepted = bool(ScheduleConfig(cron=cron))
    except ValueError:
        accepted = False
    assert accepted == is_valid_cron_schedule(cron)
