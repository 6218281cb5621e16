"""Imports point one way: API -> engine, and inside the engine from right to left of this row."""

# SPDX-License-Identifier: Apache-2.0
import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent / "argosy"
ROW = [
    ["errors", "version"],
    ["env", "torch_version"],
    ["log", "files", "net"],
    ["checksum"],
    ["disk"],
    ["kernels"],
    ["collective", "data", "launch"],
    ["ps"],
    ["ops"],
    ["ir"],
    ["passes"],
    ["runtime", "planner"],
]
STEP = {folder: step for step, folders in enumerate(ROW) for folder in folders}


def imports(path: Path) -> list[str]:
    """Every module that the file imports, also inside functions, but not for types alone."""
    imported: list[str] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            imported.extend(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = [f"{node.module}.{a.name}" for a in node.names]
            imported.extend(parts if node.module == "argosy.engine" else [node.module])
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return [name for name in imported if name.split(".")[0] == "argosy"]


def test_engine_imports_only_from_layers_to_its_left() -> None:
    wrong = []
    for path in (ROOT / "engine").rglob("*.py"):
        folder = path.relative_to(ROOT / "engine").parts[0].removesuffix(".py")
        if folder == "__init__":
            continue
        for name in imports(path):
            parts = name.split(".")
            if parts[1:2] != ["engine"]:
                wrong.append(f"{path.relative_to(ROOT)} imports the API: {name}")
            elif len(parts) > 2 and parts[2] != folder and STEP[parts[2]] >= STEP[folder]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}, which is to its right")
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_the_engine_has_its_place_in_the_row() -> None:
    folders = {p.name for p in (ROOT / "engine").iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders <= STEP.keys(), f"add {folders - STEP.keys()} to the row"


def test_only_env_reads_the_environment() -> None:
    readers = [p for p in ROOT.rglob("*.py") if "os.environ" in p.read_text() or "getenv" in p.read_text()]
    assert [p.name for p in readers] == ["env.py"]
