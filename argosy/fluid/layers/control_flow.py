"""The control flow of Paddle 1.x: blocks under `with`, which write to variables outside.

with fluid.layers.Switch() as switch:                       while_op = fluid.layers.While(cond)
    with switch.case(step < warmup):                        with while_op.block():
        fluid.layers.assign(small, output=rate)                 fluid.layers.increment(i)
    with switch.default():                                      fluid.layers.less_than(i, n, cond=cond)
        fluid.layers.assign(large, output=rate)
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from argosy.engine.errors import ConfigError
from argosy.engine.ir.block_recorder import recording_block
from argosy.engine.ir.control_flow import add_branches, add_while
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Variable
from argosy.static.nn.control_flow import check_condition
from argosy.tensor import logic


class Switch:
    """Runs the block of the first case whose condition is true, else that of the default."""

    def __init__(self, name: str | None = None) -> None:
        self._before: Variable | None = None  # true if an earlier case was taken
        self._is_open = self._has_default = False

    def __enter__(self) -> Self:
        self._is_open = True
        return self

    def __exit__(self, *error: object) -> None:
        self._is_open = False

    @contextmanager
    def case(self, condition: Variable) -> Iterator[None]:
        """The block that follows runs if the condition is true, and that of no case before it."""
        self._check("case")
        check_condition("Switch.case", condition)
        before = self._before
        taken = condition if before is None else logic.logical_and(condition, logic.logical_not(before))
        self._before = condition if before is None else logic.logical_or(before, condition)
        with _branch(condition.program, taken):
            yield

    @contextmanager
    def default(self) -> Iterator[None]:
        """The block that follows runs if no condition is true."""
        self._check("default")
        if self._before is None:
            raise ConfigError("Switch.default: there is no case before it; add one, or leave the Switch out")
        self._has_default = True
        with _branch(self._before.program, logic.logical_not(self._before)):
            yield

    def _check(self, what: str) -> None:
        if not self._is_open:
            raise ConfigError(f"Switch.{what} is used outside of `with fluid.layers.Switch() as switch:`")
        if self._has_default:
            raise ConfigError(f"Switch.{what} is used after the default, which must be the last block")


@contextmanager
def _branch(program: Program, condition: Variable) -> Iterator[None]:
    with recording_block(program) as block:
        yield
    with recording_block(program) as nothing:
        pass
    add_branches(program, "switch", condition, [("the block", block, ()), ("the other case", nothing, ())])


class While:
    """Runs its block while the condition is true; the block changes it: `less_than(i, n, cond=cond)`.

    Variables that the block writes with assign, increment or x[i] = v have their last value afterwards.
    """

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        check_condition("While", cond)
        self._condition = cond

    @contextmanager
    def block(self) -> Iterator[None]:
        """What is called inside is run in every iteration."""
        condition = self._condition
        with recording_block(condition.program, in_loop=True) as block:
            yield
        if id(condition.value) not in block.written:
            raise ConfigError(
                f"While: its block does not change the condition {condition.name!r}, and would never end; end it with "
                "fluid.layers.less_than(i, n, cond=cond), or assign to the condition"
            )
        add_while(condition.program, "while", (condition, block.local(condition.value)), [], block)
