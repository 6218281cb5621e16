"""SizeEnv: a ShapeEnv that collects a program's assumptions about sizes that are unknown while it is built.

torch's shape functions, its composite functions and the user's code evaluate conditions on sizes (guards):

    the value follows from known sizes         that value
    torch._check(N % 5 == 0)                   True; the condition becomes an assumption, N == 4 replaces N by 4
    guard_or_false(N == 1), guard_or_true(…)   torch's value for the general case, recorded
    if N == 1:                                 the value for the hint of N; it becomes an assumption
    if N != 5: raise …                         if it raises, N == 5 is assumed, and the call is run again
    int(N), range(N)                           an error: the number is unknown

A hint is a number that is used for an unknown size. Where a check contradicts the hints, a search finds other hints
that satisfy all assumptions so far: `x: [N, 8] -> reshape [-1, 5, 8]` changes the hint of N from 13 to 65.
`symbols.py` compares feeds with the assumptions.
"""

# SPDX-License-Identifier: Apache-2.0
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, product
from types import FrameType
from typing import Any

import sympy
import torch
from sympy.logic.boolalg import Boolean, BooleanFunction
from torch._guards import SLoc
from torch._logging._internal import trace_structured
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import ToFloat
from torch.utils._sympy.solve import try_solve

from argosy.engine.errors import UnknownSizeError
from argosy.engine.ir.shape_memo import ShapeMemo
from argosy.engine.ir.source import SourceLine, user_line
from argosy.engine.ir.without_dynamo import without_dynamo

Context = Callable[[], tuple[SourceLine | None, str, int | None]]
Hints = dict[sympy.Symbol, sympy.Integer]


@dataclass(frozen=True)
class Assumption:
    """A condition on the sizes of feeds that a program was built with."""

    condition: Boolean
    line: SourceLine | None
    """The user's source line that evaluated it."""
    role: str
    """The role being recorded at that time: forward, backward, …"""
    call: int | None
    """The recorded call (`Recorder.calls`) whose code evaluated it."""
    is_required: bool
    """True: other sizes need other ops, or make an op fail. False: an op's shape function evaluated it; the op itself
    computes the shape of its result in every run."""
    is_replacement: bool
    """True: a symbol was replaced, so that sizes recorded later depend on it."""
    is_guess: bool = False
    """True: the hints decided a branch of Python code; other sizes would have taken the other branch."""


@dataclass
class Requests:
    """The assumptions that a shape function has requested, granted or already known."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    """Methods of SizeEnv and their arguments."""
    are_repeatable: bool = True
    """False: hints were changed, or a condition depends on data."""


_TABLES = ("replacements", "var_to_range", "axioms", "backed_var_to_val")


@dataclass(frozen=True)
class Snapshot:
    """The state of a SizeEnv."""

    num_assumptions: int
    tables: dict[str, dict[Any, Any]]
    divisible: set[Any]


class SizeEnv(ShapeEnv):
    """torch's ShapeEnv with the rules above, for the sizes of one program."""

    def __init__(self) -> None:
        with without_dynamo():
            super().__init__(duck_shape=False, specialize_zero_one=False)
        # torch's trace log removes itself at its first record, unless TORCH_TRACE is set. This record has no stack: to
        # format one imports inductor.
        trace_structured(
            "argosy_program", suppress_context=True, expect_trace_id=False, record_logging_overhead=False
        )
        self.assumptions: list[Assumption] = []
        self.context: Context = lambda: (user_line(), "forward", None)
        """The source line, role and call being recorded; set by the recorder."""
        self._recorded: set[tuple[Any, bool]] = set()
        self._in_kernel = False
        self.is_muted = False
        self.memo = ShapeMemo()
        self._replaces_by_numbers = False
        self._requests: Requests | None = None
        self._known_facts: frozenset[tuple[Any, bool]] | None = None

    @contextmanager
    def in_kernel(self) -> Iterator[None]:
        """Conditions inside are evaluated by the shape function of an op."""
        old, self._in_kernel = self._in_kernel, True
        try:
            yield
        finally:
            self._in_kernel = old

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Do not record assumptions inside."""
        old, self.is_muted = self.is_muted, True
        try:
            yield
        finally:
            self.is_muted = old

    def hint_of(self, expression: sympy.Expr) -> int | None:
        """The value of the expression for the hints; None if it depends on data."""
        value = expression.xreplace(self.backed_var_to_val)
        return int(value) if value.is_number else None

    # --- results for other programs -------------------------------------------------------------------

    def facts(self, symbols: set[sympy.Symbol]) -> Hashable:
        """All that the result of a shape function for sizes with these symbols depends on, besides its arguments."""
        sizes = frozenset((s, self.backed_var_to_val.get(s), self.var_to_range.get(s)) for s in symbols)
        if self._known_facts is None or len(self._known_facts) != len(self._recorded):
            self._known_facts = frozenset(self._recorded)
        return self._known_facts, sizes, self._in_kernel, self.is_muted

    @contextmanager
    def requests(self) -> Iterator[Requests]:
        """The assumptions that are requested inside, for `repeat` in another program."""
        assert self._requests is None, "a shape function has called another one through the memo"
        requests = self._requests = Requests()
        try:
            yield requests
        finally:
            self._requests = None

    def repeat(self, requests: Requests) -> None:
        """Request these assumptions here."""
        for method, *arguments in requests.calls:
            method(self, *arguments)

    def _note(self, *call: Any) -> None:
        if self._requests is not None:
            self._requests.calls.append(call)

    def _make_unrepeatable(self) -> None:
        if self._requests is not None:
            self._requests.are_repeatable = False

    def size_of(self, expression: int | sympy.Expr) -> int | torch.SymInt:
        """The expression as a size of this program."""
        if isinstance(expression, int):
            return expression
        return self.create_symintnode(expression, hint=self.hint_of(expression))

    # --- what torch calls -----------------------------------------------------------------------------

    @property
    def prefer_deferred_runtime_asserts_over_guards(self) -> bool:
        """True: torch._check calls guard_or_defer_runtime_assert. torch then never replaces N by a number, so it is
        False while an assumption such as N == 4 is added."""
        return not self._replaces_by_numbers

    def evaluate_sym_node(
        self, sym_node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Any:
        return self.evaluate_expr(sym_node.expr, size_oblivious=size_oblivious, fallback_value=fallback_value)

    def evaluate_expr(
        self,
        orig_expr: Any,
        hint: Any = None,
        fx_node: Any = None,
        size_oblivious: bool = False,
        fallback_value: bool | None = None,
        *,
        forcing_spec: bool = False,
    ) -> Any:
        """Evaluate a guard; overrides torch's method."""
        if (answer := self._known(orig_expr)) is not None:
            return answer
        if not orig_expr.free_symbols <= self.backed_var_to_val.keys():  # depends on data: torch's rules
            self._make_unrepeatable()
            return super().evaluate_expr(
                orig_expr, size_oblivious=size_oblivious, fallback_value=fallback_value
            )
        if fallback_value is not None:
            self._add_fallback(orig_expr, fallback_value)
            return fallback_value
        if not isinstance(orig_expr, sympy.Rel | BooleanFunction):  # sympy counts a symbol as a Boolean
            raise UnknownSizeError(
                f"the number {orig_expr} is needed, and it is unknown while the program is built; give the size in "
                "static.data, or compute with the size as a symbol"
            )
        answer = orig_expr.xreplace(self.backed_var_to_val)
        if not size_oblivious:
            is_shortcut = _excludes_special_sizes(orig_expr) and _is_guarded_by_cpp()
            is_required = not self._in_kernel and not is_shortcut
            self._assume(orig_expr if answer else sympy.Not(orig_expr), is_required, is_guess=is_required)
        return answer

    def guard_or_defer_runtime_assert(  # type: ignore[override]  # torch's has a cache around it
        self, orig_expr: Any, msg: str, fx_node: Any = None
    ) -> bool:
        """True if the condition of a torch._check can hold; it becomes an assumption. Overrides torch's method."""
        if (answer := self._known(orig_expr)) is not None:
            return bool(answer)
        if not orig_expr.free_symbols <= self.backed_var_to_val.keys():
            self._make_unrepeatable()
            return bool(super().guard_or_defer_runtime_assert(orig_expr, msg, fx_node))
        if not orig_expr.xreplace(self.backed_var_to_val) and (self.is_muted or not self._rehint(orig_expr)):
            return False
        self._assume(orig_expr, is_required=True)
        return True

    def _get_stack_summary(
        self, is_debug: bool = False, framework_loc: str | None = None
    ) -> tuple[SLoc, str]:
        """The user's line, for torch's messages. Overrides torch's method, which imports torch.export."""
        return SLoc(framework_loc or str(user_line()), None), ""

    # --- snapshots ------------------------------------------------------------------------------------

    def snapshot(self) -> "Snapshot":
        """The present assumptions, for `restore`."""
        tables = {name: dict(getattr(self, name)) for name in _TABLES}
        return Snapshot(len(self.assumptions), tables, set(self.divisible))

    def restore(self, snapshot: "Snapshot") -> None:
        """Remove the assumptions made since the snapshot."""
        del self.assumptions[snapshot.num_assumptions :]
        self._recorded = {(a.condition, a.is_required) for a in self.assumptions}
        self._known_facts = None
        for name, table in snapshot.tables.items():
            current = getattr(self, name)
            current.clear()
            current.update(table)
        self.divisible = set(snapshot.divisible)
        self.memo.clear()
        self._replacements_version_counter += 1
        self._update_version_counter()

    def other_branch(self, snapshot: "Snapshot") -> Assumption | None:
        """The negation of the last guess since then; None if there is none. N == 0 and N == 1 are not guessed."""
        for guess in reversed(self.assumptions[snapshot.num_assumptions :]):
            if guess.is_guess and isinstance(
                guess.condition, sympy.Ne | sympy.Lt | sympy.Le | sympy.Gt | sympy.Ge
            ):
                opposite = sympy.Not(guess.condition)
                is_special = isinstance(opposite, sympy.Eq) and _excludes_special_sizes(opposite)
                return None if is_special else replace(guess, condition=opposite)
        return None

    # --- assumptions and hints ------------------------------------------------------------------------

    def assume(self, condition: Any, line: SourceLine | None) -> bool:
        """Add an assumption of another program; False if it cannot hold here."""
        old, self.context = self.context, lambda: (line, "forward", None)
        try:
            if (answer := self._known(condition)) is not None:
                return bool(answer)
            if not condition.xreplace(self.backed_var_to_val) and not self._rehint(condition):
                return False
            self._assume(condition, is_required=True)
            return True
        finally:
            self.context = old

    def _known(self, expression: Any) -> Any:
        if expression.is_number or isinstance(expression, sympy.logic.boolalg.BooleanAtom):
            return expression
        return self._maybe_evaluate_static(expression)

    def _assume(self, condition: Any, is_required: bool, is_guess: bool = False) -> None:
        if self.is_muted or self._suppress_guards_tls():
            return
        self._note(SizeEnv._assume, condition, is_required, is_guess)
        replaced = len(self.replacements)
        self._replaces_by_numbers = is_required
        self._maybe_guard_rel(condition)
        self._replaces_by_numbers = False
        for part in _conjuncts(self.simplify(condition)):
            self.axioms.update(
                dict(self.get_implications(part)) if isinstance(part, sympy.Rel) else {part: sympy.true}
            )
        self._update_version_counter()
        self._add(condition, is_required, len(self.replacements) > replaced, is_guess)

    def _add_fallback(self, guard: Any, value: bool) -> None:
        """Record torch's value for the general case, so that shapes are checked for sizes that violate it."""
        if self.is_muted or self._suppress_guards_tls():
            return
        self._note(SizeEnv._add_fallback, guard, value)
        condition = guard if value else sympy.Not(guard)
        if (condition, False) not in self._recorded and condition.xreplace(
            self.backed_var_to_val
        ) == sympy.true:
            self._add(condition, is_required=False, is_replacement=False, is_guess=False)

    def _add(self, condition: Any, is_required: bool, is_replacement: bool, is_guess: bool) -> None:
        if (condition, is_required) not in self._recorded:
            self._recorded.add((condition, is_required))
            self.assumptions.append(
                Assumption(condition, *self.context(), is_required, is_replacement, is_guess)
            )

    def _rehint(self, condition: Any) -> bool:
        """Search hints that satisfy the condition and all required assumptions; False if none were found."""
        self._make_unrepeatable()
        required = [condition, *(a.condition for a in self.assumptions if a.is_required)]
        for trial in self._trials(self.replace(condition)):
            hints = self._complete({**self.backed_var_to_val, **trial})
            if hints is not None and all(c.xreplace(hints) == sympy.true for c in required):
                self.backed_var_to_val.update(hints)
                return True
        return False

    def _complete(self, hints: Hints) -> Hints | None:
        """Compute the hints of replaced symbols from the others; None if one is not a valid size."""
        for symbol, replacement in self.replacements.items():
            value = self.replace(replacement).xreplace(hints)
            if not value.is_Integer or value < 0:
                return None
            hints[symbol] = value
        return hints

    def _trials(self, condition: Any) -> Iterator[Hints]:
        """Hints to try for the symbols of a condition: one symbol changed first, then two."""
        symbols = sorted(condition.free_symbols, key=str)
        for symbol in symbols:
            solved = try_solve(condition, symbol) if isinstance(condition, sympy.Eq) else None
            if solved is not None:
                value = solved[1].xreplace(self.backed_var_to_val)
                if value.is_Integer and value >= 0:
                    yield {symbol: value}
        for symbol in symbols:
            yield from ({symbol: sympy.Integer(n)} for n in _numbers(int(self.backed_var_to_val[symbol])))
        for first, second in _pairs(symbols):
            for a, b in product(range(1, 41), repeat=2):
                yield {first: sympy.Integer(a), second: sympy.Integer(b)}


def _excludes_special_sizes(guard: Any) -> bool:
    """True for `N == 1`, `N <= 1`, `N == 0` and the like: torch's C++ code takes shortcuts there (the cumulative sum of
    one row is the row), and the general case computes the same. tests/torch_db feeds one row to prove it."""
    if not isinstance(guard, sympy.Rel):
        return False
    gap = (guard.lhs - guard.rhs).replace(ToFloat, lambda size: size)  # float(N) - 1.0 > 0 is N > 1
    return any(_is_product_of_sizes(gap + number) for number in (-1, 0, 1))


def _is_product_of_sizes(expression: Any) -> bool:
    factors = sympy.Mul.make_args(expression)
    return bool(expression.free_symbols) and all(f.is_Symbol or f.is_number for f in factors)


def _is_guarded_by_cpp() -> bool:
    """True if torch's C++ code evaluates the guard, and not Python.

    SymNode.guard_bool and its like have the C++ file as an argument, which is empty for guards in Python.
    """
    frame: FrameType | None = sys._getframe(2)
    for _ in range(5):
        if frame is None:
            return False
        if "file" in frame.f_code.co_varnames[: frame.f_code.co_argcount]:
            return bool(frame.f_locals["file"])
        frame = frame.f_back
    return False


def _conjuncts(condition: Any) -> tuple[Any, ...]:
    return condition.args if isinstance(condition, sympy.And) else (condition,)


def _numbers(hint: int) -> Iterator[int]:
    """Numbers to try; multiples of the prime hint first, because they have few other divisors."""
    return chain((hint * k for k in range(2, 65)), range(2, 1025), (1, 0))


def _pairs(symbols: Sequence[sympy.Symbol]) -> Iterator[tuple[sympy.Symbol, sympy.Symbol]]:
    return ((a, b) for i, a in enumerate(symbols) for b in symbols[i + 1 :])
