"""Dimensions that are not known until data is fed: `None` in a shape.

    static.data("x", [None, 3, 224, 224])      x: float32[N, 3, 224, 224]

Each `None` is a symbol of torch's `ShapeEnv`. While the program is built a symbol carries a hint, a size
that stands in for it when code asks. Where an operator needs two dimensions to agree (the batch of x and
the batch of y) the ShapeEnv writes a guard; `check` holds the guards against what is fed and names the feeds.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._guards import Source
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, statically_known_true

from argosy.engine.errors import FeedError
from argosy.engine.ir.source import SourceLine

Size = int | torch.SymInt


def are_equal(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """True if sizes, or strides, are equal whatever is fed: asking them directly would bind a symbol to its hint."""
    return len(a) == len(b) and all(statically_known_true(x == y) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class _Feed(Source):
    """Where a symbol comes from, for the ShapeEnv: all it asks for is a name."""

    label: str

    @property
    def _name_template(self) -> str:
        return self.label


# Hints by position, so that the first dimensions of all feeds agree while the program is built, and so do
# the second ones. Primes, so that nothing divides by accident.
_HINTS = (13, 17, 19, 23, 29, 31, 37, 41)

# Guards that torch's shape functions write while they choose strides; they say nothing of the result.
_ABOUT_STRIDES = ("fake_impls.py", "fake_tensor.py", "_meta_registrations.py", "_prims_common/__init__.py")
_ABOUT_VIEWS = "_reshape_view_helper_core_alg"
_ABOUT_SLICES = "_compute_slice_index"  # in fake_impls.py too, but this one decides the result's size


class Symbols:
    """The unknown sizes of one program and what must hold between them."""

    def __init__(self) -> None:
        self.env = ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.origin: dict[sympy.Symbol, tuple[str, int]] = {}
        """Which feed, and which of its dimensions, each symbol stands for."""
        self._lines: list[SourceLine | None] = []  # one for each guard of the env

    def note_guards(self, line: SourceLine | None) -> None:
        """Remember which line of the user's script made the guards that are new since the last call."""
        self._lines += [line] * (len(self.env.guards) - len(self._lines))

    def fake(self, name: str, shape: Sequence[int | None], dtype: torch.dtype) -> torch.Tensor:
        """A tensor without data whose `None` dimensions are new symbols."""
        sizes = [self._new(name, dim) if size is None else size for dim, size in enumerate(shape)]
        with self.mode:
            return torch.empty(sizes, dtype=dtype)

    def _new(self, name: str, dim: int) -> torch.SymInt:
        hint, source = _HINTS[dim % len(_HINTS)], _Feed(f"feed{len(self.origin)}")
        symbol = self.env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        self.origin[symbol] = (name, dim)
        made = self.env.create_symintnode(symbol, hint=hint, source=source)
        assert isinstance(made, torch.SymInt), f"symbol for {name}[{dim}] became the constant {made}"
        return made

    def label(self, size: Size) -> str:
        """How a size is shown: 3, N (the first unknown), D1, 2*N."""
        if isinstance(size, int):
            return str(size)
        expr = self.env.replace(size.node.expr)
        return str(expr.subs({s: sympy.Symbol(self._label_of(s)) for s in expr.free_symbols}))

    def _label_of(self, symbol: sympy.Symbol) -> str:
        known = [self.env.replace(s) for s in self.origin]
        unique = list(dict.fromkeys(s for s in known if isinstance(s, sympy.Symbol)))
        if symbol not in unique:
            return str(symbol)
        place = unique.index(symbol)
        return "N" if place == 0 else f"D{place}"

    def check(self, sizes: Mapping[sympy.Symbol, int]) -> None:
        """Raise FeedError if what was fed breaks something that the program relies on."""
        for guard, line in zip(self.env.guards, self._lines, strict=False):
            if is_about_strides(guard) or not guard.expr.free_symbols <= sizes.keys():
                continue
            if guard.expr.xreplace({s: sympy.Integer(size) for s, size in sizes.items()}) == sympy.false:
                raise FeedError(self._broken(guard, line, sizes))

    def _broken(self, guard: Any, line: SourceLine | None, sizes: Mapping[sympy.Symbol, int]) -> str:
        fed = [(*self.origin[s], sizes[s]) for s in guard.expr.free_symbols if s in self.origin]
        found = ", ".join(
            f"feed {name!r} has size {size} in dimension {dim}" for name, dim, size in sorted(fed)
        )
        equal = isinstance(guard.expr, sympy.Eq)
        rule = f"{guard.expr.lhs} = {guard.expr.rhs}" if equal else str(guard.expr)
        for symbol in guard.expr.free_symbols:
            if symbol in self.origin:
                rule = rule.replace(str(symbol), "{}[{}]".format(*self.origin[symbol]))
        where = f" (needed at {line})" if line else ""
        return f"{found}; the program was built for {rule}{where}; feed sizes that fit, or build it for these"


def is_about_strides(guard: Any) -> bool:
    if isinstance(guard.expr, sympy.Eq):
        return False  # two sizes must agree, whoever says so
    place = guard.sloc.framework_loc if guard.sloc else None
    function = getattr(place, "name", "")
    if function in (_ABOUT_VIEWS, _ABOUT_SLICES):
        return bool(function == _ABOUT_VIEWS)
    return place is not None and str(getattr(place, "filename", place)).endswith(_ABOUT_STRIDES)
