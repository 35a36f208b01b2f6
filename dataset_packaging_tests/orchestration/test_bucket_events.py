"""Guards around the names of Dagster that are not public: a new version must not change what they do unnoticed."""

from importlib.metadata import version

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.data_version import DataProvenance
from dagster._core.event_api import PartitionKeyFilter

from dataset_packaging.orchestration.bucket_events import (
    WrittenVersion,
    build_evaluation,
    finish_asset,
    read_failed_checks,
    read_latest,
    version_tags,
)

KEY, UPSTREAM = dg.AssetKey(["small", "shards"]), dg.AssetKey(["small", "manifest"])
CHECK = dg.AssetCheckKey(KEY, "schema")
pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")
BUCKETS = dg.StaticPartitionsDefinition(["a/1", "a/2", "a/3"])


def _run(instance: dg.DagsterInstance, written: dict[str, str], failed: set[str], first: str = "a/1") -> bool:
    """Run an asset that materialises some of its partitions, and a step after it."""

    @dg.asset(
        key=KEY,
        partitions_def=BUCKETS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        check_specs=[dg.AssetCheckSpec("schema", asset=KEY, blocking=True, partitions_def=BUCKETS)],
    )
    def shards(context: dg.AssetExecutionContext):
        for bucket, data_version in written.items():
            yield dg.AssetMaterialization(KEY, partition=bucket, tags=version_tags("1", data_version, {UPSTREAM: None}))
        latest = read_latest(context.instance, KEY, BUCKETS.get_partition_keys())
        for bucket in written:
            yield build_evaluation(
                CHECK, bucket, passed=bucket not in failed, description="", metadata={}, target=latest.get(bucket)
            )
        yield dg.Output(None, output_name="small__shards_schema")
        yield finish_asset(KEY)

    @dg.asset(deps=[KEY])
    def after() -> None:
        """Runs if the asset before it is taken for done."""

    return dg.materialize(
        [shards, after],
        instance=instance,
        tags={"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": "a/3"},
    ).success


def test_dagster_is_the_version_that_was_tried():
    assert (version("dagster"), version("dagster-aws")) == ("1.13.27", "0.29.27")


def test_only_the_buckets_that_were_written_are_materialised_and_steps_go_on(instance: dg.DagsterInstance):
    assert _run(instance, {"a/1": "v1", "a/3": "v3"}, failed=set())
    assert set(instance.get_materialized_partitions(KEY)) == {"a/1", "a/3"}
    assert instance.get_latest_materialization_event(dg.AssetKey("after")) is not None


def test_a_failed_evaluation_of_one_bucket_does_not_stop_the_step(instance: dg.DagsterInstance):
    """DAG-11: results are kept per bucket, whatever comes later for another one."""
    assert _run(instance, {"a/1": "v", "a/2": "v"}, failed={"a/1"})
    assert read_failed_checks(instance, [CHECK], BUCKETS.get_partition_keys()) == {"a/1": ("schema",)}
    assert _run(instance, {"a/2": "v"}, failed=set(), first="a/2")
    assert read_failed_checks(instance, [CHECK], BUCKETS.get_partition_keys()) == {"a/1": ("schema",)}
    assert _run(instance, {"a/1": "v"}, failed=set())
    assert read_failed_checks(instance, [CHECK], BUCKETS.get_partition_keys()) == {}


def test_evaluations_name_the_materialisation_that_they_look_at(instance: dg.DagsterInstance):
    _run(instance, {"a/1": "v1", "a/2": "v2"}, failed=set())
    latest = read_latest(instance, KEY, ["a/1", "a/2", "a/3"])
    assert {bucket: version.data_version for bucket, version in latest.items()} == {"a/1": "v1", "a/2": "v2"}
    storage, only = instance.event_log_storage, PartitionKeyFilter(key="a/2")
    (record,) = storage.get_asset_check_execution_history(CHECK, limit=1, partition_filter=only)
    target = record.evaluation.target_materialization_data if record.evaluation else None
    assert isinstance(target, AssetCheckEvaluationTargetMaterializationData)
    assert (target.storage_id, target.run_id) == (latest["a/2"].storage_id, latest["a/2"].run_id)


def test_the_latest_version_of_a_bucket_counts_however_often_another_was_written(instance: dg.DagsterInstance):
    _run(instance, {"a/1": "old"}, failed=set())
    for number in range(5):
        _run(instance, {"a/2": f"v{number}"}, failed=set())
    latest = read_latest(instance, KEY, ["a/1", "a/2"])
    assert {bucket: version.data_version for bucket, version in latest.items()} == {"a/1": "old", "a/2": "v4"}


def test_version_tags_are_what_dagster_reads_as_provenance():
    tags = version_tags("code", "data", {UPSTREAM: WrittenVersion(7, "run", 0.0, "upstream")})
    provenance = DataProvenance.from_tags(tags)
    assert provenance is not None
    assert (provenance.code_version, provenance.input_data_versions) == ("code", {UPSTREAM: dg.DataVersion("upstream")})
    assert tags == {
        "dagster/code_version": "code",
        "dagster/data_version": "data",
        "dagster/data_version_is_user_provided": "true",
        "dagster/input_data_version/small/manifest": "upstream",
        "dagster/input_event_pointer/small/manifest": "7",
    }
