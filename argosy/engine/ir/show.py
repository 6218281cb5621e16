"""Print a program as text, as a graphviz graph, and as SVG."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import operator
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from argosy.engine.errors import ConfigError
from argosy.engine.ir.blocks import BlockCall
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.periods import condition_text, conditions
from argosy.engine.ir.symbols import Symbols
from argosy.engine.ir.variable import Parameter

if TYPE_CHECKING:
    from argosy.engine.ir.program import Program

_COLOURS = {"forward": "#cfe8fc", "backward": "#fde2c8", "optimize": "#d9f2d0", "communicate": "#e8d5f5"}
_LONG = 8
"""Longer lists of arguments are abbreviated to the first, the last and their number."""


def op_name(node: fx.Node) -> str:
    """convolution, getitem, feed: the name of the op without namespace and overload."""
    if node.op == "placeholder":
        return "placeholder"
    if node.op == "get_attr":
        return "constant"
    target: Any = node.target
    return str(getattr(target, "_opname", None) or getattr(target, "__name__", target))


def type_text(value: Any, symbols: Symbols) -> str:
    """float32[N, 3, 224, 224]"""
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(symbols.label(s) for s in value.shape)
        return f"{dtype_name(value.dtype)}[{sizes}]"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(type_text(v, symbols) for v in value) + ")"
    return "" if value is None else type(value).__name__.lower()


def text(program: Program, source: bool = False) -> str:
    """The program, one line per node: role, name = op(inputs), type, and with `source` the user's source line.

    The line of a node that runs only in some steps says in which. The nodes of branches and loops are indented.
    """
    named = program.names_of_nodes()
    rows = [(node, *row) for node in program.graph.nodes for row in _rows(program, node, named)]
    width = min(max((len(left) for _, left, _ in rows), default=0), 100)
    lines = [_head(program)]
    wanted = conditions(program.graph)
    for node, left, kind in rows:
        notes = [condition_text(wanted[node], program.training.periods)] if node in wanted else []
        notes += [str(node.meta["source"])] if source and node.meta.get("source") else []
        note = f"  # {'; '.join(notes)}" if notes else ""
        lines.append(f"{left:{width}}  {kind}{note}".rstrip())
    return "\n".join(lines) + "\n"


def _head(program: Program) -> str:
    nodes = list(program.graph.nodes)
    by_role = {
        role: sum(n.meta["role"] == role for n in nodes if n.op == "call_function") for role in _COLOURS
    }
    counts = ", ".join(f"{count} {role}" for role, count in by_role.items() if count)
    kinds = f"{len(program.feeds())} feeds, {len(program.all_parameters())} parameters"
    return f"{program.name}: {kinds}, {len(nodes)} nodes ({counts or 'empty'})"


def _rows(program: Program, node: fx.Node, named: dict[fx.Node, str]) -> Iterator[tuple[str, str]]:
    """The line of a node, and those of its blocks."""
    yield _row(program, node, named)
    if not isinstance(node.target, BlockCall):
        return
    given = node.target.inputs(node.args)
    for label, block in zip(node.target.labels(), node.target.blocks, strict=True):
        yield f"{'':<11}   {label}:", ""
        inside = {n: _argument(a, named) for n, a in zip(block.inputs, given, strict=True)}
        inside |= {n: n.name for n in block.nodes}
        for inner in block.nodes:
            for left, kind in _rows(program, inner, inside):
                yield f"{'':<11}     {left[12:]}", kind
        results = ", ".join(inside[n] for n in block.outputs)
        yield f"{'':<11}     return {results}", ""


def _row(program: Program, node: fx.Node, named: dict[fx.Node, str]) -> tuple[str, str]:
    kind = type_text(node.meta.get("val"), program.symbols)
    if "copy_of" in node.meta:
        return f"{'copy':<11} {named[node]}", kind
    if node.op == "placeholder":
        variable = program.vars.get(named[node])
        what = "param" if isinstance(variable, Parameter) else "feed"
        what = "state" if what == "feed" and variable is not None and variable.persistable else what
        return f"{what:<11} {named[node]}", kind
    role = node.meta.get("role", "")
    if node.target is operator.getitem:
        return f"{role:<11} {named[node]} = {_argument(node.args[0], named)}[{node.args[1]}]", kind
    inputs = [_argument(a, named) for a in node.args]
    inputs += [f"{key}={_argument(a, named)}" for key, a in node.kwargs.items()]
    return f"{role:<11} {named[node]} = {op_name(node)}({', '.join(inputs)})", kind


def _argument(value: Any, named: dict[fx.Node, str]) -> str:
    if isinstance(value, fx.Node):
        return named[value]
    if isinstance(value, list | tuple) and len(value) > _LONG:
        return f"[{_argument(value[0], named)}, …, {_argument(value[-1], named)}] ({len(value)})"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_argument(v, named) for v in value) + "]"
    return str(value).removeprefix("torch.")


def dot(program: Program) -> str:
    """The graph in graphviz's DOT language: boxes coloured by role, an edge per input."""
    named = program.names_of_nodes()
    lines = [
        "digraph program {",
        '  rankdir=TB; node [shape=box, style="filled,rounded", fontname="Helvetica"];',
    ]
    wanted = conditions(program.graph)
    for node in program.graph.nodes:
        colour = "#ffffff" if node.op == "placeholder" else _COLOURS.get(node.meta.get("role", ""), "#eeeeee")
        kind = type_text(node.meta.get("val"), program.symbols)
        label = "\\n".join(_quoted(part) for part in (op_name(node), named[node], kind) if part)
        dashed = ', style="filled,rounded,dashed"' if node in wanted else ""  # it runs only in some steps
        lines.append(f'  "{node.name}" [label="{label}", fillcolor="{colour}"{dashed}];')
        lines += [f'  "{source.name}" -> "{node.name}";' for source in node.all_input_nodes]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(part: str) -> str:
    return part.replace("\\", "\\\\").replace('"', '\\"')


def svg(program: Program, path: str | None = None) -> str:
    """The graph drawn by graphviz; written to `path` if one is given."""
    tool = shutil.which("dot")
    if tool is None:
        raise ConfigError(
            "to_svg needs graphviz's `dot`, which is not on the PATH; install graphviz or use to_dot"
        )
    drawn = subprocess.run(
        [tool, "-Tsvg"], input=dot(program), capture_output=True, text=True, check=True
    ).stdout
    if path is not None:
        Path(path).write_text(drawn)
    return drawn
