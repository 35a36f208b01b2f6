"""`schema export` and `schema diff` on families, files and datasets."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_packaging.config import load_dataset
from dataset_packaging.core.bucketing import BUCKETS
from dataset_packaging.core.schema import sidecar_schema
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing.reference import find_reference_faults, read_reference
from dataset_packaging_tests.cli.command import run_command


def _write_family(folder: Path, schema: pa.Schema, shards: int = 3) -> Path:
    for number in range(shards):
        path = folder / BUCKETS[number].key / "shard-000000.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(schema.empty_table(), path)
    return folder


def test_an_exported_family_is_the_same_as_itself(tmp_path: Path):
    _write_family(tmp_path / "house", sidecar_schema())
    exported = run_command("schema", "export", "house", "-o", "house.json", cwd=tmp_path)
    assert (exported.exit_code, exported.stderr) == (0, "")
    assert json.loads((tmp_path / "house.json").read_text())
    for actual in ("house", "house.json", "house/0_512/3333/shard-000000.parquet"):
        compared = run_command("schema", "diff", "house.json", actual, cwd=tmp_path)
        assert (compared.exit_code, compared.stdout) == (0, f"the same {len(sidecar_schema())} columns\n")


def test_without_a_source_the_columns_of_this_version_are_exported(tmp_path: Path):
    (tmp_path / "contract.json").write_text(run_command("schema", "export", cwd=tmp_path).stdout)
    _write_family(tmp_path / "house", sidecar_schema())
    assert run_command("schema", "diff", "contract.json", "house", cwd=tmp_path).exit_code == 0


def test_a_dataset_is_compared_as_its_check_compares_it(tmp_path: Path):
    """What the dataset declares for itself extends the reference, there and here."""
    ours = pa.field("filter_x", pa.struct([("score", pa.float32())]))
    theirs = pa.field("filter_y", pa.struct([("score", pa.float64())]))
    schema = sidecar_schema()
    wrong = schema.set(3, pa.field("s3_path", pa.string())).append(theirs)
    for name, family in {"house": schema, "wrong": wrong, "typed": schema.append(ours)}.items():
        _write_family(tmp_path / name, family)
        (tmp_path / "photos.yaml").write_text(
            "name: photos\nmanifest: entry.jsonl\noutput_prefix: out\n"
            f"sidecar: {{reference: {name}, schema_extensions: [{{name: filter_x, type: 'struct<score: double>'}}]}}\n"
        )
        dataset = load_dataset(tmp_path / "photos.yaml", {})
        reference = read_reference(Stores(StorageConfig.of(dataset)), str(dataset.sidecar.reference))
        checked = find_reference_faults(dataset, reference)
        compared = run_command("schema", "diff", name, "photos.yaml", "--json", cwd=tmp_path)
        assert compared.exit_code == (1 if checked else 0)
        told = [found["detail"] for found in compared.json["differences"]]
        assert [f"{detail} (reference: {reference.source})" for detail in told] == checked
        assert len(told) == {"house": 0, "wrong": 3, "typed": 1}[name]


def test_a_near_miss_is_named(tmp_path: Path):
    schema = sidecar_schema()
    index = schema.get_field_index("full_description")
    wrong = schema.set(index, schema.field(index).with_name("full_descripton"))
    _write_family(tmp_path / "house", schema)
    _write_family(tmp_path / "ours", wrong)
    compared = run_command("schema", "diff", "house", "ours", cwd=tmp_path)
    assert compared.exit_code == 1
    assert "full_descripton" in compared.stdout
    assert "full_description" in compared.stdout
    assert compared.table_width <= 100


def test_a_family_that_disagrees_with_itself_is_a_finding(tmp_path: Path):
    _write_family(tmp_path / "house", sidecar_schema())
    _write_family(tmp_path / "house", sidecar_schema().remove(3), shards=1)
    exported = run_command("schema", "export", "house", "--json", cwd=tmp_path)
    assert exported.exit_code == 1
    assert exported.json["disagreements"]


@pytest.mark.parametrize("source", ["absent", "absent.json", "absent.parquet", "absent.yaml"])
def test_a_source_that_is_not_there_is_one_line(source: str, tmp_path: Path):
    ended = run_command("schema", "export", source, cwd=tmp_path)
    assert ended.exit_code == 2
    assert source in ended.error_line
