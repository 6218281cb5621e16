"""Symbols of dimensions that are unknown until data is fed: `None` in a shape.

    static.data("x", [None, 3, 224, 224])      x: float32[N, 3, 224, 224]

Each `None` is a symbol. `size_env.py` collects the program's assumptions about the symbols while it is built; `check`
compares them with the sizes of the feeds, once for each new set of sizes, and its errors name feeds and source lines.
"""

# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy
import torch
from torch._guards import Source
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic
from torch.utils._sympy.printers import PythonPrinter

from argosy.engine.errors import FeedError
from argosy.engine.ir.size_conditions import FastCheck, compile_conditions
from argosy.engine.ir.size_env import Assumption, SizeEnv
from argosy.engine.ir.without_dynamo import ProgramFakeMode

Size = int | torch.SymInt
Sizes = Mapping[sympy.Symbol, int]


def are_equal(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """True if sizes, or strides, are equal for every feed; `==` on symbols would add an assumption instead."""
    return len(a) == len(b) and all(_is_known(x == y) for x, y in zip(a, b, strict=True))


def _is_known(condition: bool | torch.SymBool) -> bool:
    """True if it holds for every feed; torch's statically_known_true decides by the first hint of a size, which a
    later assumption may have changed."""
    if isinstance(condition, bool):
        return condition
    return bool(condition.node.shape_env._maybe_evaluate_static(condition.node.expr) or False)


def hint(size: Size) -> int:
    """The number that is used for an unknown size while a program is built; 0 for a size that depends on data."""
    if isinstance(size, int):
        return size
    env = size.node.shape_env
    assert isinstance(env, SizeEnv), f"{size} belongs to torch's {env}"
    return env.hint_of(size.node.expr) or 0


def _holds(condition: sympy.Basic, values: dict[sympy.Symbol, sympy.Integer]) -> bool:
    try:
        return bool(condition.xreplace(values) != sympy.false)
    except ZeroDivisionError:  # a remainder of a division by size 0
        return False


@dataclass(frozen=True)
class _Feed(Source):
    """The source of a symbol, for the ShapeEnv, which needs only a name."""

    label: str

    @property
    def _name_template(self) -> str:
        return self.label


# Hints by position, so that the first dimensions of all feeds have the same hint, and so do the second ones. Primes,
# so that they are not divisible by accident.
_HINTS = (13, 17, 19, 23, 29, 31, 37, 41)


class Symbols:
    """The unknown sizes of one program and the conditions between them."""

    def __init__(self) -> None:
        self.env = SizeEnv()
        self.origin: dict[sympy.Symbol, tuple[str, int]] = {}
        """Symbol -> (feed, dimension)."""
        self.planned: Sizes = {}
        """The sizes of feeds that memory was planned for when the program was compiled; printing it uses them, too."""
        self.ragged: dict[sympy.Expr, str] = {}
        """Number of rows -> the variable with the lengths of the sequences that they belong to (ragged.py)."""
        self.aligned: tuple[int, list[list[str]]] = (-1, [])
        """The result of `ragged.aligned_feeds` for one version of the tables."""
        self._labels: tuple[int, dict[sympy.Symbol, str]] = (-1, {})
        self._fast_check: tuple[int, FastCheck | None] = (-1, None)

    @cached_property
    def mode(self) -> FakeTensorMode:
        """The mode of the program's fake tensors; many a default program stays empty, and needs none."""
        return ProgramFakeMode(self.env)

    @property
    def assumptions(self) -> list[Assumption]:
        return self.env.assumptions

    def fake(
        self, name: str, shape: Sequence[int | None], dtype: torch.dtype, first_hint: int = _HINTS[0]
    ) -> torch.Tensor:
        """A tensor without data whose `None` dimensions are new symbols; `first_hint` is the hint of the first."""
        hints = [first_hint, *_HINTS[1:]]
        sizes = [
            self._new(name, dim, hints[dim % len(hints)]) if size is None else size
            for dim, size in enumerate(shape)
        ]
        with self.mode:
            return torch.empty(sizes, dtype=dtype)

    def _new(self, name: str, dim: int, number: int) -> torch.SymInt:
        source = _Feed(f"feed{len(self.origin)}")
        symbol = self.env.create_symbol(number, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        self.origin[symbol] = (name, dim)
        size = self.env.create_symintnode(symbol, hint=number, source=source)
        assert isinstance(size, torch.SymInt), f"symbol for {name}[{dim}] became the constant {size}"
        return size

    # --- printing -------------------------------------------------------------------------------------

    def label(self, size: Size) -> str:
        """A size as printed in a program: 3, N (the first unknown), D1, 2*N; T, T1 are rows of ragged feeds."""
        if isinstance(size, int):
            return str(size)
        expr = self.env.replace(size.node.expr)
        labels = self._labels_of_symbols()
        return str(expr.subs({s: sympy.Symbol(labels.get(s, str(s))) for s in expr.free_symbols}))

    def _labels_of_symbols(self) -> dict[sympy.Symbol, str]:
        version = len(self.origin) + len(self.env.assumptions) + len(self.ragged)
        if self._labels[0] != version:
            known = dict.fromkeys(self.env.replace(s) for s in self.origin)
            unique = [s for s in known if isinstance(s, sympy.Symbol)]
            rows = {self.env.replace(s) for s in self.ragged}
            dense, ragged = [s for s in unique if s not in rows], [s for s in unique if s in rows]
            labels = {s: f"D{i}" if i else "N" for i, s in enumerate(dense)}
            self._labels = (version, labels | {s: f"T{i or ''}" for i, s in enumerate(ragged)})
        return self._labels[1]

    def describe(self, expression: sympy.Basic) -> str:
        """A condition or a size in terms of feeds: `x[0] % 5 == 0`."""
        named = {s: sympy.Symbol("{}[{}]".format(*place)) for s, place in self.origin.items()}
        return self.without_symbols(str(PythonPrinter().doprint(expression.xreplace(named))))

    def without_symbols(self, text: str) -> str:
        """A message of torch with symbols replaced by the names of feeds."""
        for symbol, (name, dim) in self.origin.items():
            text = re.sub(rf"\b{symbol}\b", f"{name}[{dim}]", text)
        return re.sub(r"\b[uz]\d+\b", "a size that depends on data", text)

    def size_of(self, sizes: Sizes) -> Callable[[Size], int]:
        """A function that substitutes the sizes of the feeds for symbols; a size without a feed uses its hint."""
        # Both a feed's symbol and the symbol that the program unified it with.
        values = {self.env.replace(symbol): sympy.Integer(size) for symbol, size in sizes.items()}
        values |= {symbol: sympy.Integer(size) for symbol, size in sizes.items()}
        known: dict[sympy.Expr, int] = {}

        def size_of(size: Size) -> int:
            if isinstance(size, int):
                return size
            expression = size.node.expr
            if expression not in known:
                number = expression.xreplace(values)
                known[expression] = int(number) if number.is_number else hint(size)
            return known[expression]

        return size_of

    # --- checking feeds -------------------------------------------------------------------------------

    def all_hold(self, sizes: Sizes) -> bool:
        """True if the sizes satisfy every assumption; False if `check` must find out which they violate.

        With ragged feeds the sizes differ in every run, so the assumptions are compiled to a Python function.
        """
        version, fast = self._fast_check
        if version != len(self.assumptions):
            fast = compile_conditions([a.condition for a in self.assumptions])
            self._fast_check = (len(self.assumptions), fast)
        return fast is not None and fast(sizes)

    def check(self, sizes: Sizes) -> list[Assumption]:
        """Raise FeedError if the sizes violate a required assumption; returns the other violated assumptions."""
        values = {s: sympy.Integer(size) for s, size in sizes.items()}
        doubtful = []
        for assumption in self.assumptions:
            condition = assumption.condition
            if condition.free_symbols <= sizes.keys() and not _holds(condition, values):
                if assumption.is_required:
                    raise FeedError(self.violation(assumption, sizes))
                doubtful.append(assumption)
        return doubtful

    def violation(self, assumption: Assumption, sizes: Sizes) -> str:
        """Which feeds violate an assumption, and which source line made it."""
        fed = self.sizes_of_feeds(assumption.condition, sizes)
        where = f" (decided at {assumption.line})" if assumption.line else ""
        rule = self.describe(assumption.condition)
        return f"{fed}; the program was built for {rule}{where}; feed sizes that fit, or build it for these"

    def sizes_of_feeds(self, condition: sympy.Basic, sizes: Sizes) -> str:
        """feed 'x' has size 3 in dimension 0, …: the sizes that a condition is about."""
        fed = sorted((*self.origin[s], sizes[s]) for s in condition.free_symbols if s in self.origin)
        return ", ".join(f"feed {name!r} has size {size} in dimension {dim}" for name, dim, size in fed)
