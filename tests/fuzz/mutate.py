"""Changes to saved models: of their bytes, and of the decoded form, which is sealed again with a right checksum."""

# SPDX-License-Identifier: Apache-2.0
import base64
import copy
import functools
import json
from collections.abc import Callable
from random import Random
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch._ops import OpOverload

from argosy.engine.ir import allowed_ops
from argosy.engine.ir.serialize import PLAIN, find_target
from argosy.engine.ops.op_spec import OpSpec
from argosy.engine.runtime import atomic_files
from tests.fuzz.seeds import Content

INTS = [-1, 0, 1, 2, 3, 7, 64, 1000, 2**20, 2**31, 2**40, 2**62, 2**63, -(2**63), 10**30, -2, -3]
FLOATS: list[Any] = [0.0, -1.0, 0.5, 1e30, {"float": "nan"}, {"float": "inf"}, {"float": "-inf"}]
WORDS = [
    "",
    "x",
    "sum",
    "mean",
    "max",
    "relu",
    "none",
    "gelu",
    "constant",
    "lstm",
    "dp",
    "\0",
    "é",
    "A" * 1000,
]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64", "int8"]
JUNK: list[Any] = [
    *INTS,
    *FLOATS,
    *WORDS,
    None,
    True,
    False,
    [],
    {},
    [[]],
    [1, 2],
    {"node": "x"},
    {"tuple": [1]},
]
JUNK += [{"dtype": f"torch.{name}"} for name in DTYPES]
JUNK += [{"device": "cuda:0"}, {"device": "meta"}, {"layout": "torch.sparse_coo"}, {"complex": ["1", "nan"]}]
JUNK += [{"memory_format": "torch.channels_last"}, {"unknown": 1}, {"node": "missing"}]


def mutated(contents: list[Content], random: Random) -> bytes:
    """The bytes of a model with one to four changes."""
    content = copy.deepcopy(random.choices(contents, [1 / len(c["program"]["nodes"]) for c in contents])[0])
    if random.random() < 0.5:
        return changed_bytes(atomic_files.seal(content), random)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        try:
            random.choice(_CHANGES)(content, random)
        except (LookupError, TypeError, AttributeError, ValueError, safetensors.SafetensorError):
            continue  # an earlier change has taken away what this one wanted to change
    return _sealed(content)


def _sealed(content: Any) -> bytes:
    try:
        return atomic_files.seal(content)
    except (ValueError, UnicodeEncodeError):
        return json.dumps(content).encode()


def changed_bytes(data: bytes, random: Random) -> bytes:
    """Cut, doubled, flipped, or with bytes less or more."""
    kind, at = random.randrange(5), random.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data + data[:at]
    if kind == 2:
        return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]
    if kind == 3:
        end = min(len(data), at + random.randrange(64))
        return data[:at] + data[end:]
    return data[:at] + random.randbytes(random.randrange(1, 9)) + data[at:]


# --- the decoded form ---------------------------------------------------------------------------------


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a tree."""
    places = []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, inner in items:
        places.append((tree, key))
        places.extend(_places(inner))
    return places


def _junk_anywhere(content: Content, random: Random) -> None:
    container, key = random.choice(_places(content))
    container[key] = copy.deepcopy(random.choice(JUNK))


def _junk_argument(content: Content, random: Random) -> None:
    node = _call(content, random)
    container, key = random.choice(_places({"args": node["args"], "kwargs": node["kwargs"]})[1:])
    old = container[key]
    choices = (
        INTS if type(old) is int else FLOATS if type(old) is float else WORDS if type(old) is str else JUNK
    )
    container[key] = copy.deepcopy(random.choice(choices))


def _other_node(content: Content, random: Random) -> None:
    node = _call(content, random)
    places = [(c, k) for c, k in _places([node["args"], node["kwargs"]]) if k == "node"]
    container, key = random.choice(places)
    container[key] = random.choice(content["program"]["nodes"])["name"]


def _other_target(content: Content, random: Random) -> None:
    _call(content, random)["target"] = random.choice([*_targets(), *PLAIN, *_any_op()])


def _new_call(content: Content, random: Random) -> None:
    """A call of any allowed op, with arguments of the kinds that its schema wants, whose result is fetched."""
    nodes = content["program"]["nodes"]
    target: OpOverload = find_target(random.choice(_targets()))
    place = random.randrange(1, len(nodes) + 1)
    names = [{"node": node["name"]} for node in nodes[:place]]
    args, kwargs = [], {}
    for argument in target._schema.arguments:
        if argument.has_default_value() and random.random() < 0.5:
            if argument.kwarg_only:
                continue
            break
        value = _of_kind(str(argument.type), names, random)
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    name = f"fuzzed_{len(nodes)}"
    record = {**nodes[place - 1], "name": name, "op": "call_function", "target": str(target), "marks": {}}
    nodes.insert(place, {**record, "args": args, "kwargs": kwargs})
    kinds = [str(one.type) for one in target._schema.returns]
    if len(kinds) > 1 and kinds[0] == "Tensor":
        nodes.insert(place + 1, {**record, "name": f"{name}_0", "target": "operator.getitem", "kwargs": {}})
        nodes[place + 1]["args"] = [{"node": name}, 0]
        name = f"{name}_0"
    # Read by an addition into what is fetched, so that it runs: the shape of its result is unknown here.
    nodes.append({**record, "name": f"{name}_sum", "target": "aten.sum.default", "args": [{"node": name}]})
    nodes[-1]["kwargs"] = {}
    last: dict[str, Any] = {
        "name": f"{name}_sum",
        "kind": "value",
        "node": f"{name}_sum",
        "placeholder": None,
        "shape": [],
    }
    last |= {"dtype": random.choice(("torch.float32", "torch.float32", "torch.int64")), "lengths": None}
    content["program"]["variables"].append({**last, "stop_gradient": False})
    content["fetches"].append(last["name"])


def _of_kind(kind: str, nodes: list[Any], random: Random) -> Any:
    small = random.choice([*range(-2, 8), random.choice(INTS)])
    if kind.startswith("Optional["):
        return None if random.random() < 0.5 else _of_kind(kind[9:-1], nodes, random)
    if kind.startswith("List["):
        return [_of_kind(kind[5:-1], nodes, random) for _ in range(random.randrange(4))]
    if kind == "Tensor":
        return copy.deepcopy(random.choice(nodes))
    choices: dict[str, list[Any]] = {
        "int": [small],
        "SymInt": [small],
        "float": [1.0, 0.5, small, *FLOATS],
        "number": [1.0, 0.5, small, *FLOATS],
        "bool": [False, True],
        "str": WORDS,
    }
    return copy.deepcopy(random.choice(choices.get(kind, [None] * 9 + JUNK[-3:])))


def _order(content: Content, random: Random) -> None:
    nodes = content["program"]["nodes"]
    a, b = random.randrange(len(nodes)), random.randrange(len(nodes))
    kind = random.randrange(4)
    if kind == 0:
        nodes[a], nodes[b] = nodes[b], nodes[a]
    elif kind == 1:
        nodes.insert(b, nodes.pop(a))
    elif kind == 2:
        del nodes[a]
    else:
        nodes.insert(b, {**copy.deepcopy(nodes[a]), "name": random.choice(("copied", nodes[b]["name"]))})


def _variable(content: Content, random: Random) -> None:
    variable = random.choice(content["program"]["variables"])
    kind = random.randrange(4)
    if kind == 0:
        variable["shape"][random.randrange(len(variable["shape"]))] = random.choice([None, *INTS])
    elif kind == 1:
        variable["shape"] = [random.choice([None, 0, 1, 2, 3, 5]) for _ in range(random.randrange(6))]
    elif kind == 2:
        variable["dtype"] = f"torch.{random.choice(DTYPES)}"
    else:
        variable["kind"] = random.choice(("feed", "state", "parameter", "value", "nothing"))


def _input(content: Content, random: Random) -> None:
    """Another shape or dtype of something that is fed or kept: all that follows has other shapes too."""
    chosen = random.choice([v for v in content["program"]["variables"] if v["placeholder"] is not None])
    if random.random() < 0.3:
        chosen["dtype"] = f"torch.{random.choice(DTYPES)}"
    else:
        chosen["shape"] = [random.choice([None, 0, 1, 2, 3, 5, 64]) for _ in chosen["shape"]][
            random.randrange(2) :
        ]
    content["program"]["variables"] = [
        v for v in content["program"]["variables"] if v["placeholder"] is not None
    ]
    nodes = [n["name"] for n in content["program"]["nodes"] if n["op"] == "call_function"]
    content["watched"] = nodes  # values whose shapes the file does not say: the child fetches them


def _constants(content: Content, random: Random) -> None:
    program = content["program"]
    tensors = safetensors.torch.load(base64.b64decode(program["constants"]))
    name = random.choice([*tensors, "constant_0"])
    shape = [random.choice((0, 1, 2, 3, 5)) for _ in range(random.randrange(4))]
    dtype = getattr(torch, random.choice(("float32", "int64", "bool", "float64")))
    values = [random.randrange(-3, 9) for _ in range(torch.Size(shape).numel())]
    tensors[name] = torch.tensor(values, dtype=dtype).reshape(shape)
    program["constants"] = base64.b64encode(safetensors.torch.save(tensors)).decode()


def _rule(content: Content, random: Random) -> None:
    feed = random.choice(content["feeds"])
    tree: Any = {"size": [feed, random.randrange(3)]}
    for _ in range(random.randrange(1, 6)):
        other = copy.deepcopy(
            random.choice([{"size": [feed, 0]}, random.choice(INTS), random.choice(FLOATS)])
        )
        tree = {"call": random.choice(list(PLAIN)), "args": [tree, other][: random.choice((1, 2, 2))]}
    content["program"]["rules"].append({"holds": tree, "source": None})


def _call(content: Content, random: Random) -> dict[str, Any]:
    chosen: dict[str, Any] = random.choice(
        [n for n in content["program"]["nodes"] if n["op"] == "call_function"]
    )
    return chosen


@functools.cache
def _targets() -> tuple[str, ...]:
    find_target("argosy.wait.default")  # now all ops of ours are registered
    argosy_ops = sorted(str(op) for op in OpSpec.known)
    listed = allowed_ops.LIST.read_text().split()
    names = [n for n in (*listed, *argosy_ops * 5) if n.rsplit(".", 1)[0] not in allowed_ops.REJECTED]
    return tuple(names)


@functools.cache
def _any_op() -> tuple[str, ...]:
    """Also what may not be called."""
    registered = torch._C._dispatch_get_all_op_names()
    return tuple(
        sorted(
            f"aten.{name[6:]}.default" for name in registered if name.startswith("aten::") and "." not in name
        )
    )


_CHANGES: list[Callable[[Content, Random], None]] = [
    _junk_anywhere,
    _junk_argument,
    _junk_argument,
    _other_node,
    _other_node,
    _other_target,
    _new_call,
    _new_call,
    _new_call,
    _order,
    _variable,
    _input,
    _input,
    _constants,
    _rule,
]
