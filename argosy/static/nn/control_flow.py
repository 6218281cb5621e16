"""Branches and loops: code that runs depending on values of the step.

    out = cond(mean(x) > 0, lambda: fc(x, 4), lambda: x[:, :4])
    i, total = while_loop(lambda i, total: i < n, lambda i, total: [i + 1, total + x], [i, total])

A function is called once, while the program is built, and its ops are recorded into a block (engine/ir/blocks.py). Both
branches, and every iteration of a loop, return the same structure, dtypes and shapes.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.block_recorder import BlockRecorder, recording_block
from argosy.engine.ir.control_flow import add_branches, add_while
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.program import Program
from argosy.engine.ir.record import wrap
from argosy.engine.ir.variable import Variable
from argosy.tensor import creation, logic

Function = Callable[[], Any]


def cond(
    pred: Variable,
    true_fn: Function | None = None,
    false_fn: Function | None = None,
    name: str | None = None,
    return_names: Any = None,
) -> Any:
    """What `true_fn()` returns if `pred` is true, else what `false_fn()` returns; a missing function returns None."""
    check_condition("cond", pred)
    functions = []
    for what, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        if function is not None and not callable(function):
            raise ConfigError(f"cond: {what} is {function!r}; use a function without arguments")
        functions.append((what, function or _nothing))
    return _branch("cond", pred, functions, name)


def case(
    pred_fn_pairs: Sequence[tuple[Variable, Function]],
    default: Function | None = None,
    name: str | None = None,
) -> Any:
    """The result of the first function whose condition is true; else of `default`, by default the last function."""
    pairs = _pairs("case", pred_fn_pairs)
    for condition, _ in pairs:
        check_condition("case", condition)
    last = default or pairs[-1][1]
    return _chain("case", pairs if default else pairs[:-1], last, name)


def switch_case(
    branch_index: Variable, branch_fns: Any, default: Function | None = None, name: str | None = None
) -> Any:
    """The result of the function with this index; else of `default`, by default the one with the largest index.

    `branch_fns`: a dict, or a list of functions or of (index, function) pairs.
    """
    if not isinstance(branch_index, Variable) or branch_index.dtype not in (
        torch.uint8,
        torch.int32,
        torch.int64,
    ):
        raise ConfigError(
            f"switch_case: branch_index is {branch_index!r}; use an int Variable of one element"
        )
    items = list(branch_fns.items()) if isinstance(branch_fns, dict) else list(branch_fns)
    items = list(enumerate(items)) if all(map(callable, items)) else items
    pairs = sorted(_pairs("switch_case", items), key=lambda pair: int(pair[0]))
    indices = [index for index, _ in pairs]
    if len(set(indices)) < len(indices) or not all(type(index) is int for index in indices):
        raise ConfigError(f"switch_case: the indices are {indices}; use distinct integers")
    last = default or pairs[-1][1]
    chosen = [(logic.equal(branch_index, i), f) for i, f in (pairs if default else pairs[:-1])]
    return _chain("switch_case", chosen, last, name)


def while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    is_test: bool = False,
    name: str | None = None,
) -> Any:
    """Run `loop_vars = body(*loop_vars)` while `cond(*loop_vars)` is true; returns the last ones, as a list.

    The given variables keep their values.
    """
    if not callable(cond) or not callable(body):
        raise ConfigError(
            f"while_loop: cond is {cond!r} and body is {body!r}; use functions of the loop_vars"
        )
    if not isinstance(loop_vars, list | tuple) or not loop_vars:
        raise ConfigError(f"while_loop: loop_vars is {loop_vars!r}; use a list of Variables")
    given, spec = _flatten("while_loop: loop_vars", list(loop_vars))
    first = _distinct(given)
    program = first[0].program
    condition = cond(*tree_unflatten(first, spec))
    check_condition("while_loop: cond()", condition)
    *_, condition = _distinct([*first, condition])
    with recording_block(program, in_loop=True) as block:
        out = body(*tree_unflatten(first, spec))
        is_single = len(loop_vars) == 1 and not (isinstance(out, list | tuple) and len(out) == 1)
        results, out_spec = _flatten("while_loop: body()", [out] if is_single else _listed(out))
        if out_spec != spec:
            raise ConfigError(
                f"while_loop: body() returns {_shown(out)}, and loop_vars is {_shown(list(loop_vars))}; the "
                "structure must be the same"
            )
        values = [block.local(result.value) for result in results]
        for variable, value in zip(first, values, strict=True):
            block.write(variable, value)
        again = cond(*tree_unflatten(first, spec))
        check_condition("while_loop: cond()", again)
        after = block.local(again.value)
    last = add_while(program, "while", (condition, after), first, block)
    layer = name or names.generate("while")
    return list(tree_unflatten([wrap(program, value, layer) for value in last], spec))


def check_condition(what: str, condition: Any) -> None:
    """Raise ConfigError unless it is a bool Variable of one element."""
    if isinstance(condition, Variable) and condition.dtype is torch.bool and set(condition.shape) <= {1}:
        return
    raise ConfigError(
        f"{what}: the condition is {condition!r}; use a bool Variable of one element, such as layers.less_than(i, n)"
    )


# --- branches -----------------------------------------------------------------------------------------


def _nothing() -> None:
    return None


def _pairs(what: str, pairs: Any) -> list[tuple[Any, Function]]:
    if not isinstance(pairs, list | tuple) or not pairs:
        raise ConfigError(f"{what} was given {pairs!r}; use a list of pairs, at least one")
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not callable(pair[1]):
            raise ConfigError(f"{what}: {pair!r} is not a pair of a condition or an index, and a function")
    return [(key, function) for key, function in pairs]


def _chain(what: str, pairs: Sequence[tuple[Variable, Function]], last: Function, name: str | None) -> Any:
    """if a: f() elif b: g() … else: last(), as nested branches."""
    if not pairs:
        return last()
    (condition, function), *rest = pairs
    others = last if not rest else lambda: _chain(what, rest, last, None)
    label = getattr(function, "__name__", "the first function")
    return _branch(what, condition, [(label, function), ("the others", others)], name)


def _branch(
    what: str, condition: Variable, functions: Sequence[tuple[str, Function]], name: str | None
) -> Any:
    program = condition.program
    blocks, trees, specs = [], [], []
    for where, function in functions:
        block, tree, results, spec = _recorded(program, f"{what}: {where}", function)
        blocks.append((where, block, results))
        trees.append(tree)
        specs.append(spec)
    if specs[0] != specs[1]:
        raise ConfigError(
            f"{what}: {functions[0][0]} returns {_shown(trees[0])}, and {functions[1][0]} returns "
            f"{_shown(trees[1])}; the structure must be the same"
        )
    outputs = add_branches(program, what, condition, blocks)
    layer = name or names.generate(what)
    return (
        None
        if trees[0] is None
        else tree_unflatten([wrap(program, value, layer) for value in outputs], specs[0])
    )


def _recorded(
    program: Program, what: str, function: Function
) -> tuple[BlockRecorder, Any, list[torch.Tensor], TreeSpec]:
    with recording_block(program) as block:
        tree = function()
        results, spec = _flatten(f"{what}()", {} if tree is None else tree)
        return block, tree, [block.local(program.check_owner(v).value) for v in results], spec


# --- structures ---------------------------------------------------------------------------------------


def _listed(tree: Any) -> list[Any]:
    return list(tree) if isinstance(tree, list | tuple) else [tree]


def _flatten(what: str, tree: Any) -> tuple[list[Variable], TreeSpec]:
    """The Variables of nested lists, tuples and dicts; a tuple counts as a list."""
    leaves, spec = tree_flatten(_as_lists(tree))
    for leaf in leaves:
        if not isinstance(leaf, Variable):
            raise ConfigError(f"{what} has {leaf!r}; use Variables, or lists, tuples and dicts of them")
    return leaves, spec


def _as_lists(tree: Any) -> Any:
    if isinstance(tree, list | tuple):
        return [_as_lists(part) for part in tree]
    return {key: _as_lists(part) for key, part in tree.items()} if isinstance(tree, dict) else tree


def _distinct(variables: Sequence[Variable]) -> list[Variable]:
    """The variables, with a copy for each that has the value of an earlier one."""
    seen: set[int] = set()
    distinct = []
    for variable in variables:
        distinct.append(creation.assign(variable) if id(variable.value) in seen else variable)
        seen.add(id(variable.value))
    return distinct


def _shown(tree: Any) -> str:
    if isinstance(tree, Variable):
        return f"{dtype_name(tree.dtype)}{list(tree.shape)}"
    if isinstance(tree, list | tuple):
        return f"[{', '.join(map(_shown, tree))}]"
    if isinstance(tree, dict):
        return f"{{{', '.join(f'{key!r}: {_shown(part)}' for key, part in tree.items())}}}"
    return repr(tree)
