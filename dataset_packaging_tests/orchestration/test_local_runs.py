"""Runs inside this process: the outcome, its exit code, and that the instance knows of the run afterwards."""

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage

from dataset_packaging.errors import ConfigError, ManifestError
from dataset_packaging.orchestration.event_log import OpenSqliteEventLogStorage
from dataset_packaging.orchestration.instance import INSTANCE_SETTINGS, open_instance, prepare_instance
from dataset_packaging.orchestration.local_runs import PackagingOutcome, run_packaging
from dataset_packaging.packing.reports import ProgressReport, RunOptions
from dataset_packaging_tests.orchestration.small_dataset import (
    SQUARE,
    TALL,
    WIDE,
    SerialWorkers,
    SmallDataset,
)

BUCKETS = [TALL, "0_512/7059", "0_512/7500", SQUARE, WIDE]


class _Heard:
    def __init__(self) -> None:
        self.stages: list[str] = []

    def report(self, report: ProgressReport) -> None:
        self.stages.append(report.stage)


def _pack(small: SmallDataset, instance: dg.DagsterInstance, **options: object) -> PackagingOutcome:
    return run_packaging(
        small.yaml,
        instance,
        RunOptions(**options),
        partitions=BUCKETS,
        workers=SerialWorkers(),  # type: ignore[arg-type]
    )


def test_the_outcome_holds_the_reports_of_all_steps(small: SmallDataset, instance: dg.DagsterInstance):
    heard = _Heard()
    outcome = run_packaging(small.yaml, instance, partitions=BUCKETS, progress=heard, workers=SerialWorkers())
    assert (outcome.exit_code, outcome.message, outcome.failed_checks) == (0, None, ())
    assert outcome.manifest is not None
    assert outcome.shards is not None
    assert outcome.sidecars is not None
    assert outcome.ledger is not None
    assert outcome.manifest.rows == 6
    assert {key: bucket.rows for key, bucket in outcome.shards.buckets.items() if bucket.rows} == {
        SQUARE: 2,
        WIDE: 2,
        TALL: 2,
    }
    assert set(outcome.sidecars.buckets) == set(BUCKETS)
    assert (outcome.ledger.total.packed, outcome.ledger.total.pending) == (6, 0)
    assert {"manifest", "shards", "sidecars"} <= set(heard.stages)


def test_neighbours_are_one_run_and_the_manifest_is_read_once(small: SmallDataset, instance: dg.DagsterInstance):
    outcome = _pack(small, instance)
    assert len(outcome.run_ids) == 3
    for run_id in outcome.run_ids:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert (run.job_name, run.status) == ("package_small", dg.DagsterRunStatus.SUCCESS)
        assert run.tags["dataset_packaging/dataset"] == "small"
    assert len(instance.fetch_materializations(small.keys.manifest, limit=10).records) == 1
    assert set(instance.get_materialized_partitions(small.keys.sidecars)) == set(BUCKETS)


def test_a_second_time_nothing_is_run(small: SmallDataset, instance: dg.DagsterInstance):
    _pack(small, instance)
    outcome = run_packaging(small.yaml, instance, workers=SerialWorkers())
    assert (outcome.run_ids, outcome.exit_code) == ((), 0)
    assert outcome.up_to_date == "small is up to date: 6 rows in 3 shards, nothing to do"
    assert outcome.ledger is not None
    assert outcome.ledger.total.packed == 6


def test_too_many_rejects_are_findings_each_time(small: SmallDataset, instance: dg.DagsterInstance):
    small.add_line("{broken")
    outcome = _pack(small, instance)
    assert (outcome.exit_code, outcome.message) == (1, None)
    (check,) = outcome.failed_checks
    assert (check.asset, check.check, check.bucket) == ("small/shards", "reject_fraction", None)
    assert "1 of 7 rows are rejected" in check.detail
    again = run_packaging(small.yaml, instance, workers=SerialWorkers())
    assert (again.run_ids, again.exit_code) == ((), 1)


def test_a_bucket_that_cannot_be_packed_is_infrastructure(small: SmallDataset, instance: dg.DagsterInstance):
    small.shard(SQUARE).mkdir(parents=True)
    outcome = _pack(small, instance)
    assert outcome.exit_code == 3
    assert outcome.message is not None
    assert SQUARE in outcome.message
    assert outcome.ledger is not None
    assert (outcome.ledger.total.packed, outcome.ledger.total.pending) == (4, 2)


def test_a_bad_bucket_is_a_finding(small: SmallDataset, instance: dg.DagsterInstance):
    _pack(small, instance)
    small.shard(SQUARE).with_name("notes.txt").write_text("not a shard")
    outcome = _pack(small, instance)
    assert outcome.exit_code == 1
    assert [(check.check, check.bucket) for check in outcome.failed_checks] == [("contiguous_shards", SQUARE)]


def test_a_manifest_that_is_gone_is_one_error_before_anything_runs(small: SmallDataset, instance: dg.DagsterInstance):
    _pack(small, instance)
    runs = instance.get_runs_count()
    small.manifest.unlink()
    with pytest.raises(ManifestError, match=r"small\.jsonl"):
        run_packaging(small.yaml, instance, workers=SerialWorkers())
    assert instance.get_runs_count() == runs


def test_an_error_within_a_run_keeps_its_exit_code(small: SmallDataset, instance: dg.DagsterInstance):
    small.manifest.unlink()
    outcome = _pack(small, instance)
    assert outcome.exit_code == ManifestError.exit_code
    assert "small.jsonl" in (outcome.message or "")
    assert len(outcome.run_ids) == 1


def test_a_name_that_is_no_bucket_is_refused(small: SmallDataset, instance: dg.DagsterInstance):
    with pytest.raises(ConfigError, match="'0_512/1' is not a bucket"):
        run_packaging(small.yaml, instance, partitions=["0_512/1"])


def test_a_new_instance_gets_settings_and_an_old_one_keeps_its_own(tmp_path: Path):
    home = prepare_instance(tmp_path / "home")
    assert (home / "dagster.yaml").read_text() == INSTANCE_SETTINGS
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    prepare_instance(home)
    assert (home / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="DAGSTER_HOME"):
        prepare_instance(tmp_path / "file")


def test_the_settings_limit_each_dataset_to_one_run(tmp_path: Path):
    """DAG-06: a run waits while another one works on the same dataset."""
    with open_instance(tmp_path / "home") as instance:
        pools = instance.get_concurrency_config().pool_config
        assert (str(pools.pool_granularity), pools.default_pool_limit) == ("PoolGranularity.RUN", 1)
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled


def test_what_is_recorded_over_open_connections_is_what_dagster_reads(small: SmallDataset, tmp_path: Path):
    with open_instance(tmp_path / "home") as instance:
        assert isinstance(instance.event_log_storage, OpenSqliteEventLogStorage)
        outcome = _pack(small, instance)
        told = [_told(instance, run_id) for run_id in outcome.run_ids]
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as plain:
        assert type(plain.event_log_storage) is SqliteEventLogStorage
        assert [_told(plain, run_id) for run_id in outcome.run_ids] == told
        assert set(plain.get_materialized_partitions(small.keys.shards)) == set(BUCKETS)
        checks = [dg.AssetCheckKey(small.keys.shards, "schema")]
        judged = plain.event_log_storage.get_asset_check_partition_info(checks)
    assert {info.partition_key for info in judged} == set(BUCKETS)


def test_storage_that_somebody_chose_is_left_alone(tmp_path: Path):
    home = prepare_instance(tmp_path / "home")
    (home / "dagster.yaml").write_text(f"storage: {{sqlite: {{base_dir: {tmp_path / 'elsewhere'}}}}}\n")
    with open_instance(home) as instance:
        assert type(instance.event_log_storage) is SqliteEventLogStorage
        assert str(tmp_path / "elsewhere") in instance.event_log_storage.path_for_shard("index")


def _told(instance: dg.DagsterInstance, run_id: str) -> list[tuple[str, str]]:
    return [(entry.user_message, str(entry.dagster_event_type)) for entry in instance.all_logs(run_id)]
