"""Which operators of torch recording can produce: run the databases and the tests of layers, and list the targets.

`python -m tests.torch_db.recorded` rewrites argosy/engine/ir/recorded_ops.txt, from which a loaded program may call.
Added to them are the operators that torch tags as core or pointwise. The file names every overload that a program could
hold: recording `x + y` and `x + 1` needs
`add.Tensor`, and a model may just as well have `add.Scalar`. Overloads that write into an `out` argument, or take what
no program can hold (storages, streams, dimension names), are left out.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

from argosy.engine.ir import allowed_ops
from tests.torch_db.pool import run_all
from tests.torch_db.tasks import tasks

LAYERS = (
    "fluid",
    "framework",
    "nn",
    "optimizer",
    "static",
    "tensor",
    "metric",
    "engine/ir",
    "engine/runtime",
)
"""The tests that build programs with Argosy's own layers, initialisers and optimizers."""
_FILE = "TEST_RECORDED"
_HELD = {
    "Tensor",
    "number",
    "int",
    "float",
    "bool",
    "str",
    "SymInt",
    "SymBool",
    "ScalarType",
    "Layout",
    "Device",
}
_HELD |= {"MemoryFormat", "Generator"}  # a generator is None in a program


def main() -> int:
    """Takes some minutes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "names"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.torch_db.recorded", "--no-header"]
        command += [f"tests/{layer}" for layer in LAYERS]
        subprocess.run(command, env={**os.environ, _FILE: str(path)}, check=False)
        names = recorded(path)
    listed = sorted({one for name in names | tagged() for one in overloads(name)})
    allowed_ops.LIST.write_text("".join(f"{name}\n" for name in listed))
    print(f"{len(names)} operators were recorded; {allowed_ops.LIST} lists {len(listed)}")
    return 0


def recorded(path: Path, limit: int = 3, nets: int = 40) -> set[str]:
    """The names of the operators that the cases of the databases record, by way of a file: cases run in processes."""
    path.touch()
    note_targets(path)
    chosen = tasks(limit=limit, num_nets=nets)
    for number, _ in enumerate(run_all(chosen, jobs=2)):
        if number % 500 == 0:
            print(
                f"{number} records, {len(set(path.read_text().split()))} operators",
                file=sys.stderr,
                flush=True,
            )
    return set(path.read_text().split())


def note_targets(path: Path) -> None:
    """From now on, in this process and its children, add the target of every new node to the file."""
    create_node = fx.Graph.create_node
    seen: set[str] = set()

    def noting(graph: fx.Graph, op: str, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        if isinstance(target, OpOverload) and str(target) not in seen:
            seen.add(str(target))
            with path.open(
                "a"
            ) as file:  # one write of a short line: lines of several processes are never mixed
                file.write(f"{target}\n")
        return create_node(graph, op, target, *args, **kwargs)

    fx.Graph.create_node = noting  # type: ignore[method-assign]


def pytest_configure() -> None:
    """As a plugin of pytest: note what the tests record."""
    note_targets(Path(os.environ[_FILE]))


def tagged() -> set[str]:
    """What torch itself calls the core of ATen, and all that works element by element: any model may have them."""
    wanted = {torch.Tag.core, torch.Tag.pointwise}
    ops = set()
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, full = name.partition("::")
        op, _, overload = full.partition(".")
        if namespace == "aten":
            known: OpOverload = getattr(getattr(torch.ops.aten, op), overload or "default")
            if wanted & set(known.tags):
                ops.add(str(known))
    return ops


def overloads(name: str) -> Iterable[str]:
    """All overloads of the operator of this name that a program may hold."""
    namespace, op, _ = name.split(".")
    if namespace not in ("aten", "prims"):
        return
    packet: OpOverloadPacket = getattr(getattr(torch.ops, namespace), op)
    for overload in packet.overloads():
        op_overload: OpOverload = getattr(packet, overload)
        if torch._C._dispatch_has_kernel(op_overload._name) and _can_be_held(op_overload):
            yield str(op_overload)


def _can_be_held(op: OpOverload) -> bool:
    kinds = [_element(argument.real_type) for argument in op._schema.arguments]
    return not any(argument.is_out for argument in op._schema.arguments) and set(kinds) <= _HELD


def _element(kind: Any) -> str:
    while hasattr(kind, "getElementType"):
        kind = kind.getElementType()
    return str(kind)


if __name__ == "__main__":
    sys.exit(main())
