"""StaticRNN of Paddle 1.x: a step of a recurrent network, which is run for each element of a sequence.

    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(words)                        words [T, N, D], word [N, D]
        previous = rnn.memory(shape=[-1, 16], batch_ref=word)
        hidden = fluid.layers.fc([word, previous], 16, act="tanh")
        rnn.update_memory(previous, hidden)
        rnn.step_output(hidden)
    hidden = rnn()                                          [T, N, 16]

The program has one node for each of the T steps, which all run the same block.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.block_assembly import recorded
from argosy.engine.ir.block_calls import add_steps
from argosy.engine.ir.block_recorder import BlockRecorder, outside_of_block, recording_block
from argosy.engine.ir.control_flow import check_same_type
from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.record import wrap
from argosy.engine.ir.variable import Variable
from argosy.tensor import creation


class StaticRNN:
    """See the module's picture. The length of the sequence must be known while the program is built."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or names.generate("static_rnn")
        self._program: Program | None = None
        self._block: BlockRecorder | None = None
        self._inputs: list[tuple[Variable, Variable]] = []  # an element, and its sequence
        self._memories: list[Variable] = []
        self._updates: dict[int, Variable] = {}  # id of a memory -> its value in the next step
        self._outputs: list[Variable] = []
        self._results: list[Variable] | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """What is called inside is run for each element."""
        if self._block is not None:
            raise ConfigError("StaticRNN.step is called a second time; create another StaticRNN")
        self._program = default_main_program()
        with recording_block(self._program, in_loop=True) as self._block:
            yield
            values = self._finish()
        self._run(values)

    def step_input(self, x: Variable) -> Variable:
        """The element of a sequence [T, …] in this step."""
        block = self._check_inside("step_input")
        if x.ndim == 0 or x.shape[0] < 0:
            raise ConfigError(
                f"StaticRNN.step_input: the length of {x!r} is unknown; give it in static.data, or use "
                "paddle.static.nn.while_loop"
            )
        if self._inputs and self._inputs[0][1].shape[0] != x.shape[0]:
            raise ConfigError(
                f"StaticRNN.step_input: {x!r} and {self._inputs[0][1]!r} have different lengths"
            )
        with outside_of_block(x.program, block):
            element: Variable = x[0]
        self._inputs.append((element, x))
        return element

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """A value that a step leaves for the next one: `init`, or `init_value` in this shape, in the first step."""
        block = self._check_inside("memory")
        if init is None and (shape is None or batch_ref is None):
            raise ConfigError("StaticRNN.memory: give init, or shape and batch_ref")
        program = _program_of(self)
        with outside_of_block(program, block):
            first: Variable
            if init is not None:
                first = creation.assign(init)
            else:
                sizes: list[Any] = list(shape or ())
                whole = next((x for element, x in self._inputs if element is batch_ref), batch_ref)
                assert whole is not None, "checked above"
                sizes[init_batch_dim_idx] = whole.size(ref_batch_dim_idx)
                first = creation.full(sizes, init_value, "float32")
        self._memories.append(first)
        return first

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Let `var` be the memory in the next step."""
        self._check_inside("update_memory")
        if all(mem is not memory for memory in self._memories):
            raise ConfigError(f"StaticRNN.update_memory: {mem!r} was not returned by memory()")
        self._updates[id(mem)] = var

    def step_output(self, o: Variable) -> None:
        """Make a value of each step a result."""
        self._check_inside("step_output")
        self._outputs.append(o)

    def output(self, *outputs: Variable) -> None:
        """Make values of each step results."""
        for value in outputs:
            self.step_output(value)

    def __call__(self) -> Any:
        """The results of all steps [T, …]: a Variable, or a list if there are several."""
        if self._results is None:
            raise ConfigError(
                "StaticRNN is called before its step is complete; call it after `with rnn.step():`"
            )
        return self._results[0] if len(self._results) == 1 else self._results

    def _check_inside(self, what: str) -> BlockRecorder:
        if self._block is None or self._results is not None:
            raise ConfigError(f"StaticRNN.{what} is called outside of `with rnn.step():`")
        return self._block

    def _finish(self) -> list[torch.Tensor]:
        block = self._check_inside("step")
        if not self._inputs or not self._outputs:
            raise ConfigError("StaticRNN: its step needs a step_input and an output")
        missing = [memory for memory in self._memories if id(memory) not in self._updates]
        if missing:
            raise ConfigError(f"StaticRNN: {missing[0]!r} is never updated; call update_memory")
        if block.written:
            variable, _ = next(iter(block.written.values()))
            raise ConfigError(f"StaticRNN: its step writes to {variable.name!r}; use a memory")
        updates = [block.local(self._updates[id(memory)].value) for memory in self._memories]
        for memory, value in zip(self._memories, updates, strict=True):
            check_same_type("StaticRNN: a memory", memory.value, value, "before", "after a step")
        return [*(block.local(out.value) for out in self._outputs), *updates]

    def _run(self, values: list[torch.Tensor]) -> None:
        program, block, count = _program_of(self), self._check_inside("step"), len(self._outputs)
        part = recorded(program, block, values)
        length = self._inputs[0][1].shape[0]
        elements = [{id(e.value): x[t].value for e, x in self._inputs} for t in range(length)]
        outer = program.recorder.local
        steps = [{key: outer(value) for key, value in step.items()} for step in elements]
        carried = {id(outer(memory.value)): count + i for i, memory in enumerate(self._memories)}
        results = add_steps(program, "static_rnn", part, steps, carried)
        rows = [[wrap(program, value, self._name) for value in step[:count]] for step in results]
        stacked = [
            program.call(torch.stack, (list(column),), {}, "stack") for column in zip(*rows, strict=True)
        ]
        self._results = stacked


def _program_of(rnn: StaticRNN) -> Program:
    """The program that a StaticRNN is a part of."""
    assert rnn._program is not None, "step() has not been called"
    return rnn._program
