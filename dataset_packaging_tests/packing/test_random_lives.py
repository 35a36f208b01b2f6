"""Random manifests, random faults and random reruns through the real pipeline: no row is ever lost or counted twice.

A dataset lives through additions, removals, changed lines, broken and repaired images, damaged files, outages and
interruptions anywhere, and through changed settings. The ledger balances after every step; in the end the independent
checker agrees with every row.
"""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dataset_packaging.core.ledger import REJECT_REASONS
from dataset_packaging.errors import IndexDamaged, StoreError
from dataset_packaging.io.local_store import LocalStore
from dataset_packaging.io.store import Stores
from dataset_packaging.packing.reports import RunOptions
from dataset_packaging_tests.checker import check
from dataset_packaging_tests.packing.conftest import scratch_folder
from dataset_packaging_tests.packing.injection import watch
from dataset_packaging_tests.packing.photo_dataset import (
    PhotoDataset,
    Row,
    leftovers,
    open_pipeline,
    pack,
    photo,
    states,
)
from dataset_packaging_tests.packing.store_faults import Faults

BROKEN = {
    "cut": lambda data: data[: len(data) * 2 // 3],
    "empty": lambda _: b"",
    "text": lambda _: b"<Error><Code>NoSuchKey</Code></Error>",
    "missing": lambda _: None,
}
CLAIMED_SIZES = [None, "right", (96, 96), (160, 90), (640, 480)]


class InterruptedHereError(BaseException):
    """Passes every handler, as an interruption does."""


class Life(RuleBasedStateMachine):
    """One dataset through random years."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="life-", dir=scratch_folder()))
        self.patch = pytest.MonkeyPatch()
        self.faults = Faults.install(self.patch, LocalStore)
        self.dataset = PhotoDataset(self.folder / "one")
        self.next_number = 0
        self.broken: dict[str, bytes] = {}
        self.gone: list[Row] = []
        self.rewrite = False
        self.is_packed = False
        self.is_damaged = False

    def teardown(self) -> None:
        """Lets everything be read and packs until there is nothing left to do: then all must be right."""
        try:
            self.faults.clear()
            if self.rows:
                self.finish()
        finally:
            self.patch.undo()
            shutil.rmtree(self.folder)

    def finish(self) -> None:
        pack(self.dataset, RunOptions(rewrite=self.rewrite, retry_rejected=REJECT_REASONS))
        packed = pack(self.dataset)
        assert packed.problems == (), packed.problems
        assert packed.ledger.unbalanced == ()
        assert packed.ledger.total.pending == 0
        found = check(self.dataset.yaml)
        assert found == [], found
        assert leftovers(self.dataset.packed) == []
        with open_pipeline(self.dataset.config()) as pipeline:
            assert pipeline.verify(deep=True).findings == ()
            assert pipeline.is_up_to_date()

    @property
    def rows(self) -> list[Row]:
        return [row for row in self.dataset.rows if isinstance(row, Row)]

    @property
    def single_rows(self) -> list[Row]:
        """Those whose key no other row has: of several, the one that was planned stays, not the first."""
        counts = Counter(row.key for row in self.rows)
        return [row for row in self.rows if counts[row.key] == 1]

    @initialize(shard_size=st.integers(1, 4), integrity=st.sampled_from(["strict", "load"]))
    def begin(self, shard_size: int, integrity: str) -> None:
        self.dataset.settings |= {"shard_size": shard_size, "integrity": integrity}

    @rule(
        count=st.integers(1, 4),
        claimed=st.sampled_from(CLAIMED_SIZES),
        broken=st.sampled_from([None, None, None, *BROKEN]),
        at_front=st.booleans(),
    )
    def add_rows(self, count: int, claimed: object, broken: str | None, at_front: bool) -> None:
        for _ in range(count):
            row = self.dataset.photo_row(self.next_number)
            whole = photo(self.next_number).data
            self.next_number += 1
            if claimed != "right":
                row.size = claimed  # type: ignore[assignment]
            if broken is not None:
                self.broken[row.path] = whole
                data = BROKEN[broken](whole)
                if data is None:
                    self.dataset.image_path(row.path).unlink()
                else:
                    self.dataset.write_image(row.path, data)
            self.dataset.rows.insert(0 if at_front else len(self.dataset.rows), row)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def remove_a_row(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.rows), label="row")
        self.dataset.rows.remove(row)
        self.gone.append(row)

    @precondition(lambda self: self.gone)
    @rule()
    def bring_a_row_back(self) -> None:
        row = self.gone.pop()
        if row.key not in {other.key for other in self.rows}:
            self.dataset.rows.append(row)

    @precondition(lambda self: self.single_rows)
    @rule(data=st.data(), text=st.sampled_from(["new", "ä\u2028", ""]))
    def change_a_caption(self, data: st.DataObject, text: str) -> None:
        data.draw(st.sampled_from(self.single_rows), label="row").caption = text

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), size=st.sampled_from([None, (96, 96), (33, 99)]))
    def change_a_size(self, data: st.DataObject, size: tuple[int, int] | None) -> None:
        data.draw(st.sampled_from(self.rows), label="row").size = size

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def repeat_a_key(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.rows), label="row")
        self.dataset.rows.append(Row(row.key, row.path, "again", row.size))

    @rule(line=st.sampled_from(["{broken", "", '{"id": "no path"}', "[1]", '{"id": 1, "image_uri": "http://x/y.jpg"}']))
    def add_an_odd_line(self, line: str) -> None:
        self.dataset.rows.append(line)

    @precondition(lambda self: len(self.single_rows) == len(self.rows))
    @rule()
    def reverse_the_manifest(self) -> None:
        self.dataset.rows.reverse()

    @precondition(lambda self: self.broken)
    @rule()
    def repair_an_image(self) -> None:
        self.dataset.write_image(*self.broken.popitem())

    @precondition(lambda self: self.is_packed)
    @rule(number=st.integers(0, 1000), how=st.sampled_from(["remove", "flip", "cut", "empty"]))
    def damage_a_file(self, number: int, how: str) -> None:
        names = [name for name in states(self.dataset.packed) if not name.endswith(".tmp-lock")]
        if len(names) < 2:
            return  # whose folder this is stands nowhere else yet
        path = self.dataset.packed / names[number % len(names)]
        content = path.read_bytes()
        middle = len(content) // 2
        if how == "remove" or not content:
            path.unlink()
        elif how == "flip":
            path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
        else:
            path.write_bytes(content[: middle if how == "cut" else 0])
        self.is_damaged = True

    @precondition(lambda self: self.is_packed)
    @rule(shard_size=st.integers(1, 4))
    def change_the_shard_size(self, shard_size: int) -> None:
        self.rewrite = self.rewrite or shard_size != self.dataset.settings["shard_size"]
        self.dataset.settings["shard_size"] = shard_size

    @rule(integrity=st.sampled_from(["strict", "load"]))
    def change_the_integrity(self, integrity: str) -> None:
        self.dataset.settings["integrity"] = integrity

    @precondition(lambda self: self.rows)
    @rule(rebuild=st.booleans(), retry=st.sampled_from([(), (), ("not_found",), REJECT_REASONS]))
    def run(self, rebuild: bool, retry: tuple[str, ...]) -> None:
        packed = pack(self.dataset, RunOptions(self.rewrite, rebuild, retry))
        assert packed.problems == (), packed.problems
        self.is_packed, self.rewrite, self.is_damaged = True, False, False

    @precondition(lambda self: self.rows)
    @rule(moment=st.integers(1, 400))
    def run_and_be_interrupted(self, moment: int) -> None:
        left = moment

        def count(_: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise InterruptedHereError

        config = self.dataset.config()
        try:
            with watch(Stores, f"file://{self.dataset.packed}", count):
                pack(config, RunOptions(rewrite=self.rewrite))
            self.rewrite = self.is_damaged = False
        except InterruptedHereError:
            self.is_damaged = True  # as far as anybody can tell
            # A run that is killed leaves the lease of a dead process; this one is alive.
            (self.dataset.packed / "work" / "LEASE.json").unlink(missing_ok=True)
        self.is_packed = (self.dataset.packed / "work" / "DATASET.json").exists()

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), kind=st.sampled_from(["deny", "fail"]))
    def run_through_an_outage(self, data: st.DataObject, kind: str) -> None:
        rows = data.draw(st.lists(st.sampled_from(self.rows), min_size=1, max_size=3), label="rows")
        getattr(self.faults, kind)(*(f"/{row.path}" for row in rows))
        try:
            pack(self.dataset, RunOptions(rewrite=self.rewrite))
            self.rewrite = self.is_damaged = False
        except StoreError:
            self.is_damaged = True
        finally:
            self.faults.clear()
        self.is_packed = (self.dataset.packed / "work" / "DATASET.json").exists()

    @precondition(lambda self: self.is_packed and not self.rewrite)
    @rule()
    def look_at_the_plan(self) -> None:
        config = self.dataset.config()
        before = states(self.dataset.packed)
        if self.rows:
            with open_pipeline(config) as pipeline:
                pipeline.preview()
        assert states(self.dataset.packed) == before

    @invariant()
    def every_row_has_one_fate(self) -> None:
        if not (self.dataset.packed / "work" / "CURRENT.json").exists():
            return
        with open_pipeline(self.dataset.config()) as pipeline:
            try:
                assert pipeline.ledger().unbalanced == ()
            except IndexDamaged:
                assert self.is_damaged


def test_random_lives(pytestconfig: pytest.Config) -> None:
    """The balance of issue and contract, §4, as a property."""
    examples = pytestconfig.getoption("--lives")
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            derandomize=examples == 6,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
