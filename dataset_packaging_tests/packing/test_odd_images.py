"""1,700 odd files, most of them real photographs, through the whole pipeline on Ray; the checker judges each fate."""

import os
from pathlib import Path

from dataset_packaging.config import load_dataset, read_runtime
from dataset_packaging.packing.executor import ray_executor
from dataset_packaging_tests.checker import check
from dataset_packaging_tests.odd_images import write_odd_images, write_odd_manifest
from dataset_packaging_tests.packing.photo_dataset import leftovers, open_pipeline, pack

YAML = """
name: odd
manifest: odd.jsonl
output_prefix: packed/main
sidecar_prefix: packed/side
work_prefix: packed/work
mapping:
  base_uri: files/
  direct: {full_description: {from: caption, cast: list_string}}
images: {max_rejected_fraction: 1.0}
packing: {shard_size: 60, row_group_bytes: 65536}
"""


def test_every_odd_file_has_the_fate_that_the_checker_gives_it(tmp_path: Path) -> None:
    """IMG-02, IMG-13, BKT-04, SC-02: bombs, cuts, wrong names and wrong sizes; no row lost, none twice, run done."""
    names = write_odd_images(tmp_path / "files")
    write_odd_manifest(tmp_path / "odd.jsonl", tmp_path / "files", names)
    (tmp_path / "odd.yaml").write_text(YAML)
    dataset = load_dataset(tmp_path / "odd.yaml")
    packed = pack(dataset, executor=lambda: ray_executor(read_runtime({**os.environ, "RAY_ADDRESS": "local"})))
    assert packed.problems == ()
    assert check(tmp_path / "odd.yaml") == []
    total = packed.ledger.total
    assert (total.rows, total.duplicates, total.pending) == (len(names) + 1, 0, 0)
    assert total.rejected["not_found"] == 1
    assert packed.ledger.unbalanced == ()
    assert leftovers(tmp_path / "packed") == []
    with open_pipeline(dataset) as pipeline:
        assert pipeline.verify(deep=True).findings == ()
