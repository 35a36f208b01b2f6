"""What all steps of one run share: the dataset, its stores, its executor, its progress."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.layout import Layout, ResizedLayout
from dataset_packaging.errors import ConfigError
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing.executor import Executor
from dataset_packaging.packing.generation import Published, Tombstones, read_current, read_tombstones
from dataset_packaging.packing.lease import Lease, hold_lease
from dataset_packaging.packing.reference import Reference, read_reference
from dataset_packaging.packing.reports import Progress
from dataset_packaging.packing.source_versions import SidecarSources
from dataset_packaging.packing.status import StatusReader


@dataclass(slots=True)
class Run:
    """One run of one dataset.

    Attributes:
        dataset: its configuration.
        run_id: names the run; the lease is re-entrant by it.
        progress: receives progress.
        open_executor: opens the executor; called once, when a task is first run.
        sidecar_sources: versions of what sidecars take from elsewhere.
        status: compares what stands with what is planned.
    """

    dataset: DatasetConfig
    run_id: str
    progress: Progress
    open_executor: Callable[[], AbstractContextManager[Executor]]
    stores: Stores = field(init=False)
    layout: Layout = field(init=False)
    sidecar_sources: SidecarSources = field(init=False)
    status: StatusReader = field(init=False)
    _lease: Lease | None = None
    _tombstones: tuple[int, Tombstones] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _executor: Executor | None = None
    _counts_before: Counter[str] = field(default_factory=Counter)
    _reference: Reference | None = None

    def __post_init__(self) -> None:
        dataset = self.dataset
        self.stores = Stores(StorageConfig.of(dataset))
        self.layout = Layout(dataset.output_prefix, dataset.sidecar_prefix, dataset.work_prefix)
        self.sidecar_sources = SidecarSources(self.stores, dataset)
        self.status = StatusReader(self.stores, self.layout, dataset, self.sidecar_sources)

    @property
    def executor(self) -> Executor:
        """The executor; opened when it is first asked for."""
        if self._executor is None:
            self._executor = self._stack.enter_context(self.open_executor())
            self._counts_before = Counter(self._executor.counts)
        return self._executor

    def counts(self) -> dict[str, int]:
        """Returns what this run has done to its stores so far, its tasks included; see `Stores.stats`."""
        counts = Counter(self.stores.stats())
        if self._executor is not None:
            counts.update(self._executor.counts)
            counts.subtract(self._counts_before)
        return dict(+counts)

    def close(self) -> None:
        """Closes the executor, if it was opened."""
        self._executor = None
        self._stack.close()

    def resized_layout(self, size: int) -> ResizedLayout:
        """Returns where the resized images of a size stand."""
        return ResizedLayout(self.dataset.resized_prefix, self.dataset.work_prefix, size)

    def reference(self) -> Reference | None:
        """Returns what the sidecars must match, or None where the dataset names nothing; read once per run.

        Raises ReferenceUnusable where it cannot be read.
        """
        uri = self.dataset.sidecar.reference
        if self._reference is None and uri is not None:
            self._reference = read_reference(self.stores, uri)
        return self._reference

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Holds the dataset's lease, without which nothing may be written; sweeps what killed writers left behind."""
        with hold_lease(self.stores, self.layout.lease_uri, self.run_id) as lease:
            outer, self._lease = self._lease, lease
            try:
                if not lease.nested:
                    for prefix in self.dataset.prefixes.values():
                        self.stores.abort_uploads(f"{prefix}/")
                yield
            finally:
                self._lease = outer

    def require_lease(self) -> None:
        """Raises LeaseHeld where the lease was lost meanwhile; asked before every step that others would see."""
        if self._lease is not None:
            self._lease.require_held()

    def tombstones(self, current: Published) -> Tombstones:
        """Returns the empty places of a generation; read once."""
        if self._tombstones is None or self._tombstones[0] != current.summary.number:
            self._tombstones = current.summary.number, read_tombstones(self.stores, current)
        return self._tombstones[1]

    def require_current(self) -> Published:
        """Returns the published generation. Raises ConfigError where the manifest step has not run yet."""
        current = read_current(self.stores, self.layout)
        if current is None:
            raise ConfigError(
                f"{self.dataset.name} has no plan yet ({self.layout.current_uri} is missing): "
                "materialise its manifest first, or run `dataset-packaging pack`"
            )
        return current
