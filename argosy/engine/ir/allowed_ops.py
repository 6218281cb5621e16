"""Allowlist of the operators and arguments of programs from files, which are untrusted.

    recorded_ops.txt   the allowlist: all ops that recording produces for torch's databases of ops and modules, random
                       nets and layers, with all their overloads; `python -m tests.torch_db.recorded` writes it
    REJECTED           ops of that list that a file must not call, and why
    SAVED              arguments that the kernel trusts: they must be outputs of the matching forward op
    check_call         rejects arguments that disable checks, or select another device

Argosy's ops are allowed unless they are in REJECTED; their kernels check their arguments at run time
(kernels/signatures.py). The reasons are in docs/decisions/0020-programs-from-files.md.
"""

# SPDX-License-Identifier: Apache-2.0
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._ops import OpOverload

from argosy.engine.errors import ProgramError
from argosy.engine.ir.effects import mutated_inputs, storage

LIST = Path(__file__).with_name("recorded_ops.txt")
_CPU = torch.device("cpu")

_KINDS = {
    "ScalarType": torch.dtype,
    "Layout": torch.layout,
    "MemoryFormat": torch.memory_format,
    "Device": torch.device,
}
_MEMORY = "it makes a tensor refer to other memory, or exposes uninitialised memory"
_SERVERS = "it talks to parameter servers; a job builds such programs itself"
_SPARSE = "its result is not a dense tensor"
REJECTED: dict[str, str] = {
    **dict.fromkeys(
        ("aten.set_", "aten.resize_", "aten.resize_as_", "aten.resize", "aten.as_strided_"), _MEMORY
    ),
    **dict.fromkeys(("aten.set", "aten.resize_as", "aten._resize_output_", "aten.set_data"), _MEMORY),
    **dict.fromkeys(("aten.to_sparse", "aten._to_sparse", "aten._coalesce", "aten.to_mkldnn"), _SPARSE),
    "aten.from_file": "it opens a file",
    "aten.linalg_lu_solve": "LAPACK trusts the pivots, which a file or a feed could choose",
    "aten.linalg_ldl_solve": "LAPACK trusts the pivots, which a file or a feed could choose",
    "aten.lu_solve": "LAPACK trusts the pivots, which a file or a feed could choose",
    "aten._ctc_loss": "the kernel trusts the labels; record ctc_loss, which becomes argosy.ctc_loss",
    "aten._ctc_loss_backward": "the kernel trusts the labels; record ctc_loss, which becomes argosy.ctc_loss",
    "argosy.py_func": "it calls a function of the script that built the program",
    **{
        f"argosy.{name}": _SERVERS
        for name in (
            "listen_and_serv",
            "send",
            "push_rows",
            "send_barrier",
            "recv",
            "fetch_barrier",
            "distributed_lookup_table",
            "geo_sync",
            "sum_over_servers",
        )
    },
}
"""An operator without its overload -> why a file may not call it."""


class SavedOutput(NamedTuple):
    """An argument that must be output number `output` of `forward`, called with the same tensors."""

    argument: str
    forward: str
    output: int


def _indices(*names: str) -> dict[str, tuple[SavedOutput, ...]]:
    return {
        f"aten.{name}_backward.default": (SavedOutput("indices", f"aten.{name}.default", 1),)
        for name in names
    }


SAVED: dict[str, tuple[SavedOutput, ...]] = {
    **_indices(
        "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"
    ),
    **_indices("fractional_max_pool2d", "fractional_max_pool3d"),
    "aten._segment_reduce_backward.default": (SavedOutput("output", "aten.segment_reduce.default", 0),),
    **{
        f"aten.{name}.default": (
            SavedOutput("offset2bag", "aten._embedding_bag.default", 1),
            SavedOutput("bag_size", "aten._embedding_bag.default", 2),
            SavedOutput("maximum_indices", "aten._embedding_bag.default", 3),
        )
        for name in ("_embedding_bag_backward", "_embedding_bag_dense_backward")
    },
    "aten._embedding_bag_per_sample_weights_backward.default": (
        SavedOutput("offset2bag", "aten._embedding_bag.default", 1),
    ),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": (
        SavedOutput("out", "aten._scaled_dot_product_flash_attention_for_cpu.default", 0),
        SavedOutput("logsumexp", "aten._scaled_dot_product_flash_attention_for_cpu.default", 1),
    ),
}
"""A backward op -> the arguments that its kernel uses as indices, or whose sizes it does not check."""


@functools.cache
def _listed() -> frozenset[str]:
    return frozenset(LIST.read_text().split())


def check_op(name: str) -> None:
    """Raise ProgramError if a program from a file may not call the operator `namespace.op.overload`."""
    packet = name.rsplit(".", 1)[0]
    if packet in REJECTED:
        raise ProgramError(f"{name} may not be called by a program from a file: {REJECTED[packet]}")
    if not name.startswith("argosy.") and name not in _listed():
        raise ProgramError(
            f"{name} is not in the list of operators that a program from a file may call ({LIST.name}): recording "
            "torch's functions does not produce it; use an equivalent function of torch"
        )


def check_call(target: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ProgramError if an argument disables a check of the kernel, or is not for dense tensors on the CPU."""
    arguments = _by_name(target, args, kwargs)
    for argument in target._schema.arguments:
        kind, value = _KINDS.get(_plain_type(argument)), arguments[argument.name]
        if kind is not None and value is not None and not isinstance(value, kind):
            raise ProgramError(
                f"{argument.name}={value!r} of {target} is not a {kind}; torch would accept a number without a check"
            )
    for name, value in arguments.items():
        if name == "unsafe" and value is not False:
            raise ProgramError(f"unsafe={value!r} lets {target} trust its arguments; it must be False")
        if name == "pin_memory" and value:
            raise ProgramError(f"pin_memory={value!r} of {target} is for devices; it must be None or False")
        if isinstance(value, torch.device) and value != _CPU:
            raise ProgramError(f"{name}={value} of {target} is invalid in a saved program; it must be cpu")
        if isinstance(value, torch.layout) and value is not torch.strided:
            raise ProgramError(f"{name}={value} of {target} is not a dense layout; it must be torch.strided")


@functools.cache
def _plain_type(argument: Any) -> str:
    return str(argument.real_type).removeprefix("Optional[").removesuffix("]")


def check_saved(graph: fx.Graph) -> None:
    """Raise ProgramError if an argument of SAVED is not an output of the forward op, or was mutated since."""
    trusted = [(node, *pair) for node in graph.nodes for pair in _trusted(node)]
    if not trusted:
        return
    written = {storage(source): node for node in graph.nodes for source in mutated_inputs(node)}
    for node, saved, value in trusted:
        if value is None:
            continue
        if not _is_output(node, saved, value):
            raise ProgramError(
                f"node {node.name!r}: {saved.argument} of {node.target} must be output {saved.output} of a call of "
                f"{saved.forward} with the same tensors, because the kernel trusts it; it is {value}"
            )
        if (writer := written.get(storage(value))) is not None:
            raise ProgramError(
                f"node {writer.name!r} writes into {value}, which {node.name!r} ({node.target}) trusts; copy it first"
            )


def _trusted(node: fx.Node) -> Iterator[tuple[SavedOutput, Any]]:
    for saved in SAVED.get(str(node.target), ()) if node.op == "call_function" else ():
        yield saved, _by_name(node.target, node.args, node.kwargs)[saved.argument]


def _is_output(node: fx.Node, saved: SavedOutput, value: Any) -> bool:
    """True if `value` is the required output of a forward call with the same tensors as the node."""
    if not isinstance(value, fx.Node):
        return False
    source, item = value, 0
    if value.op == "call_function" and not isinstance(value.target, OpOverload) and len(value.args) == 2:
        source, item = value.args  # type: ignore[assignment]  # getitem(node, number)
    if source.op != "call_function" or str(source.target) != saved.forward or item != saved.output:
        return False
    forward = _by_name(source.target, source.args, source.kwargs)
    backward = _by_name(node.target, node.args, node.kwargs)
    tensors = {name for name, value in (forward | backward).items() if isinstance(value, fx.Node)}
    return all(forward[name] is backward[name] for name in tensors & forward.keys() & backward.keys())


def _by_name(target: Any, args: tuple[Any, ...], kwargs: Any) -> dict[str, Any]:
    """The arguments by name, with the schema's defaults."""
    named = zip(target._schema.arguments, args, strict=False)
    defaults = {a.name: a.default_value for a in target._schema.arguments}
    return {**defaults, **{argument.name: value for argument, value in named}, **kwargs}
