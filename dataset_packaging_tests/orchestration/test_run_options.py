"""DAG-01: what is typed into the launchpad arrives as what was meant, or is refused by its name."""

from pathlib import Path

import dagster as dg
import pytest
import yaml

from dataset_packaging.orchestration.run_options import RunOptionsResource, options_config
from dataset_packaging.packing.reports import RunOptions
from dataset_packaging_tests.orchestration.small_dataset import SmallDataset


def _validate(small: SmallDataset, text: str) -> None:
    job = small.definitions().resolve_job_def(small.keys.job)
    config = {"resources": {"run_options": {"config": yaml.safe_load(text)}}}
    dg.validate_run_config(job, config)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("retry_rejected: [16:9]", "retry_rejected"),
        ("retry_rejected: [0777]", "retry_rejected"),
        ("retry_rejected: [no, off]", "retry_rejected"),
        ("retry_rejected: not_found", "retry_rejected"),
        ("limit_rows: 1e6", "limit_rows"),
        ("limit_rows: yes", "limit_rows"),
        ("rebuild: 1", "rebuild"),
        ("rewrite: 'true'", "rewrite"),
        ("retry_reject: [not_found]", "retry_reject"),
    ],
)
def test_a_value_of_another_type_is_a_config_error_that_names_the_field(tmp_path: Path, text: str, field: str):
    with pytest.raises(dg.DagsterInvalidConfigError, match=field):
        _validate(SmallDataset(tmp_path), text)


def test_good_values_pass(tmp_path: Path):
    _validate(SmallDataset(tmp_path), "{retry_rejected: [not_found], rebuild: true, rewrite: false, limit_rows: 10}")


@pytest.mark.parametrize(
    ("text", "field"),
    [("retry_rejected: [notfound]", "'notfound' is not a reject reason"), ("limit_rows: 0", "limit_rows")],
)
def test_an_impossible_value_fails_the_run_with_its_name(
    small: SmallDataset, instance: dg.DagsterInstance, text: str, field: str
):
    result = small.run(instance, options=yaml.safe_load(text))
    messages = [event.message or "" for event in result.all_events if event.is_failure]
    errors = [
        event.engine_event_data.error.to_string()
        for event in result.all_events
        if event.is_resource_init_failure and event.engine_event_data.error
    ]
    assert not result.success
    assert field in "\n".join([*messages, *errors])
    assert not small.shard("0_512/10000").exists()


def test_every_option_is_described_where_it_is_typed():
    assert all(field.description for field in RunOptionsResource.model_fields.values())


def test_options_survive_the_way_through_the_configuration():
    options = RunOptions(rewrite=True, rebuild=True, retry_rejected=("not_found",), limit_rows=3)
    assert RunOptionsResource(**options_config(options)).to_options() == options
    assert RunOptionsResource(**options_config(RunOptions())).to_options() == RunOptions()
