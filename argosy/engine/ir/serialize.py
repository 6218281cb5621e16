"""A program as plain data that JSON can hold, and back.

    to_dict     nodes, variables, rules between feed sizes, constants: names and numbers, no code
    from_dict   the nodes again; each one's shape comes from running its op on fake tensors

Nothing is imported, evaluated or unpickled: an op is looked up by a strict pattern among the operators that
torch and Argosy have registered, a plain function in a fixed table, and whatever else the data names is
refused. What is left out: learning-rate schedulers (the variable that holds the rate is there), readers,
regularizers (they are in the update nodes already), and autograd's history: a loaded program is run, and
trains on if its update nodes were saved, but cannot be differentiated again.
"""

# SPDX-License-Identifier: Apache-2.0
import base64
import importlib
import math
import operator
import os
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import safetensors.torch
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._sympy.interp import sympy_interp

import argosy.engine.ops
from argosy.engine.errors import ArgosyError, ProgramError
from argosy.engine.ir.program import Program
from argosy.engine.ir.recorder import ROLES, SizeArithmetic
from argosy.engine.ir.source import SourceLine
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ir.verify import describe, verify

_OP = re.compile(r"(aten|prims|argosy)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)", re.ASCII)

_OPERATOR = ("getitem", "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg", "and_", "or_", "xor")
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
_SYM = ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "_sym_sqrt")
PLAIN: dict[str, Callable[..., Any]] = {
    **{f"operator.{name}": getattr(operator, name) for name in _OPERATOR + _COMPARE},
    **{f"torch.{name}": getattr(torch, name) for name in _SYM},
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc")},
}
"""The functions on sizes that a program may hold beside operators."""

_PLAIN_NAMES = {function: name for name, function in PLAIN.items()}

# --- a program to data --------------------------------------------------------------------------------


def to_dict(program: Program) -> dict[str, Any]:
    """The whole program: what `from_dict` makes the same program of, here or in another process."""
    variables = [_variable_record(v) for v in program.vars.values()]  # first: this may add getitem nodes
    nodes = [_node_record(n) for n in program.graph.nodes]
    used = {str(n.target) for n in program.graph.nodes if n.op == "get_attr"}
    return {
        "name": program.name,
        "random_seed": program.random_seed,
        "torch": torch.__version__,
        "nodes": nodes,
        "variables": variables,
        "rules": _rules(program),
        "constants": _packed({k: v for k, v in program.recorder.constants.items() if k in used}),
    }


def _node_record(node: fx.Node) -> dict[str, Any]:
    marks = {key: value for key, value in node.meta.items() if key not in ("val", "role", "source", "call")}
    try:
        return {
            "name": node.name,
            "op": node.op,
            "target": _target_name(node.target) if node.op == "call_function" else str(node.target),
            "args": [encode(a) for a in node.args],
            "kwargs": {key: encode(a) for key, a in node.kwargs.items()},
            "role": node.meta["role"],
            "source": _source_record(node.meta.get("source")),
            "marks": {key: encode(value) for key, value in marks.items()},
        }
    except ProgramError as e:
        raise ProgramError(f"{describe(node)} cannot be saved: {e}") from e


def _target_name(target: Any) -> str:
    name = str(target) if isinstance(target, OpOverload) else _PLAIN_NAMES.get(target, "")
    if not name:
        raise ProgramError(f"it calls {target!r}, which is no operator; record it as ATen ops")
    find_target(name)
    return name


def encode(value: Any) -> Any:
    """An argument of a node as JSON: numbers, strings and lists as they are, the rest as {kind: …}."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list):
        return [encode(v) for v in value]
    for kind, (cls, to_json, _) in _KINDS.items():
        if isinstance(value, cls):
            return {kind: to_json(value)}
    raise ProgramError(f"{value!r} has no place in a file; use numbers, strings, lists, dtypes and nodes")


def decode(value: Any, nodes: dict[str, fx.Node]) -> Any:
    """What `encode` was given."""
    if isinstance(value, list):
        return [decode(v, nodes) for v in value]
    if not isinstance(value, dict):
        return value
    [(kind, inner)] = value.items()
    if kind not in _KINDS:
        raise ProgramError(f"{value!r} is no argument that a program can have; save the program anew")
    return _KINDS[kind][2](inner, nodes)


def _words(cls: type) -> tuple[type, Callable[..., Any], Callable[..., Any]]:
    """Things that torch has by name: read from a table, not by getattr."""
    table = {str(v): v for v in vars(torch).values() if isinstance(v, cls)}
    return cls, str, lambda inner, _: table[inner]


_KINDS: dict[str, tuple[type, Callable[..., Any], Callable[..., Any]]] = {
    "node": (fx.Node, lambda node: node.name, lambda inner, nodes: nodes[inner]),
    "tuple": (tuple, lambda v: [encode(x) for x in v], lambda inner, nodes: tuple(decode(inner, nodes))),
    "float": (float, str, lambda inner, _: float(inner)),
    "complex": (complex, lambda z: [str(z.real), str(z.imag)], lambda inner, _: complex(*map(float, inner))),
    "device": (torch.device, str, lambda inner, _: torch.device(inner)),
    "dtype": _words(torch.dtype),
    "layout": _words(torch.layout),
    "memory_format": _words(torch.memory_format),
}
"""Arguments that JSON has no word for: their class, and how they are written and read."""


def _source_record(line: SourceLine | None) -> list[Any] | None:
    """Without the folders: they are of this machine."""
    return None if line is None else [os.path.basename(line.file), line.line, line.function]


def _variable_record(variable: Variable) -> dict[str, Any]:
    placeholder = variable.program.recorder.placeholder_of.get(variable.value)
    record: dict[str, Any] = {
        "name": variable.name,
        "kind": _kind(variable),
        "node": variable.node.name,
        "placeholder": None if placeholder is None else placeholder.name,
        "shape": [None if size < 0 else size for size in variable.shape],
        "dtype": str(variable.dtype),
        "lod_level": variable.lod_level,
        "stop_gradient": variable.stop_gradient,
    }
    if isinstance(variable, Parameter):
        record["learning_rate"] = variable.learning_rate
        record["need_clip"] = variable.need_clip
        record["is_distributed"] = variable.is_distributed
    return record


def _kind(variable: Variable) -> str:
    if isinstance(variable, Parameter):
        return "parameter"
    return "feed" if variable.is_data else "state" if variable.persistable else "value"


def _rules(program: Program) -> list[dict[str, Any]]:
    """What the program assumes about the sizes of feeds.

    They are saved because not all come back when the ops run again: code above the ops made some of them
    (cross_entropy compares the batches of input and label; a script may ask `if x.size(0) > 4`).
    """
    symbols = program.symbols
    sizes = {s: place for s, place in symbols.origin.items() if place[0] in program.feeds()}
    rules = []
    for assumption in symbols.assumptions:
        wanted = assumption.condition.free_symbols
        if not assumption.is_required or not wanted <= sizes.keys():
            continue  # what shape functions ask, they ask again when the program is loaded
        tracer = fx.Tracer()
        tracer.graph = fx.Graph()
        inputs = {s: tracer.graph.placeholder(f"s{i}") for i, s in enumerate(wanted)}
        made = sympy_interp(
            SizeArithmetic, {s: fx.Proxy(n, tracer) for s, n in inputs.items()}, assumption.condition
        )
        places = {node: sizes[symbol] for symbol, node in inputs.items()}
        rules.append({"holds": _expression(made.node, places), "source": _source_record(assumption.line)})
    return rules


def _expression(value: Any, places: dict[fx.Node, tuple[str, int]]) -> Any:
    if not isinstance(value, fx.Node):
        return encode(value)
    if value in places:
        return {"size": list(places[value])}
    return {"call": _target_name(value.target), "args": [_expression(a, places) for a in value.args]}


def _packed(constants: dict[str, torch.Tensor]) -> str:
    """Constants as a safetensors file in base64, inside the program, so that the two are never mixed up."""
    plain = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in constants.items()
    }
    return base64.b64encode(safetensors.torch.save(plain)).decode("ascii")


# --- data to a program --------------------------------------------------------------------------------


def from_dict(data: dict[str, Any]) -> Program:
    """The program of `to_dict`; ProgramError for anything that `to_dict` would not have written."""
    try:
        return _rebuilt(data)
    except ArgosyError:
        raise
    except Exception as e:
        saved = data.get("torch") if isinstance(data, dict) else None
        raise ProgramError(
            f"the data (saved with torch {saved}, this is {torch.__version__}) is no program: "
            f"{type(e).__name__}: {_first_line(e)}; save the program anew"
        ) from e


def _rebuilt(data: dict[str, Any]) -> Program:
    program = Program(str(data["name"]))
    program.random_seed = int(data["random_seed"])
    program.has_history = False
    program.recorder.constants = safetensors.torch.load(base64.b64decode(data["constants"], validate=True))
    inputs: dict[str, torch.Tensor] = {}
    feeds: dict[str, torch.Tensor] = {}
    for record in data["variables"]:
        if record["placeholder"] is not None:
            fake = program.symbols.fake(
                record["name"], record["shape"], decode({"dtype": record["dtype"]}, {})
            )
            inputs[record["placeholder"]] = fake
            if record["kind"] == "feed":
                feeds[record["name"]] = fake
    _state_rules(program, data["rules"], feeds)
    made: dict[str, fx.Node] = {}
    with program.replaying():
        for record in data["nodes"]:
            made[record["name"]] = _add_node(program, record, made, inputs)
    taken: set[int] = set()
    for record in data["variables"]:
        _add_variable(program, record, made, taken)
    verify(program.graph, program.recorder.constants)
    program.touch()
    return program


def _state_rules(program: Program, rules: list[dict[str, Any]], feeds: dict[str, torch.Tensor]) -> None:
    """Let the program assume what the saved one assumed."""

    def value(tree: Any) -> Any:
        if isinstance(tree, dict) and "size" in tree:
            feed, dim = tree["size"]
            return feeds[feed].shape[dim]
        if isinstance(tree, dict) and "call" in tree:
            return _plain_function(tree["call"])(*map(value, tree["args"]))
        return decode(tree, {})

    for rule in rules:
        condition = value(rule["holds"])
        if not isinstance(condition, torch.SymBool):
            holds = bool(condition)
        else:
            holds = program.symbols.env.assume(condition.node.expr, _source_line(rule["source"]))
        if not holds:
            raise ProgramError(
                f"the rule {rule['holds']} between sizes of feeds holds for no feed; save the program again"
            )


def _add_node(
    program: Program, record: dict[str, Any], made: dict[str, fx.Node], inputs: dict[str, torch.Tensor]
) -> fx.Node:
    name, op, role, line = record["name"], record["op"], record["role"], _source_line(record["source"])
    args = tuple(decode(a, made) for a in record["args"])
    kwargs = {key: decode(a, made) for key, a in record["kwargs"].items()}
    if op not in ("placeholder", "get_attr", "call_function") or role not in ROLES:
        raise ProgramError(f"node {name!r} is a {op!r} of role {role!r}; a program has no such nodes")
    target = find_target(record["target"]) if op == "call_function" else str(record["target"])
    if op == "call_function":
        _check_call(name, target, args, kwargs)
    elif args or kwargs:
        raise ProgramError(f"node {name!r} is a {op} with arguments {args} {kwargs}; it takes none")
    marks = {key: decode(mark, made) for key, mark in record["marks"].items()}
    meta = {**marks, "role": role, "source": line}
    if op == "call_function":
        try:
            node = program.recorder.replay(target, args, kwargs, meta, name)
        except ArgosyError:
            raise
        except Exception as e:
            raise ProgramError(f"{name} cannot call {target}: {_first_line(e)}") from e
    else:
        node = program.graph.create_node(op, target, args, kwargs, name=name)
        value = inputs[name] if op == "placeholder" else _constant_value(program, node)
        node.meta = {**meta, "val": value}
        if op == "placeholder":
            program.recorder.placeholder_of[value] = node
        program.recorder.bind(value, node)
    if node.name != name:
        raise ProgramError(
            f"node {name!r} became {node.name!r}: two nodes have one name, or it is no identifier"
        )
    return node


def _constant_value(program: Program, node: fx.Node) -> torch.Tensor:
    constant = program.recorder.constants[str(node.target)]
    fake: torch.Tensor = program.symbols.mode.from_tensor(constant, static_shapes=True)
    return fake


def _check_call(name: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if isinstance(target, OpOverload):
        known = {a.name for a in target._schema.arguments}
        unknown = [key for key in kwargs if key not in known]
        if unknown:
            raise ProgramError(
                f"node {name!r}: {target} has no argument {unknown[0]!r}; it has {', '.join(known)}"
            )
        return
    numbers = (fx.Node, bool, int, float)
    allowed = isinstance(args[0], fx.Node) and type(args[1]) is int if target is operator.getitem else True
    if kwargs or not allowed or not all(isinstance(a, numbers) for a in args):
        raise ProgramError(
            f"node {name!r} calls {_PLAIN_NAMES[target]} with {args} {kwargs}; it takes nodes and numbers"
        )


def _add_variable(
    program: Program, record: dict[str, Any], made: dict[str, fx.Node], taken: set[int]
) -> None:
    name, node, kind = record["name"], made[record["node"]], record["kind"]
    placeholder = None if record["placeholder"] is None else made[record["placeholder"]]
    value = (placeholder or node).meta["val"]
    if not isinstance(value, torch.Tensor) or name in program.vars:
        raise ProgramError(f"variable {name!r} ({node.name}) is no tensor, or there are two of that name")
    if id(value) in taken:  # two names for one value, such as x and x.detach()
        with program.symbols.mode:
            value = value.detach()
        program.recorder.node_of[value] = node
    taken.add(id(value))
    variable: Variable
    if kind == "parameter":
        keys = ("learning_rate", "need_clip")
        variable = Parameter(program, name, value, **{key: record[key] for key in keys})
        variable.is_distributed = record["is_distributed"]
    else:
        variable = Variable(program, name, value)
        variable.is_data, variable.persistable = kind == "feed", kind == "state"
    variable.lod_level, variable._stop_gradient = record["lod_level"], record["stop_gradient"]
    if program.recorder.node(value) is not node:
        raise ProgramError(f"variable {name!r} is not made by {node.name}; save the program anew")
    _check_type(variable, record)
    program.add(variable)


def _check_type(variable: Variable, record: dict[str, Any]) -> None:
    """The ops have given the variable the dtype and the known sizes that it was saved with."""
    known = [
        found if saved is None else saved
        for found, saved in zip(variable.shape, record["shape"], strict=True)
    ]
    if known != list(variable.shape) or str(variable.dtype) != record["dtype"]:
        raise ProgramError(
            f"variable {variable.name!r} was saved as {record['dtype']}{record['shape']} and is now "
            f"{variable.dtype}{list(variable.shape)}; load it with the torch that saved it"
        )


def find_target(name: str) -> Any:
    """The operator or function of this name; ProgramError if it is not one that a program may call."""
    if name in PLAIN:
        return PLAIN[name]
    match = _OP.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ProgramError(
            f"{name!r} is no operator that a program may call; it must be aten.…, prims.… or argosy.… "
            f"with its overload, or one of {', '.join(PLAIN)}"
        )
    namespace, op, overload = match.groups()
    if namespace == "argosy" and not hasattr(torch.ops.argosy, op):
        _register_ops()
    found = getattr(getattr(getattr(torch.ops, namespace), op, None), overload, None)
    # The dispatcher's ops compute; torch.ops has TorchScript's too, and of those aten.save writes files.
    if not isinstance(found, OpOverload) or not torch._C._dispatch_has_kernel(found._name):
        raise ProgramError(
            f"torch {torch.__version__} and this Argosy have no operator {name!r}; save with this version"
        )
    if any(a.name == "filename" for a in found._schema.arguments):
        raise ProgramError(f"{name} opens files, which a program may not do; remove that node")
    return found


def _plain_function(name: str) -> Callable[..., Any]:
    if name not in PLAIN:
        raise ProgramError(f"{name!r} is no function on sizes; it must be one of {', '.join(PLAIN)}")
    return PLAIN[name]


def _register_ops() -> None:
    """Import all of Argosy's own ops: a process that only loads has not used them yet."""
    for module in pkgutil.iter_modules(argosy.engine.ops.__path__):
        importlib.import_module(f"{argosy.engine.ops.__name__}.{module.name}")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _source_line(record: list[Any] | None) -> SourceLine | None:
    return None if record is None else SourceLine(str(record[0]), int(record[1]), str(record[2]))
