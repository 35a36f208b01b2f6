"""Packing on a Ray cluster of several nodes, and what happens when parts of it go away.

The tests follow one another on the same cluster, which loses its head in the last one.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dataset_packaging_tests.checker import check
from dataset_packaging_tests.deploy.packs import PackProcess, pack, published_shards, write_dataset
from dataset_packaging_tests.servers.ray_nodes import RayNodes

pytestmark = pytest.mark.timeout(600)  # several packs follow each other in one test

SHARDS = 16


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    """A head without CPUs, as in production."""
    with RayNodes() as running:
        yield running


def test_a_cluster_without_workers_is_named(nodes: RayNodes, tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, shards=1)
    code, said = pack(dataset, {**nodes.driver_environ(), "DATASET_PACKAGING_RAY_WAIT_S": "2"})
    assert (code, "has no worker" in said) == (3, True)
    assert published_shards(dataset) == []


def test_a_node_that_joins_is_used_and_its_loss_costs_nothing(nodes: RayNodes, tmp_path: Path) -> None:
    """RAY-02: tasks of a lost node are run again, under the same names."""
    nodes.add_worker()
    dataset = write_dataset(tmp_path, shards=30)
    with PackProcess(dataset, nodes.driver_environ()) as process:
        process.wait_until(lambda: len(published_shards(dataset)) >= 2)
        joined = nodes.add_worker()
        process.wait_until(lambda: joined.runs_a_task("pack_shard"))
        joined.kill()
        left = 30 - len(published_shards(dataset))
        code, said = process.finish()
    assert (code, said) == (0, "")
    assert left > 0
    assert len(published_shards(dataset)) == 30
    assert check(dataset) == []


def test_a_terminated_run_leaves_no_task_and_no_lease(nodes: RayNodes, tmp_path: Path) -> None:
    """DAG-02: through Ray's client port, as a run in a pod of its own comes to the cluster."""
    dataset = write_dataset(tmp_path, shards=SHARDS)
    environ = nodes.driver_environ(nodes.client_address)
    with PackProcess(dataset, environ) as process:
        process.wait_until(lambda: len(published_shards(dataset)) >= 2)
        process.terminate()
        code, _ = process.finish()
    assert code in (130, 143)
    assert not any(node.runs_a_task("pack_shard") for node in nodes.workers)
    assert not list(tmp_path.rglob("LEASE*"))
    assert len(published_shards(dataset)) < SHARDS
    assert pack(dataset, environ) == (0, "")
    assert check(dataset) == []


def test_a_head_that_is_lost_is_named_and_the_next_run_resumes(nodes: RayNodes, tmp_path: Path) -> None:
    """The head dies in the middle of a run; then there is none at all; then the dataset is packed without it."""
    dataset = write_dataset(tmp_path, shards=SHARDS)
    environ = {**nodes.driver_environ(), "DATASET_PACKAGING_RAY_WAIT_S": "4"}
    with PackProcess(dataset, environ) as process:
        process.wait_until(lambda: len(published_shards(dataset)) >= 3)
        nodes.head.kill()
        code, said = process.finish()
    assert code == 3
    assert "the head of the Ray cluster at" in said
    assert "is lost" in said
    assert len(said.splitlines()) == 1

    before = {path: path.stat().st_mtime_ns for path in published_shards(dataset)}
    assert 3 <= len(before) < SHARDS
    code, said = pack(dataset, environ)
    assert code == 3
    assert environ["RAY_ADDRESS"] in said
    assert pack(dataset, {"RAY_ADDRESS": "local", "DATASET_PACKAGING_RAY_CPUS": "2"}) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert check(dataset) == []
