"""Reports of several rounds as one."""

from dataclasses import replace

from dataset_packaging.packing.reports import BucketShards, ShardsReport

FIRST = BucketShards(
    rows=9, bytes=900, shards=1, shards_written=1, rejects={"not_found": 1}, moved=2, pending=2, row_groups=1,
    seconds=3.0, problems=(),
)  # fmt: skip


def test_a_later_round_tells_how_things_stand_and_adds_its_work():
    later = replace(FIRST, rows=11, shards=2, shards_written=1, moved=0, pending=0, seconds=1.0)
    both = ShardsReport({"a": FIRST, "b": FIRST}, 5.0).followed_by(ShardsReport({"b": later, "c": later}, 2.0))
    assert both == ShardsReport({"a": FIRST, "b": replace(later, shards_written=2, seconds=4.0), "c": later}, 7.0)
