"""What all steps of one run share: the dataset, its stores, its executor, its progress."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from dataset_packaging.config import DatasetConfig
from dataset_packaging.core.layout import Layout
from dataset_packaging.errors import PackagingError
from dataset_packaging.io.store import StorageConfig, Stores
from dataset_packaging.packing.executor import Executor
from dataset_packaging.packing.generation import Published, read_current
from dataset_packaging.packing.lease import hold_lease
from dataset_packaging.packing.reference import Reference, read_reference
from dataset_packaging.packing.reports import Progress
from dataset_packaging.packing.source_versions import SidecarSources


@dataclass(slots=True)
class Run:
    """One run of one dataset.

    Attributes:
        dataset: its configuration.
        run_id: names the run; the lease is re-entrant by it.
        progress: receives progress.
        open_executor: opens the executor; called once, when a task is first run.
        sidecar_sources: what sidecars take values from, and its versions.
    """

    dataset: DatasetConfig
    run_id: str
    progress: Progress
    open_executor: Callable[[], AbstractContextManager[Executor]]
    stores: Stores = field(init=False)
    layout: Layout = field(init=False)
    sidecar_sources: SidecarSources = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack)
    _executor: Executor | None = None
    _reference: Reference | None = None

    def __post_init__(self) -> None:
        dataset = self.dataset
        self.stores = Stores(StorageConfig.of(dataset))
        self.layout = Layout(dataset.output_prefix, dataset.sidecar_prefix, dataset.work_prefix)
        self.sidecar_sources = SidecarSources(self.stores, dataset)

    @property
    def executor(self) -> Executor:
        """The executor; opened when it is first asked for."""
        if self._executor is None:
            self._executor = self._stack.enter_context(self.open_executor())
        return self._executor

    def close(self) -> None:
        """Closes the executor, if it was opened."""
        self._executor = None
        self._stack.close()

    def reference(self) -> Reference | None:
        """Returns what the sidecars must match, or None where the dataset names nothing; read once per run.

        Raises ReferenceUnusable where it cannot be read.
        """
        uri = self.dataset.sidecar.reference
        if self._reference is None and uri is not None:
            self._reference = read_reference(self.stores, uri)
        return self._reference

    def lease(self) -> AbstractContextManager[None]:
        """Returns the dataset's lease, to be held while anything is written."""
        return hold_lease(self.stores, self.layout.lease_uri, self.run_id)

    def require_current(self) -> Published:
        """Returns the published generation. Raises PackagingError where the manifest step has not run yet."""
        current = read_current(self.stores, self.layout)
        if current is None:
            raise PackagingError(
                f"{self.dataset.name} has no plan yet ({self.layout.current_uri} is missing): "
                "materialise its manifest first, or run `dataset-packaging pack`"
            )
        return current
