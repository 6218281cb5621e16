"""Serialize a program to plain data that JSON can hold, and back.

    to_dict     nodes, variables, rules between feed sizes, constants: names and numbers, no code
    from_dict   replays the nodes; their shapes come from running the ops on fake tensors

Nothing is imported, evaluated or unpickled: an op is looked up by a strict pattern in an explicit allowlist
(`allowed_ops.py`), a plain function in a fixed table, and anything else is rejected. Not saved: learning-rate
schedulers (the variable of the rate is), readers, regularizers (they are part of the update nodes), and the autograd
graph: a loaded program can run, and continue training if its update nodes were saved, but it cannot be differentiated
again.
"""

# SPDX-License-Identifier: Apache-2.0
import base64
import dataclasses
import functools
import importlib
import math
import operator
import os
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

import safetensors.torch
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._sympy.interp import sympy_interp

import argosy.engine.ops
from argosy.engine.errors import ArgosyError, ProgramError
from argosy.engine.ir.allowed_ops import check_call, check_op, check_saved
from argosy.engine.ir.blocks import BlockCall
from argosy.engine.ir.limits import check_bytes, checked_number
from argosy.engine.ir.periods import Period
from argosy.engine.ir.program import Program
from argosy.engine.ir.ragged import ROWS_HINT, lengths_of, set_lengths
from argosy.engine.ir.recorder import ROLES
from argosy.engine.ir.serialize_blocks import blocks_record, target_of
from argosy.engine.ir.size_nodes import SizeArithmetic
from argosy.engine.ir.source import SourceLine
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ir.verify import OPERATOR_FUNCTIONS, describe, verify

_OP = re.compile(r"(aten|prims|argosy)\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)", re.ASCII)

_SYM = ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "_sym_sqrt")
PLAIN: dict[str, Callable[..., Any]] = {
    **OPERATOR_FUNCTIONS,
    **{f"torch.{name}": getattr(torch, name) for name in _SYM},
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "trunc")},
}
"""The functions on sizes that a program may call besides operators."""

MARKS: dict[str, type] = {
    "train_only": bool,
    "memory_format": torch.memory_format,
    "replaces": fx.Node,
    "reduced": bool,
    "finalized": bool,
    "is_table": bool,
    "owner": int,
    "rank_local": bool,
    "shard": tuple,
    "shape_input_swapped": bool,
    "period": str,
    "drops_gradient": bool,
    "is_training": bool,
}
"""Keys of node.meta that are saved, set by passes and layers, and their types."""

_BLOCKS = "blocks"
"""The target of a branch or a loop; its record has the blocks."""
_VARIABLES = ("parameter", "feed", "state", "value")
_FIELDS: dict[str, Any] = {
    "name": str,
    "node": str,
    "placeholder": str | None,
    "shape": list,
    "dtype": str,
    "lengths": str | None,
    "stop_gradient": bool,
    "learning_rate": int | float | None,
    "need_clip": bool | None,
    "is_distributed": bool | None,
}
_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN_NAMES = {function: name for name, function in PLAIN.items()}

# --- a program to data --------------------------------------------------------------------------------


def to_dict(program: Program) -> dict[str, Any]:
    """The whole program as data, which `from_dict` loads in this or another process."""
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
        "periods": [dataclasses.asdict(period) for period in program.training.periods],
        "constants": _packed({k: v for k, v in program.recorder.constants.items() if k in used}),
    }


def _node_record(node: fx.Node) -> dict[str, Any]:
    marks = {key: value for key, value in node.meta.items() if key not in ("val", "role", "source", "call")}
    blocks = node.target if isinstance(node.target, BlockCall) else None
    try:
        return {
            "name": node.name,
            "op": node.op,
            "target": _target_name(node.target) if node.op == "call_function" else str(node.target),
            **({"blocks": blocks_record(blocks, _node_record)} if blocks is not None else {}),
            "args": [encode(a) for a in node.args],
            "kwargs": {key: encode(a) for key, a in node.kwargs.items()},
            "role": node.meta["role"],
            "source": _source_record(node.meta.get("source")),
            "marks": {key: _encoded_mark(node.name, key, value) for key, value in marks.items()},
        }
    except ProgramError as e:
        raise ProgramError(f"{describe(node)} cannot be saved: {e}") from e


def _target_name(target: Any) -> str:
    if isinstance(target, BlockCall):
        return _BLOCKS
    name = str(target) if isinstance(target, OpOverload) else _PLAIN_NAMES.get(target, "")
    if not name:
        raise ProgramError(f"it calls {target!r}, which is not an operator; record it as ATen ops")
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
    raise ProgramError(f"{value!r} is not serializable; use numbers, strings, lists, dtypes and nodes")


def decode(value: Any, nodes: dict[str, fx.Node]) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, list):
        return [decode(v, nodes) for v in value]
    if not isinstance(value, dict):
        return value
    [(kind, inner)] = value.items()
    if kind not in _KINDS:
        raise ProgramError(f"{value!r} is not a valid argument of a node; save the program again")
    return _KINDS[kind][2](inner, nodes)


def _torch_constants(cls: type) -> tuple[type, Callable[..., Any], Callable[..., Any]]:
    """Constants of torch by name, looked up in a table, not by getattr."""
    table = {str(v): v for v in vars(torch).values() if isinstance(v, cls)}
    return cls, str, lambda inner, _: table[inner]


_KINDS: dict[str, tuple[type, Callable[..., Any], Callable[..., Any]]] = {
    "node": (fx.Node, lambda node: node.name, lambda inner, nodes: nodes[inner]),
    "tuple": (tuple, lambda v: [encode(x) for x in v], lambda inner, nodes: tuple(decode(inner, nodes))),
    "float": (float, str, lambda inner, _: float(inner)),
    "complex": (complex, lambda z: [str(z.real), str(z.imag)], lambda inner, _: complex(*map(float, inner))),
    "device": (torch.device, str, lambda inner, _: torch.device(inner)),
    "dtype": _torch_constants(torch.dtype),
    "layout": _torch_constants(torch.layout),
    "memory_format": _torch_constants(torch.memory_format),
}
"""Arguments that are not JSON: their class, encoder and decoder."""


def _source_record(line: SourceLine | None) -> list[Any] | None:
    """File, line and function, without the directory, which is specific to this machine."""
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
        "lengths": None if (lengths := lengths_of(variable)) is None else lengths.name,
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
    """The program's assumptions about the sizes of feeds.

    They are saved because replaying the ops does not produce all of them: some come from Python code above the ops
    (cross_entropy compares the batches of input and label; a script may contain `if x.size(0) > 4`).
    """
    symbols = program.symbols
    sizes = {s: place for s, place in symbols.origin.items() if place[0] in program.all_feeds()}
    rules = []
    for assumption in symbols.assumptions:
        wanted = assumption.condition.free_symbols
        if not assumption.is_required or not wanted <= sizes.keys():
            continue  # assumptions of shape functions are made again when the program is loaded
        tracer = fx.Tracer()
        tracer.graph = fx.Graph()
        inputs = {s: tracer.graph.placeholder(f"s{i}") for i, s in enumerate(wanted)}
        proxy = sympy_interp(
            SizeArithmetic, {s: fx.Proxy(n, tracer) for s, n in inputs.items()}, assumption.condition
        )
        places = {node: sizes[symbol] for symbol, node in inputs.items()}
        rules.append({"holds": _expression(proxy.node, places), "source": _source_record(assumption.line)})
    return rules


def _expression(value: Any, places: dict[fx.Node, tuple[str, int]]) -> Any:
    if not isinstance(value, fx.Node):
        return encode(value)
    if value in places:
        return {"size": list(places[value])}
    return {"call": _target_name(value.target), "args": [_expression(a, places) for a in value.args]}


def _packed(constants: dict[str, torch.Tensor]) -> str:
    """Constants as a safetensors file in base64, embedded in the program so that the two cannot be mismatched."""
    plain = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in constants.items()
    }
    return base64.b64encode(safetensors.torch.save(plain)).decode("ascii")


# --- data to a program --------------------------------------------------------------------------------


def from_dict(data: dict[str, Any]) -> Program:
    """Load the data of `to_dict`; raises ProgramError for anything that `to_dict` would not have written."""
    try:
        return _load(data)
    except ArgosyError:
        raise
    except Exception as e:
        saved = data.get("torch") if isinstance(data, dict) else None
        raise ProgramError(
            f"the data (saved with torch {saved}, this is {torch.__version__}) is not a valid program: "
            f"{type(e).__name__}: {_first_line(e)}; save the program again"
        ) from e


def _load(data: dict[str, Any]) -> Program:
    _check_records(data["nodes"])
    _check_variables(data["variables"])
    program = Program(str(data["name"]))
    program.random_seed = int(data["random_seed"])
    program.recorder.has_history = False
    program.recorder.constants = safetensors.torch.load(base64.b64decode(data["constants"], validate=True))
    inputs: dict[str, torch.Tensor] = {}
    feeds: dict[str, torch.Tensor] = {}
    for record in data["variables"]:
        if record["placeholder"] is not None:
            dtype = decode({"dtype": record["dtype"]}, {})
            hint = {} if record.get("lengths") is None else {"first_hint": ROWS_HINT}
            fake = program.symbols.fake(record["name"], record["shape"], dtype, **hint)
            inputs[record["placeholder"]] = fake
            if record["kind"] == "feed":
                feeds[record["name"]] = fake
    _assume_rules(program, data["rules"], feeds)
    nodes: dict[str, fx.Node] = {}
    with program.replaying():
        for record in data["nodes"]:
            nodes[record["name"]] = _add_node(program, record, nodes, inputs)
    taken: set[int] = set()
    for record in data["variables"]:
        _add_variable(program, record, nodes, taken)
    _set_lengths(program, data["variables"])
    verify(program.graph, program.recorder.constants)
    check_saved(program.graph)
    _check_named(program)
    _add_periods(program, data.get("periods", []))
    program.touch()
    return program


def _add_periods(program: Program, records: list[dict[str, Any]]) -> None:
    """Add the periods, and check that they name variables of the program, and that no node has an unknown one."""
    for record in records:
        period = Period(**record)
        types = (str, str, int | str, int, str)
        values = dataclasses.astuple(period)
        if not all(isinstance(v, t) and v is not True for v, t in zip(values, types, strict=True)):
            raise ProgramError(f"the period {record} is malformed; save the program again")
        for name in period.variables():
            variable = program.persistables().get(name)
            if variable is None or variable.dtype != torch.int64 or variable.shape != (1,):
                raise ProgramError(
                    f"period {period.name!r}: {name!r} is not an int64 variable of the program"
                )
        if period.name in [known.name for known in program.training.periods] or period.begin_step < 0:
            raise ProgramError(f"period {period.name!r} is not unique, or begins at a negative step")
        if (isinstance(period.every, int) and period.every < 0) or isinstance(period.every, str) != bool(
            period.last
        ):
            raise ProgramError(
                f"period {period.name!r} is due every {period.every!r} steps, which is invalid"
            )
        program.training = program.training.with_period(period)
    known_names = {period.name for period in program.training.periods}
    for node in program.graph.nodes:
        if (name := node.meta.get("period", "").removeprefix("!")) and name not in known_names:
            raise ProgramError(f"node {node.name!r} runs in period {name!r}, which the program does not have")


def _check_records(nodes: list[dict[str, Any]]) -> None:
    """Check what needs no shapes, before any is computed: names, order, operators."""
    known: set[str] = set()
    for record in nodes:
        name, op = record["name"], record["op"]
        if op not in ("placeholder", "get_attr", "call_function") or record["role"] not in ROLES:
            raise ProgramError(
                f"node {name!r} is a {op!r} of role {record['role']!r}, which is invalid; save the program again"
            )
        if op == "call_function" and record["target"] == _BLOCKS:
            for block in record["blocks"]["blocks"]:
                _check_records(block["nodes"])
        elif op == "call_function":
            try:
                find_target(record["target"])
            except ProgramError as e:
                raise ProgramError(f"node {name!r}: {e}") from e
        for read in _names_in([record["args"], record["kwargs"]]):
            if read not in known:
                raise ProgramError(f"node {name!r} reads {read!r}, and no node before it has this name")
        if name in known:
            raise ProgramError(f"two nodes are named {name!r}; names must be unique")
        known.add(name)


def _check_variables(variables: list[dict[str, Any]]) -> None:
    """Check the type of every field, so that no later code fails on it."""
    for record in variables:
        for key, kind in _FIELDS.items():
            if not isinstance(record.get(key), kind):
                raise ProgramError(
                    f"variable {record.get('name')!r}: {key} is {record.get(key)!r}, not a {kind}"
                )
        if record["kind"] not in _VARIABLES:
            raise ProgramError(
                f"variable {record['name']!r} is a {record['kind']!r}; it must be one of {', '.join(_VARIABLES)}"
            )


def _names_in(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        if "node" in tree:
            yield tree["node"]
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _names_in(part)


def _assume_rules(program: Program, rules: list[dict[str, Any]], feeds: dict[str, torch.Tensor]) -> None:
    """Make the assumptions of the saved program."""

    def value(tree: Any) -> Any:
        if isinstance(tree, dict) and "size" in tree:
            feed, dim = tree["size"]
            return feeds[feed].shape[dim]
        if isinstance(tree, dict) and "call" in tree:
            return checked_number(_plain_function(tree["call"]), *map(value, tree["args"]))
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
    program: Program, record: dict[str, Any], nodes: dict[str, fx.Node], inputs: dict[str, torch.Tensor]
) -> fx.Node:
    name, op, role, line = record["name"], record["op"], record["role"], _source_line(record["source"])
    args = tuple(decode(a, nodes) for a in record["args"])
    kwargs = {key: decode(a, nodes) for key, a in record["kwargs"].items()}
    target: Any = _target(program, record, args) if op == "call_function" else str(record["target"])
    if op == "call_function":
        _check_call(name, target, args, kwargs)
    elif args or kwargs:
        raise ProgramError(f"node {name!r} is a {op} with arguments {args} {kwargs}; it takes none")
    marks = {key: _mark(name, key, decode(mark, nodes)) for key, mark in record["marks"].items()}
    meta = {**marks, "role": role, "source": line}
    if op == "call_function":
        try:
            if not isinstance(target, OpOverload | BlockCall) and target is not operator.getitem:
                checked_number(target, *(a.meta["val"] if isinstance(a, fx.Node) else a for a in args))
            node = program.recorder.replay(target, args, kwargs, meta, name)
            check_bytes(node.meta["val"])
        except ArgosyError as e:
            raise ProgramError(f"node {name!r} ({target}): {e}") from e
        except Exception as e:
            raise ProgramError(f"{name} cannot call {target}: {_first_line(e)}") from e
    else:
        node = program.graph.create_node(op, target, args, kwargs, name=name)
        value = inputs[name] if op == "placeholder" else _constant_value(program, node)
        node.meta = {**meta, "val": value}
        if isinstance(value, torch.Tensor):  # an input of a block may be a size
            if op == "placeholder":
                program.recorder.placeholder_of[value] = node
            program.recorder.bind(value, node)
    if node.name != name:
        raise ProgramError(
            f"node {name!r} became {node.name!r}: the name is not unique, or not a valid identifier"
        )
    return node


def _target(program: Program, record: dict[str, Any], args: tuple[Any, ...]) -> Any:
    if record["target"] != _BLOCKS:
        return find_target(record["target"])
    values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in args]
    return target_of(program, record["blocks"], values, _add_node)


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
        try:
            check_call(target, args, kwargs)
        except ProgramError as e:
            raise ProgramError(f"node {name!r}: {e}") from e
        return
    numbers = (fx.Node, bool, int, float)
    if isinstance(target, BlockCall):
        if kwargs or not all(isinstance(a, fx.Node | int) for a in args):
            raise ProgramError(f"node {name!r}: {target.name} with {args} {kwargs}; it takes nodes and sizes")
        return
    values = [a.meta.get("val") if isinstance(a, fx.Node) else a for a in args]
    if target is operator.getitem:
        allowed = len(args) == 2 and isinstance(values[0], tuple | list) and type(args[1]) is int
    else:
        allowed = all(isinstance(v, _NUMBERS) for v in values)
    if kwargs or not allowed or not all(isinstance(a, numbers) for a in args):
        raise ProgramError(
            f"node {name!r} calls {_PLAIN_NAMES[target]} with {args} {kwargs}; it takes nodes and numbers"
        )


def _add_variable(
    program: Program, record: dict[str, Any], nodes: dict[str, fx.Node], taken: set[int]
) -> None:
    name, node, kind = record["name"], nodes[record["node"]], record["kind"]
    placeholder = None if record["placeholder"] is None else nodes[record["placeholder"]]
    value = (placeholder or node).meta["val"]
    if not isinstance(value, torch.Tensor) or name in program.vars:
        raise ProgramError(f"variable {name!r} ({node.name}) is not a tensor, or its name is not unique")
    has_name = id(value) in taken or _is_second_item(program, value, node)
    if has_name:  # two names for one value: x and x.detach()
        with program.symbols.mode:
            value = value.detach()
        program.recorder.node_of[value] = node
    taken.add(id(value))
    variable: Variable
    if kind == "parameter":
        keys = ("learning_rate", "need_clip")
        settings = {key: record[key] for key in keys}
        variable = Parameter(program, name, value, trainable=not record["stop_gradient"], **settings)
        variable.is_distributed = record["is_distributed"]
    else:
        variable = Variable(program, name, value, stop_gradient=record["stop_gradient"])
        variable.is_data, variable.persistable = kind == "feed", kind == "state"
    if program.recorder.node(value) is not node:
        raise ProgramError(f"variable {name!r} is not the value of {node.name}; save the program again")
    _check_type(variable, record)
    program.add(variable)


def _set_lengths(program: Program, records: list[dict[str, Any]]) -> None:
    """Make variables ragged with the lengths that were saved for them."""
    for record in records:
        if record.get("lengths") is None:
            continue
        variable, lengths = program.vars[record["name"]], program.vars.get(record["lengths"])
        is_vector = lengths is not None and lengths.dtype is torch.int64 and lengths.ndim == 1
        if lengths is None or not is_vector or variable.shape[:1] != (-1,):
            raise ProgramError(
                f"variable {variable.name!r} has the lengths {record['lengths']!r}, which are not a vector of int64, "
                "or a known number of rows; save the program again"
            )
        set_lengths(program, variable.value.shape[0], lengths)


def _is_second_item(program: Program, value: torch.Tensor, node: fx.Node) -> bool:
    """True if another getitem node selects the same output: forward and backward may each have one."""
    other = program.recorder.node(value)
    is_item = node.target is operator.getitem and other.target is operator.getitem
    return is_item and other is not node and other.args == node.args


def _check_type(variable: Variable, record: dict[str, Any]) -> None:
    """Check that the replayed ops give the dtype and the known sizes that were saved."""
    known = [
        size if saved is None else saved for size, saved in zip(variable.shape, record["shape"], strict=True)
    ]
    if known != list(variable.shape) or str(variable.dtype) != record["dtype"]:
        raise ProgramError(
            f"variable {variable.name!r} was saved as {record['dtype']}{record['shape']} and is now "
            f"{variable.dtype}{list(variable.shape)}; load it with the torch that saved it"
        )


@functools.cache
def find_target(name: str) -> Any:
    """The operator or function of this name; raises ProgramError if a program may not call it."""
    if name in PLAIN:
        return PLAIN[name]
    match = _OP.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ProgramError(
            f"{name!r} is not an operator that a program may call; it must be aten.…, prims.… or argosy.… "
            f"with its overload, or one of {', '.join(PLAIN)}"
        )
    namespace, op, overload = match.groups()
    if namespace == "argosy" and not hasattr(torch.ops.argosy, op):
        _register_ops()
    target = getattr(getattr(getattr(torch.ops, namespace), op, None), overload, None)
    # Only ops with a dispatcher kernel: torch.ops also has TorchScript's, such as aten.save, which writes files.
    if not isinstance(target, OpOverload) or not torch._C._dispatch_has_kernel(target._name):
        raise ProgramError(
            f"torch {torch.__version__} and this Argosy have no operator {name!r}; save with this version"
        )
    check_op(name)
    return target


def _plain_function(name: str) -> Callable[..., Any]:
    if name not in PLAIN:
        raise ProgramError(f"{name!r} is not a function on sizes; it must be one of {', '.join(PLAIN)}")
    return PLAIN[name]


def _register_ops() -> None:
    """Import all of Argosy's ops: a process that only loads programs has not imported them yet."""
    for module in pkgutil.iter_modules(argosy.engine.ops.__path__):
        importlib.import_module(f"{argosy.engine.ops.__name__}.{module.name}")


def _encoded_mark(name: str, key: str, value: Any) -> Any:
    encoded = encode(value)
    _mark(name, key, value)  # reject when saving what loading would reject
    return encoded


def _mark(name: str, key: str, value: Any) -> Any:
    if key not in MARKS or not isinstance(value, MARKS[key]):
        known = ", ".join(f"{mark} ({kind.__name__})" for mark, kind in MARKS.items())
        raise ProgramError(f"node {name!r} has the mark {key!r}: {value!r}; valid marks are {known}")
    return value


def _check_named(program: Program) -> None:
    """Check that every placeholder has a variable, by whose name the executor looks its value up."""
    named = {program.recorder.placeholder_of.get(v.value) for v in program.vars.values()}
    for node in program.graph.find_nodes(op="placeholder"):
        if node not in named:
            raise ProgramError(f"placeholder {node.name!r} belongs to no variable; save the program again")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _source_line(record: list[Any] | None) -> SourceLine | None:
    return None if record is None else SourceLine(str(record[0]), int(record[1]), str(record[2]))
