"""Imports point one way: in the rows below a folder or file imports only from steps to its left.

Imports inside functions, and modules that are loaded by name, count too; imports for types alone do not.
"""

# SPDX-License-Identifier: Apache-2.0
import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "argosy"

ENGINE = [
    ["errors", "env_table", "intervals"],
    ["env", "version"],
    ["log", "files", "net", "process_effects"],
    ["checksum", "metrics", "open_files"],
    ["disk"],
    ["kernels"],
    ["optimizers"],
    ["collective", "data", "launch"],
    ["cluster"],
    ["ps"],
    ["ops"],
    ["ir"],
    ["passes"],
    ["runtime", "planner"],
]
API = [
    ["modules", "charts"],
    ["engine"],
    ["framework", "ray", "torchx", "metrics"],
    ["tensor", "regularizer", "version", "compat", "sysconfig", "device"],
    ["nn", "metric"],
    ["optimizer"],
    ["io", "reader", "dataset", "text", "vision", "timeline", "doctor", "core", "incubate"],
    ["static", "dashboard", "report"],
    ["utils"],
    ["distributed"],
    ["plan", "fluid"],
    ["common_ops_import"],
    ["api"],
    ["__init__", "__main__", "paddle"],
]
LAZY = {
    (
        "engine/launch/bootstrap.py",
        "argosy.engine.collective",
    ): "reads sys.modules for the step; loads nothing",
}
"""(file, module): why the file may name a module that is not to its left."""


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module of argosy that the file imports, or loads by its name."""

    def visit(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            is_package = node.module in ("argosy", "argosy.engine")
            yield from (f"{node.module}.{a.name}" if is_package else node.module for a in node.names)
        if isinstance(node, ast.Call):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and _is_module(argument.value):
                    yield str(argument.value)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    names = visit(ast.parse(path.read_text()))
    return tuple(name for name in names if name.split(".")[0] == "argosy" and name != "argosy")


def _is_module(value: object) -> bool:
    """True for the dotted name of a module of argosy, as `importlib.import_module` takes it."""
    if not isinstance(value, str) or not re.fullmatch(r"argosy(\.\w+)+", value):
        return False
    path = ROOT.parent.joinpath(*value.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def violations(folder: Path, row: list[list[str]]) -> list[str]:
    """The imports of files in `folder` that do not point to the left in the row of its parts."""
    step = {name: number for number, names in enumerate(row) for name in names}
    depth = len(folder.relative_to(ROOT.parent).parts)
    wrong = []
    for path in sorted(folder.rglob("*.py")):
        part = path.relative_to(folder).parts[0].removesuffix(".py")
        if depth > 1 and part == "__init__":
            continue
        for name in imports(path):
            parts = name.split(".")
            if parts[1:depth] != list(folder.relative_to(ROOT).parts):
                wrong.append(f"{path.relative_to(ROOT)} imports the API: {name}")
                continue
            target = parts[depth] if len(parts) > depth else part
            if target in ("__version__", part) or (str(path.relative_to(ROOT)), name) in LAZY:
                continue
            if step[target] >= step[part]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}, which is to its right")
    return wrong


@pytest.mark.parametrize(("folder", "row"), [(ROOT / "engine", ENGINE), (ROOT, API)], ids=["engine", "API"])
def test_imports_point_to_the_left(folder: Path, row: list[list[str]]) -> None:
    wrong = violations(folder, row)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("folder", "row"), [(ROOT / "engine", ENGINE), (ROOT, API)], ids=["engine", "API"])
def test_every_part_has_its_place_in_the_row(folder: Path, row: list[list[str]]) -> None:
    placed = {name for names in row for name in names} | {"__init__", "__pycache__"}
    parts = {p.stem for p in folder.iterdir() if p.is_dir() or p.suffix == ".py"}
    assert parts <= placed, f"add {parts - placed} to the row"


def test_every_exception_is_needed() -> None:
    loaded = {(str(path.relative_to(ROOT)), name) for path in ROOT.rglob("*.py") for name in imports(path)}
    assert loaded >= LAZY.keys()


def test_an_import_inside_a_function_and_a_load_by_name_count(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "def f():\n    from argosy import fluid\n\ndef g(load):\n    return load('argosy.static.nn')\n"
    )
    assert imports(source) == ("argosy.fluid", "argosy.static.nn")


def test_only_env_reads_the_environment() -> None:
    readers = [p for p in ROOT.rglob("*.py") if "os.environ" in p.read_text() or "getenv" in p.read_text()]
    assert [p.name for p in readers] == ["env.py"]
