"""The shape of the code base: who may import whom, names, sizes, licence."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dataset_packaging"
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
LONGEST_FILE_LINES = 500  # a file of 400 asks for a second look, one of 500 is split


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _names_read_from_os(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from ((node.lineno, alias.name) for alias in node.names)


def test_the_import_contracts_hold():
    found = subprocess.run(
        [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("package", ["core", "imaging"])
def test_pure_packages_load_neither_workers_nor_stores_nor_the_ui(package: str):
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (PACKAGE / package).glob("*.py")]
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name.removesuffix('.__init__'))\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"ray", "dagster", "boto3", "obstore", "rich"} & set(loaded.stdout.split())


def test_the_environment_is_read_in_config_alone():
    readers = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in _modules()
        if path != PACKAGE / "config.py"
        for line, name in _names_read_from_os(ast.parse(path.read_text()))
        if name in {"environ", "environb", "getenv", "putenv"}
    ]
    assert readers == []


def test_names_say_what_a_module_holds():
    vague = [path for path in PACKAGE.rglob("*") if set(re.split(r"[_.]", path.name)) & FORBIDDEN_NAMES]
    assert vague == []


def test_files_can_be_read_in_one_sitting():
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in _modules()}
    assert {name: count for name, count in lines.items() if count > LONGEST_FILE_LINES} == {}


def test_every_third_party_import_is_a_declared_dependency():
    import tomllib
    from importlib.metadata import packages_distributions

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")
        for requirement in (*project["dependencies"], *project["optional-dependencies"]["train"])
    }
    distributions = packages_distributions()
    undeclared = {
        f"{path.relative_to(ROOT)}: {top}"
        for path in _modules()
        for top in _imported_roots(ast.parse(path.read_text()))
        if top not in sys.stdlib_module_names and top != "dataset_packaging"
        if not declared & {name.lower().replace("_", "-") for name in distributions.get(top, ())}
    }
    assert undeclared == set()


def _imported_roots(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def test_every_pin_of_the_project_is_among_the_constraints():
    pinned = set((ROOT / "constraints.txt").read_text().lower().splitlines())
    exact = set(re.findall(r'^    "([\w.-]+==[\w.]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    assert len(exact) > 15
    assert {pin.lower() for pin in exact} - pinned == set()


def test_constraints_hold_versions_and_no_addresses():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)] == []


def test_the_licence_is_apache_2():
    text = (ROOT / "LICENSE").read_text()
    assert text.strip().startswith("Apache License\n                           Version 2.0, January 2004")
    assert "END OF TERMS AND CONDITIONS" in text
