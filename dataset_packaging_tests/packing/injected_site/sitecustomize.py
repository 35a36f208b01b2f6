"""Loaded by every Python process of a run that has this folder on its PYTHONPATH: installs what a test injects.

`INJECTED` names a JSON file: {"kill": {...} or null, "root": URI, "decoder": {sha256 of an image: what it does}}.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

STORE = "dataset_packaging.io.store"
VERIFY = "dataset_packaging.imaging.verify"


class _AfterImport(importlib.abc.MetaPathFinder):
    """Changes a module right after it was loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in (STORE, VERIFY):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _inject(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _inject(module: ModuleType) -> None:
    wish: dict[str, Any] = json.loads(Path(os.environ["INJECTED"]).read_text())
    if module.__name__ == STORE and wish.get("kill"):
        from dataset_packaging_tests.packing.injection import Kill, instrument

        kill = wish["kill"]
        instrument(module.Stores, wish["root"], Kill(**{**kill, "hits": Path(kill["hits"])}))
    if module.__name__ == VERIFY and wish.get("decoder"):
        from dataset_packaging_tests.packing.bad_decoder import install

        install(module, wish["decoder"])


if "INJECTED" in os.environ:
    sys.meta_path.insert(0, _AfterImport())
