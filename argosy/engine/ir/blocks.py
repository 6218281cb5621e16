"""Blocks: the sub-graphs of branches and loops, and the targets of the nodes that run them.

    out = cond(pred, x, w)          target: Branch with two blocks; the inputs are those of both
        true:   mm(x, w)            each block is a graph of its own, with a placeholder for each input
        false:  mul(x, 2)

A node with blocks is pure: it mutates none of its inputs, and its results are new contiguous tensors that alias
nothing. So passes treat it as one op, and never look inside. What a block reads of the enclosing program is an input of
the node, and is made contiguous, so that the strides inside do not depend on passes outside.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from argosy.engine.ir.shape_functions import fake_result

BlockFunction = Callable[..., Sequence[Any]]
"""Runs a block: takes its inputs, returns its outputs."""


@dataclass(eq=False)
class Block:
    """A sub-graph: placeholders, then calls. It has no constants: those of the program are inputs."""

    graph: fx.Graph
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]

    @property
    def nodes(self) -> list[fx.Node]:
        """Its calls, in order."""
        return [node for node in self.graph.nodes if node.op == "call_function"]

    def run(self, *values: Any) -> list[Any]:
        """Run node by node, on fake or on real tensors."""
        known = dict(zip(self.inputs, values, strict=True))
        mode = next((v.fake_mode for v in tree_leaves(values) if isinstance(v, FakeTensor)), None)
        for node in self.nodes:
            args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
            if mode is None:
                known[node] = node.target(*args, **kwargs)  # type: ignore[operator]  # an op, or operator.getitem
            else:
                known[node] = fake_result(node.target, args, kwargs, mode)
        return [known[node] for node in self.outputs]

    def refreshed(self, values: Sequence[Any]) -> Block:
        """A copy whose nodes have the values that these inputs give: fake tensors, as in another program."""
        copied, _ = self.copy()
        mode = next(v.fake_mode for v in tree_leaves(values) if isinstance(v, FakeTensor))
        for node, value in zip(copied.inputs, values, strict=True):
            node.meta["val"] = value
        for node in copied.nodes:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            if isinstance(node.target, BlockCall):
                node.target = node.target.refreshed(args)
            node.meta["val"] = fake_result(node.target, args, kwargs, mode)
        return copied

    def copy(self) -> tuple[Block, dict[fx.Node, fx.Node]]:
        """A copy, and its nodes by those of this block."""
        graph = fx.Graph()
        node_map: dict[fx.Node, fx.Node] = {}
        for node in self.graph.nodes:
            node_map[node] = graph.node_copy(node, node_map.__getitem__)  # its meta is a copy
        inputs, outputs = ([node_map[n] for n in nodes] for nodes in (self.inputs, self.outputs))
        return Block(graph, tuple(inputs), tuple(outputs)), node_map


@dataclass(frozen=True, eq=False)
class BlockCall:
    """The target of a node that runs blocks."""

    name: str
    """cond, while, …: for printing."""
    blocks: tuple[Block, ...]

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def is_random(self) -> bool:
        """True if a block draws random numbers from the generator of the process."""
        return True

    def labels(self) -> tuple[str, ...]:
        """A word for each block, for printing."""
        raise NotImplementedError(f"{type(self).__name__} has no labels; define them")

    def inputs(self, args: Sequence[Any]) -> Sequence[Any]:
        """Those of a node's arguments that its blocks get."""
        return args

    def refreshed(self, args: Sequence[Any]) -> Self:
        """The same for other fake tensors: blocks whose nodes have the values that these arguments give."""
        values = [_plain_fake(value) for value in self.inputs(args)]
        return self.with_blocks([block.refreshed(values) for block in self.blocks])

    def with_blocks(self, blocks: Sequence[Block]) -> Self:
        """The same with other blocks."""
        return replace(self, blocks=tuple(blocks))

    def execute(self, functions: Sequence[BlockFunction], args: Sequence[Any]) -> Sequence[Any]:
        """Run with these functions of the blocks."""
        raise NotImplementedError(f"{type(self).__name__} cannot be executed; define it")

    def infer(self, args: Sequence[Any]) -> Sequence[Any]:
        """The results for fake tensors."""
        raise NotImplementedError(f"{type(self).__name__} has no shape inference; define it")

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        if any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(args)):
            return tuple(self.infer([_plain_fake(value) for value in args]))
        return tuple(self.execute([block.run for block in self.blocks], args))


@dataclass(frozen=True, eq=False)
class Branch(BlockCall):
    """Runs the first block if the first argument is true, else the second; a single block has no condition.

    `saves_state`: its last result is the state of the random generator before it runs; `takes_state`: it draws its
    random numbers from that state, its first argument after the condition, so that backward repeats forward's.
    """

    saves_state: bool = False
    takes_state: bool = False

    @property
    def is_random(self) -> bool:
        return not self.takes_state

    def labels(self) -> tuple[str, ...]:
        return ("true", "false") if len(self.blocks) > 1 else ("step",)

    def inputs(self, args: Sequence[Any]) -> Sequence[Any]:
        return args[int(len(self.blocks) > 1) + int(self.takes_state) :]

    def execute(self, functions: Sequence[BlockFunction], args: Sequence[Any]) -> Sequence[Any]:
        rest = list(args)
        function = functions[0] if len(functions) == 1 or bool(rest.pop(0)) else functions[1]
        device = next((v.device for v in rest if isinstance(v, torch.Tensor)), torch.device("cpu"))
        if self.takes_state:
            with _generator_at(rest.pop(0), device):
                return tuple(function(*map(plain, rest)))
        if self.saves_state:
            state = _generator_state(device)
            return *function(*map(plain, rest)), state
        return tuple(function(*map(plain, rest)))

    def infer(self, args: Sequence[Any]) -> Sequence[Any]:
        results = [block.run(*self.inputs(args)) for block in self.blocks]
        for other in results[1:]:
            _check_same(self.name, results[0], other)
        state = [new_state()] if self.saves_state else []
        return [*results[0], *state]


@dataclass(frozen=True, eq=False)
class Loop(BlockCall):
    """Runs its block while the first carried value is true.

    Arguments: the carried values, then what else the block reads. The block returns the carried values of the next
    iteration.
    """

    num_carried: int = 0

    def labels(self) -> tuple[str, ...]:
        return ("body",)

    def execute(self, functions: Sequence[BlockFunction], args: Sequence[Any]) -> Sequence[Any]:
        values = [plain(value) for value in args]
        carried, captured = values[: self.num_carried], values[self.num_carried :]
        first = carried
        while bool(carried[0]):
            carried = list(functions[0](*carried, *captured))
        return [_copied(value) for value in carried] if carried is first else carried

    def infer(self, args: Sequence[Any]) -> Sequence[Any]:
        _check_same(self.name, args[: self.num_carried], self.blocks[0].run(*args))
        return [_plain_fake(value) for value in args[: self.num_carried]]


@dataclass(frozen=True, eq=False)
class LoopGradient(BlockCall):
    """The gradients of a Loop: runs it again, storing the carried values, and then its derivative in reverse.

    Arguments: those of the loop, then the gradients of its results `seeded`. The second block takes the same, for one
    iteration, and returns the gradients of the carried values `seeded`, then of the inputs `wanted`.
    """

    num_carried: int = 0
    seeded: tuple[int, ...] = ()
    wanted: tuple[int, ...] = field(default=())

    def labels(self) -> tuple[str, ...]:
        return "body", "derivative"

    def execute(self, functions: Sequence[BlockFunction], args: Sequence[Any]) -> Sequence[Any]:
        values = [plain(value) for value in args]
        end = len(values) - len(self.seeded)
        captured, gradients = values[self.num_carried : end], values[end:]
        states = [values[: self.num_carried]]
        while bool(states[-1][0]):
            states.append(list(functions[0](*states[-1], *captured, *gradients)))
        totals = [torch.zeros_like(values[place]) for place in self.wanted]
        for state in reversed(states[:-1]):
            results = functions[1](*state, *captured, *gradients)
            gradients = list(results[: len(self.seeded)])
            totals = [a + b for a, b in zip(totals, results[len(self.seeded) :], strict=True)]
        is_untouched = len(states) == 1  # the gradients are inputs: copy them
        return [*(map(_copied, gradients) if is_untouched else gradients), *totals]

    def infer(self, args: Sequence[Any]) -> Sequence[Any]:
        places = (*self.seeded, *self.wanted)
        _check_same(self.name, [args[place] for place in places], self.blocks[1].run(*args))
        return [_plain_fake(args[place]) for place in places]


def plain(value: Any) -> Any:
    """An input of a block: a contiguous tensor."""
    return value.contiguous() if isinstance(value, torch.Tensor) else value


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else list(value)


def _plain_fake(value: Any) -> Any:
    """A new contiguous fake tensor of the same type; asking a symbolic one for its strides would add assumptions."""
    if isinstance(value, torch.Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device=value.device)
    return value


def _check_same(name: str, expected: Sequence[Any], computed: Sequence[Any]) -> None:
    for number, (first, other) in enumerate(zip(expected, computed, strict=True)):
        # As text: comparing symbolic sizes would add assumptions.
        texts = [f"{v.dtype}{[str(s) for s in v.shape]}" for v in (first, other)]
        if texts[0] != texts[1]:
            raise ValueError(
                f"{name}: result {number} is {texts[0]} in one block, and {texts[1]} in the other"
            )


def new_state() -> torch.Tensor:
    """A tensor for the state of the random generator of the CPU."""
    return torch.empty(5056, dtype=torch.uint8)


def _generator_state(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


@contextmanager
def _generator_at(state: torch.Tensor, device: torch.device) -> Iterator[None]:
    """Draw random numbers from this state inside, and from the present one afterwards."""
    restore = torch.set_rng_state if device.type == "cpu" else lambda s: torch.cuda.set_rng_state(s, device)
    before = _generator_state(device)
    restore(state)
    try:
        yield
    finally:
        restore(before)


def blocks_of(node: fx.Node) -> tuple[Block, ...]:
    """The blocks that a node runs; none for an ordinary op."""
    return node.target.blocks if isinstance(node.target, BlockCall) else ()
