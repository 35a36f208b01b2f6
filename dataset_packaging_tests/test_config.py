"""The dataset YAML: what loads, and the one line that tells what is wrong."""

import json
import pickle
from pathlib import Path

import pytest

from dataset_packaging.config import DatasetConfig, dataset_json_schema, load_dataset, parse_dataset, read_runtime
from dataset_packaging.errors import ConfigError

ROOT = Path(__file__).parent.parent

PEXELS = """\
name: pexels
manifest: s3://bucket/pexels/entry-*.jsonl.zst
output_prefix: s3://bucket/pexels_parquet
mapping:
  constants: {task: text to image generation, data_source: pexels}
  direct:
    image_key: [id]
    s3_image_path: [s3_path, image_uri]
    full_description: {from: [caption, meta.caption], cast: list_string}
    style: st
  base_uri: s3://bucket/images
  drop: [gemini_response_full]
images:
  dimensions: auto
  formats: [JPEG, MPO]
packing: {shard_size: 1000}
sidecar:
  reference: s3://bucket/reference_sidecar/
  schema_extensions: [{name: filter_clarity, type: "struct<score: double, pass: bool>"}]
access_grants: {account_id: "123456789012", region: us-east-1, permission: READ}
schedule: {cron: "0 2 * * *", timezone: UTC}
"""


def parse(text: str, environ: dict[str, str] | None = None) -> DatasetConfig:
    return parse_dataset(text, "pexels.yaml", Path("/data/sets"), environ or {})


def error_of(old: str, new: str) -> str:
    assert PEXELS.count(old) == 1, old
    with pytest.raises(ConfigError) as caught:
        parse(PEXELS.replace(old, new))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_contracts_example_loads() -> None:
    dataset = parse(PEXELS)
    assert dataset.manifest == ("s3://bucket/pexels/entry-*.jsonl.zst",)
    assert dataset.sidecar_prefix == "s3://bucket/pexels_parquet_sidecar"
    assert dataset.work_prefix == "s3://bucket/pexels_parquet_work"
    assert dataset.mapping.base_uri == "s3://bucket/images/"
    assert dataset.mapping.direct["image_key"].from_ == ("id",)
    assert dataset.mapping.direct["style"].from_ == ("st",)
    assert dataset.mapping.direct["full_description"].cast == "list_string"
    assert dataset.sidecar.extension_columns()[0].name == "filter_clarity"
    assert dataset.images.max_pixels == 300_000_000
    assert dataset.images.max_bytes == 268_435_456
    assert dataset.packing.max_shard_bytes == 1_073_741_824
    assert dataset.packing.row_group_bytes == 67_108_864
    assert dataset.source == "pexels.yaml"


def test_a_dataset_survives_pickling_and_cannot_change() -> None:
    dataset = parse(PEXELS)
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy == dataset
    assert copy.source == dataset.source
    with pytest.raises(ValueError, match="frozen"):
        dataset.name = "other"


def test_the_file_name_is_no_part_of_the_dataset() -> None:
    assert "pexels.yaml" not in parse(PEXELS).model_dump_json()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("output_prefix", "ouput_prefix", "3: ouput_prefix: unknown field; did you mean output_prefix? (and 1 more)"),
        ("shard_size: 1000", "shard_szie: 1", "16: packing.shard_szie: unknown field; did you mean shard_size?"),
        (
            "image_key: [id]",
            "imagekey: [id]",
            "7: mapping.direct.imagekey: there is no such column; did you mean image_key?",
        ),
        (
            "image_key: [id]",
            "image: [id]",
            "7: mapping.direct.image: this column is made by the packaging itself: remove it",
        ),
        (
            "image_key: [id]",
            "image_key: 5",
            "7: mapping.direct.image_key: expected the name of a source field, a list of names, or from: and cast:",
        ),
        (
            "image_key: [id]",
            "filter_x: id",
            "7: mapping.direct.filter_x: declare this column in sidecar.schema_extensions first",
        ),
        (
            "list_string",
            "bool",
            "9: mapping.direct.full_description.cast: full_description is list<string>: expected list_string, got ",
        ),
        (
            "text to image generation",
            "5",
            "5: mapping.constants.task: task is string: expected a text, in quotes, got 5",
        ),
        (
            "{task:",
            "{structured_description:",
            "5: mapping.constants.structured_description: structured_description is string: expected JSON text, got ",
        ),
        ("{task:", "{width:", "5: mapping.constants.width: differs from row to row: map it under mapping.direct"),
        ("{task:", "{sha256:", "5: mapping.constants.sha256: differs from row to row: map it under mapping.direct"),
        (
            "dimensions: auto",
            "dimensions: Auto",
            "14: images.dimensions: expected 'auto', 'probe' or 'manifest', got the text 'Auto'; did you mean auto?",
        ),
        ("[JPEG, MPO]", "JPEG", "15: images.formats: expected a list, got the text 'JPEG'"),
        (
            '"123456789012"',
            "123456789012",
            "20: access_grants.account_id: expected a text, got 123456789012; put it in quotes",
        ),
        (
            "UTC",
            "Mars/City",
            "21: schedule.timezone: there is no time zone 'Mars/City': expected a name such as Europe/Vienna",
        ),
        (
            "0 2 * * *",
            "99 2 * * *",
            "21: schedule.cron: '99' is no minute: expected *, numbers from 0 to 59, a-b, a,b or */n",
        ),
        (
            "filter_clarity",
            "clarity",
            "19: sidecar.schema_extensions[0]: 'clarity' is no name of an extension column: expected filter_ and ",
        ),
        (
            "  drop: [",
            "  keep: [a]\n  drop: [",
            "4: mapping: drop and keep exclude each other: remove one of them",
        ),
        ("name: pexels", "source: x\nname: pexels", "1: source: unknown field; expected one of name, manifest, "),
        ("name: pexels", "name: pexels\nname: other", "2: name: stands here a second time"),
        (
            "s3://bucket/pexels_parquet",
            "s3://other",
            "3: output_prefix: s3://other is a whole bucket, and s3://other_sidecar would be another one: name a ",
        ),
        ("name: pexels", "name: Pexels", "1: name: expected a text of the form ^[a-z][a-z0-9_]*$ (Lower-case letters"),
        ("s3://bucket/pexels/entry-*.jsonl.zst", "[]", "2: manifest: expected at least one, got a list"),
        (
            "s3://bucket/pexels/entry-*.jsonl.zst",
            "gs://bucket/a",
            "2: manifest[0]: 'gs://bucket/a': expected s3://bucket/key, file:///path or a path",
        ),
    ],
)
def test_one_line_names_file_field_and_what_was_expected(old: str, new: str, message: str) -> None:
    assert error_of(old, new).startswith(f"pexels.yaml:{message}")


@pytest.mark.parametrize(
    "value", ["16:9", "0777", "16_9", "no", "off", "1e6", "1.0", '"1000"', "true", "0", "-1", "[1]", ""]
)
def test_what_looks_like_a_number_to_yaml_is_no_number(value: str) -> None:
    """DAG-01: base-60 integers, octals, booleans and floats never pass for a whole number."""
    message = error_of("shard_size: 1000", f"shard_size: {value}")
    assert message.startswith("pexels.yaml:16: packing.shard_size: expected ")


@pytest.mark.parametrize("value", ["16:9", "0777", "16_9", "no", "off", "2024-01-01", "1_000", "0x1F", "Infinity"])
def test_a_text_stays_the_text_that_was_typed(value: str) -> None:
    """DAG-01: YAML 1.1 would make 969, 511, 169, False, a date … of these."""
    assert (
        parse(PEXELS.replace("data_source: pexels", f"data_source: {value}")).mapping.constants["data_source"] == value
    )


def test_bucket_settings_do_not_exist() -> None:
    """DAG-01: scales and ratios are no configuration; a list of them is refused by name."""
    message = error_of("packing:", "aspect_ratios: [16:9, 4:3]\npacking:")
    assert message.startswith("pexels.yaml:16: aspect_ratios: unknown field")


@pytest.mark.parametrize(
    ("prefixes", "field"),
    [
        ("sidecar_prefix: s3://bucket/pexels_parquet", "sidecar_prefix"),
        ("sidecar_prefix: s3://bucket/pexels_parquet/sidecar", "sidecar_prefix"),
        ("work_prefix: s3://bucket/pexels_parquet/inside/", "work_prefix"),
        ("sidecar_prefix: s3://bucket/x\nwork_prefix: s3://bucket/x/", "work_prefix"),
        ("sidecar_prefix: s3://bucket/x/y\nwork_prefix: s3://bucket/x", "work_prefix"),
    ],
)
def test_outputs_that_overlap_are_refused(prefixes: str, field: str) -> None:
    """MAN-10."""
    assert f": {field}: " in error_of("mapping:\n", f"{prefixes}\nmapping:\n")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("s3://bucket/pexels/entry-*.jsonl.zst", "s3://bucket/pexels_parquet/a.jsonl", "manifest[0]"),
        ("s3://bucket/pexels/entry-*.jsonl.zst", "[s3://x/a, s3://bucket/pexels_parquet_sidecar/*]", "manifest[1]"),
        ("s3://bucket/pexels/entry-*.jsonl.zst", "s3://bucket/**", "manifest[0]"),
        ("s3://bucket/pexels/entry-*.jsonl.zst", "s3://bucket/*/*/*/*", "manifest[0]"),
        ("s3://bucket/pexels/entry-*.jsonl.zst", "s3://bucket/pexels/", "manifest[0]"),
        ("base_uri: s3://bucket/images", "base_uri: s3://bucket/pexels_parquet/images", "mapping.base_uri"),
        ("s3://bucket/pexels_parquet", "s3://bucket", "manifest[0]"),
    ],
)  # fmt: skip
def test_an_output_read_back_as_input_is_refused(old: str, new: str, field: str) -> None:
    """MAN-10: the second run must not list its own files."""
    assert f": {field}: " in error_of(old, new)


def test_a_shared_beginning_of_a_name_is_no_overlap() -> None:
    """MAN-10: `ds` and `ds-out` do not overlap."""
    dataset = parse(
        "name: ds\nmanifest: s3://b/ds/e.jsonl\noutput_prefix: s3://b/ds-out\nmapping: {base_uri: s3://b/ds-out-2}\n"
    )
    assert dataset.output_prefix == "s3://b/ds-out"


def test_an_output_below_the_folder_of_the_manifest_is_no_overlap() -> None:
    """MAN-10: a manifest is a file or a glob, so that its folder may hold the outputs too."""
    assert (
        parse("name: ds\nmanifest: s3://b/ds/*.jsonl\noutput_prefix: s3://b/ds/out\n").output_prefix == "s3://b/ds/out"
    )


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    folder.mkdir()
    (folder / "a.yaml").write_text(
        "name: a\nmanifest: [e.jsonl, ../m/*.jsonl, /abs/e#1.jsonl]\noutput_prefix: o/\nmapping: {base_uri: im ages}\n"
    )
    dataset = load_dataset(folder / "a.yaml", {})
    base = f"file://{tmp_path}"
    assert dataset.manifest == (f"{base}/sets/e.jsonl", f"{base}/m/*.jsonl", "file:///abs/e#1.jsonl")
    assert dataset.output_prefix == f"{base}/sets/o"
    assert dataset.sidecar_prefix == f"{base}/sets/o_sidecar"
    assert dataset.mapping.base_uri == f"{base}/sets/im ages/"
    assert dataset.source == str(folder / "a.yaml")


def test_environment_variables_are_replaced_in_values() -> None:
    text = PEXELS.replace("s3://bucket/pexels_parquet", "s3://${BUCKET}/${USER_NAME}/out")
    text = text.replace("packing: {shard_size: 1000}", "packing:\n  shard_size: ${SIZE}")
    dataset = parse(text, {"BUCKET": "b", "USER_NAME": "u", "SIZE": "7"})
    assert dataset.output_prefix == "s3://b/u/out"
    assert dataset.packing.shard_size == 7


def test_a_quoted_variable_stays_text() -> None:
    text = PEXELS.replace('"123456789012"', '"${ACCOUNT}"')
    grants = parse(text, {"ACCOUNT": "123456789012"}).access_grants
    assert grants is not None
    assert grants.account_id == "123456789012"


def test_a_variable_that_yaml_cannot_read_gets_a_hint() -> None:
    message = error_of("shard_size: 1000", "shard_size: ${SIZE}")
    assert message.endswith("; inside braces or brackets ${...} must stand in quotes")


def test_a_missing_variable_is_an_error() -> None:
    message = error_of("s3://bucket/pexels_parquet", "s3://${BUCKET}/out")
    assert message == "pexels.yaml:3: output_prefix: the environment variable 'BUCKET' is not set"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "just text",
        "a: [",
        "a: &x [*x]",
        "a: !!python/object:os.system x",
        "? [a]\n: 1",
        "a: \x07",
        "a\tb: {",
        "name: a\n\tmanifest: b",
        "tags: " + "{a: " * 900 + "1" + "}" * 900,
        "tags: " + "[" * 5000 + "]" * 5000,
        "name: a\n---\nname: b",
        "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 20)),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_dataset_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^pexels\.yaml(:\d+)?: ") as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read: No such file or directory$"):
        load_dataset(tmp_path / "nowhere.yaml", {})


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(ConfigError, match=r"a\.yaml: this is no UTF-8 text \(byte 6\)$"):
        load_dataset(tmp_path / "a.yaml", {})


def test_the_published_json_schema_is_the_models() -> None:
    """Regenerate with: python -m dataset_packaging.config > docs/dataset.schema.json"""
    published = (ROOT / "docs" / "dataset.schema.json").read_text()
    assert published == json.dumps(dataset_json_schema(), indent=2) + "\n"


def test_the_json_schema_describes_every_field_and_the_short_forms() -> None:
    schema = dataset_json_schema()
    names = schema["$defs"]["MappingConfig"]["properties"]["direct"]
    assert {"type": "string"} in names["additionalProperties"]["anyOf"]
    assert "image_key" in names["propertyNames"]["anyOf"][0]["enum"]
    assert {"type": "string"} in schema["properties"]["manifest"]["anyOf"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["output_prefix"]["description"] == "Folder of the main shards."


def test_settings_of_the_process_come_from_the_environment() -> None:
    runtime = read_runtime({"HOME": "/home/u", "RAY_ADDRESS": "ray://head:10001", "DATASET_PACKAGING_RAY_CPUS": "2"})
    assert runtime.dagster_home == Path("/home/u/.dataset_packaging/dagster")
    assert runtime.datasets_dir == Path("examples").absolute()
    assert runtime.ray_address == "ray://head:10001"
    assert runtime.ray_cpus == 2
    assert runtime.ray_memory_bytes is None
    assert read_runtime({}).ray_address == "local"


@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5", "²"])
def test_a_setting_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="environment variable DATASET_PACKAGING_RAY_CPUS: expected a whole number"):
        read_runtime({"DATASET_PACKAGING_RAY_CPUS": value})
