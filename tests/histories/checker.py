"""Checks what clients of parameter servers have seen: which pushes count, how often, from when on, and in which order.

Push i adds 1 to coordinate i of a vector, so that every pull shows which pushes have been applied: 0 not yet, 1 once,
2 twice. Behind the coordinates there may be a register that each push changes to a·x + i + 1 (mod p), which shows the
order. Times are of one clock. The checks take time linear in what was recorded.

    exactly once        no coordinate is above 1; in the last pull every acknowledged push is 1
    read your writes    a pull shows all pushes that were acknowledged before it began
    monotonic reads     a pull shows what any pull that had ended before it began has shown
    no invention        a pull shows no push that began after it had ended
    one order           the register is that of an order in which no push comes before one that had ended when it began
    lockstep            sync: what is seen after step n is the same for all, and follows from step n - 1
    bounded staleness   half_async: after step n a trainer sees step n of all; geo: all that was acknowledged k of its
                        own steps ago (`stale`, and `began` of what it sees)
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

Array = np.ndarray[tuple[int], np.dtype[np.float64]] | np.ndarray[tuple[int], np.dtype[np.float32]]
MULTIPLIER, MODULUS = 31, 1_000_003
"""Of the register: products stay below 2**53, so that float64 is exact."""
PUSHES_OF_ROW = 6
"""So many pushes, one after another, share a row that shows their order."""
_MOST_NEW = 7
"""So many pushes that are new to a pull are tried in all orders."""


@dataclass
class Push:
    """One push: its coordinate, when it was sent, and when it was acknowledged, if it was."""

    index: int
    began: float
    ended: float = math.inf
    trainer: int = 0
    step: int = 0
    """sync and half_async: of the trainer; 0 if it is not known."""


@dataclass
class Pull:
    """What one client has read."""

    began: float
    ended: float
    values: Array
    order: int | None = None
    """The register."""
    step: int | None = None
    """sync and half_async: the step after which it was read."""
    trainer: int = 0


@dataclass
class History:
    """What all clients have done; each appends to lists of its own, which are joined at the end."""

    pushes: list[Push] = field(default_factory=list)
    pulls: list[Pull] = field(default_factory=list)

    def joined(self, others: Sequence["History"]) -> "History":
        return History(
            [*self.pushes, *(push for other in others for push in other.pushes)],
            [*self.pulls, *(pull for other in others for pull in other.pulls)],
        )


def violations(history: History, size: int) -> list[str]:
    """What is wrong with a history over so many coordinates; the last pull began after everything else had ended."""
    began = np.full(size, math.inf)
    for push in history.pushes:
        began[push.index] = push.began
    problems: list[str] = []
    known = np.zeros(size, bool)
    """What a pull that begins now must show."""
    acknowledged = sorted(history.pushes, key=lambda push: push.ended)
    finished = sorted(history.pulls, key=lambda pull: pull.ended)
    next_push = next_pull = 0
    for pull in sorted(history.pulls, key=lambda pull: pull.began):
        while next_push < len(acknowledged) and acknowledged[next_push].ended < pull.began:
            known[acknowledged[next_push].index] = True
            next_push += 1
        while next_pull < len(finished) and finished[next_pull].ended < pull.began:
            known |= finished[next_pull].values > 0
            next_pull += 1
        problems += _wrong(pull, known, began)
    return problems


def _wrong(
    pull: Pull,
    known: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
    began: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> list[str]:
    values = pull.values
    what = {
        "applied more than once": values > 1,
        "applied in part": (values != 0) & (values != 1) & (values < 1),
        "lost, or seen and then not": known & (values == 0),
        "seen before it was sent": (values > 0) & (began > pull.ended),
    }
    return [
        f"push {index}: {name} ({values[index]:g} in a pull that ended at {pull.ended:.3f})"
        for name, is_wrong in what.items()
        for index in np.flatnonzero(is_wrong)[:3]
    ]


# --- order ---------------------------------------------------------------------------------------------


def after(register: int, index: int) -> int:
    """The register after one more push."""
    return (MULTIPLIER * register + index + 1) % MODULUS


def row_after(row: int, index: int) -> int:
    """A row that shows the order of a few pushes, after one more: an integer that float32 holds exactly."""
    return 2 * row + index % PUSHES_OF_ROW + 1


def row_violation(value: int, applied: Sequence[Push]) -> str:
    """What is wrong with such a row, given the pushes that have changed it; empty if nothing is."""
    if value in _reachable({0}, applied, row_after):
        return ""
    return f"a row is {value}, which no order of pushes {sorted(push.index for push in applied)} makes"


def order_violations(history: History) -> list[str]:
    """What is wrong with the order that the pulls' registers show; pushes are applied one by one."""
    pushes = {push.index: push for push in history.pushes}
    seen: frozenset[int] = frozenset()
    registers = {0}
    """Those that fit what was seen; several if the order of the last ones is not known yet."""
    problems = []
    for pull in sorted(history.pulls, key=lambda pull: (int((pull.values > 0).sum()), pull.ended)):
        if pull.order is None:
            continue
        visible = frozenset(map(int, np.flatnonzero(pull.values > 0)))
        if not seen <= visible:
            problems.append(
                f"a pull that ended at {pull.ended:.3f} shows {sorted(visible - seen)[:5]} and not "
                f"{sorted(seen - visible)[:5]}, which another one shows: there is no common order"
            )
            continue
        new = sorted(visible - seen)
        if invented := [index for index in new if index not in pushes]:
            problems.append(
                f"a pull that ended at {pull.ended:.3f} shows pushes that were never sent: {invented[:5]}"
            )
            continue
        if len(new) > _MOST_NEW:
            problems.append(f"{len(new)} pushes between two pulls are too many to find their order")
            return problems
        possible = _reachable(registers, [pushes[index] for index in new], after)
        if pull.order not in possible:
            problems.append(
                f"a pull that ended at {pull.ended:.3f} shows the register {pull.order}, which no order of pushes "
                f"{new} makes of {sorted(registers)[:3]}"
            )
        seen, registers = visible, {pull.order}
    return problems


def _reachable(registers: Iterable[int], new: Sequence[Push], step: Callable[[int, int], int]) -> set[int]:
    """The registers after these pushes in any order that their times allow."""
    if not new:
        return set(registers)
    reachable: set[int] = set()
    for push in new:
        rest = [other for other in new if other is not push]
        if all(push.began <= other.ended for other in rest):  # no other push had ended before it began
            reachable |= _reachable([step(register, push.index) for register in registers], rest, step)
    return reachable


# --- steps ---------------------------------------------------------------------------------------------


def steps_differ(history: History) -> list[str]:
    """sync: what is wrong with what was seen after each step: one state per step, each made of the one before."""
    problems: list[str] = []
    by_step: dict[int, Pull] = {}
    for pull in history.pulls:
        if pull.step is None:
            continue
        first = by_step.setdefault(pull.step, pull)
        if first.order != pull.order or not np.array_equal(first.values, pull.values):
            problems.append(f"two pulls of step {pull.step} differ")
    last: Pull | None = None
    for step, pull in sorted(by_step.items()):
        if last is not None and last.step == step - 1 and pull.order is not None and last.order is not None:
            new = np.flatnonzero((pull.values > 0) & (last.values == 0))
            wanted = (MULTIPLIER * last.order + int((new + 1).sum())) % MODULUS
            if pull.order != wanted:
                problems.append(f"step {step} does not follow from step {step - 1}")
        last = pull
    return problems


def stale(history: History) -> list[str]:
    """half_async: pulls after a step that lack what another trainer has pushed in that step, or before."""
    sent = [push for push in history.pushes if push.step and push.ended < math.inf]
    pushes = sorted(sent, key=lambda push: push.step)
    problems, known, place = [], list[int](), 0
    for pull in sorted(history.pulls, key=lambda pull: pull.step or 0):
        while pull.step is not None and place < len(pushes) and pushes[place].step <= pull.step:
            known.append(pushes[place].index)
            place += 1
        if pull.step is not None and (missing := np.flatnonzero(pull.values[known] == 0)).size:
            problems.append(
                f"a pull after step {pull.step} lacks push {known[missing[0]]} of that step or before"
            )
    return problems
