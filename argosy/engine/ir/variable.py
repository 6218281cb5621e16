"""Variable: a named value of a program, with a shape, a dtype and the node that computes it, but no data.

It supports Python arithmetic and every torch function: `torch.relu(x)`, `x.view(-1, 3)`, `x + 1` all add nodes to its
program and return new Variables. Its data cannot be read while the program is built.
"""

# SPDX-License-Identifier: Apache-2.0
import math
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from argosy.engine.errors import ProgramError, UnknownNameError, nearest
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.ragged import all_lengths_of
from argosy.engine.ir.source import user_line

if TYPE_CHECKING:
    from argosy.engine.ir.program import Program

InitFunction = Callable[[Sequence[int], torch.dtype], torch.Tensor]
"""Computes an initial value of this shape and dtype."""


def _binary(
    function: Callable[[Any, Any], Any], name: str, swapped: bool = False
) -> Callable[["Variable", Any], Any]:
    """A method for a Python operator of two operands; `name` is Paddle's word for it."""

    def method(self: "Variable", other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        return self.program.call(function, pair, {}, name)

    return method


def _unary(function: Callable[[Any], Any], name: str) -> Callable[["Variable"], Any]:
    return lambda self: self.program.call(function, (self,), {}, name)


_FIELDS = frozenset(
    {
        "program",
        "name",
        "value",
        "sizes",
        "declared_shape",
        "learning_rate",
        "regularizer",
        "need_clip",
        "initializer",
        "is_distributed",
        "is_sparse",
    }
)


class ProgramBlock:
    """Paddle's programs have several blocks, Argosy's have one; exists for `variable.block.program`."""

    def __init__(self, program: "Program") -> None:
        self.program = program

    def var(self, name: str) -> "Variable":
        return self.program.var(name)


before_creation: list[Callable[[], None]] = []
"""Called whenever a Variable is created: the API adds what its first Variable changes in the process."""


class Variable:
    """A value of a program; created by `static.data`, by layers and by torch functions."""

    persistable = False
    """True: stored in the scope between runs (parameters, optimizer state, statistics)."""
    is_data = False
    """True: the user feeds it."""

    def __init__(
        self, program: "Program", name: str, value: torch.Tensor, *, stop_gradient: bool = False
    ) -> None:
        for prepare in before_creation:
            prepare()
        self.program = program
        self.name = name
        self.value = value
        """Its fake tensor; `append_backward` differentiates along the fake tensor's autograd graph."""
        self.sizes: tuple[Any, ...] | None = None
        """For a result of `paddle.shape(x)`: the sizes of x, which can be used as sizes of other variables."""
        self.declared_shape: tuple[int, ...] | None = None
        """For a variable of `create_var` that has no value yet: its shape, with -1 for an unknown size."""
        self._stop_gradient = stop_gradient

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise UnknownNameError for a misspelt attribute (`x.stop_gradeint = True`) instead of ignoring it."""
        if name not in _FIELDS and not name.startswith("_") and not hasattr(type(self), name):
            known = sorted(_FIELDS | {n for n in dir(type(self)) if not n.startswith("_")})
            raise UnknownNameError(f"Variable has no attribute {name!r} to set{nearest(name, known)}")
        object.__setattr__(self, name, value)

    @property
    def block(self) -> ProgramBlock:
        return ProgramBlock(self.program)

    @property
    def node(self) -> fx.Node:
        return self.program.recorder.node(self.value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, with -1 for a dimension that is known only when data is fed. `size()` returns symbols."""
        sizes = tuple(map(_shown, self.value.shape))
        if -1 in sizes:
            self._check_caller(sys._getframe(1))
        return sizes

    def _check_caller(self, caller: FrameType) -> None:
        """Raise if torch.masked reads a shape with -1: without a mask it calls torch.ones(input.shape) unrecorded."""
        if (
            caller.f_globals.get("__name__") == "torch.masked._ops"
            and caller.f_locals.get("mask", self) is None
        ):
            shape = list(map(_shown, self.value.shape))
            raise ProgramError(
                f"torch.masked.{caller.f_code.co_name.removeprefix('_')} at {user_line()} needs the sizes of "
                f"{self.name!r} ({dtype_name(self.dtype)}{shape}) as numbers, as it has no mask; give it a mask, "
                "call it in a torch.nn.Module, or give the sizes in static.data"
            )

    @property
    def lod_level(self) -> int:
        """How many levels of sequences its rows have: 0, unless it is ragged (ragged.py)."""
        return len(all_lengths_of(self)) if self.program.symbols.ragged else 0

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def device(self) -> torch.device:
        return self.value.device

    @property
    def stop_gradient(self) -> bool:
        """True: gradients do not flow through this variable; may be set any time before `minimize`."""
        return self._stop_gradient

    @stop_gradient.setter
    def stop_gradient(self, stop: bool) -> None:
        self._stop_gradient = bool(stop)
        if not stop and self.value.is_leaf and self.dtype.is_floating_point:
            self.value.requires_grad_()  # applies to nodes that are recorded from here on
        self.program.touch()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {dtype_name(self.dtype)}{list(self.shape)})"

    # --- torch functions and methods ------------------------------------------------------------------

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        variable = first_variable((args, kwargs or {}))
        assert variable is not None, f"torch dispatched {func} to Variable without a Variable"
        return variable.program.call(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        """Methods and attributes of torch.Tensor: `x.mean(1)`, `x.mT`, `x.layout`."""
        if name.startswith("_") or "name" not in self.__dict__:  # looked up by Python itself, not by the user
            raise AttributeError(name)
        attribute = getattr(torch.Tensor, name, None)
        if attribute is None:
            raise UnknownNameError(
                f"Variable {self.name!r} has no attribute {name!r}: neither Paddle's Variable nor torch.Tensor has a "
                "method of that name"
            )
        if callable(attribute):
            return lambda *args, **kwargs: self.program.call(attribute, (self, *args), kwargs, name)
        return self.program.call(lambda x: getattr(x, name), (self,), {}, name)

    @property
    def grad(self) -> NoReturn:
        raise ProgramError(
            f"Variable {self.name!r} has no .grad, as in eager mode; after minimize or append_backward the "
            f"gradient is the Variable {self.name + '@GRAD'!r}: fetch it by that name, or use static.gradients"
        )

    @property
    def requires_grad(self) -> bool:
        """torch's word for `not stop_gradient`."""
        return self.value.requires_grad and not self.stop_gradient

    @requires_grad.setter
    def requires_grad(self, on: bool) -> None:
        self.stop_gradient = not on

    def requires_grad_(self, requires_grad: bool = True) -> "Variable":
        self.stop_gradient = not requires_grad
        return self

    def size(self, dim: int | None = None) -> Any:
        """torch's size: symbols where the size is unknown, which can be used as sizes of other tensors."""
        return self.value.size() if dim is None else self.value.size(dim)

    def dim(self) -> int:
        return self.value.dim()

    def astype(self, dtype: Any) -> Any:
        from argosy.engine.ir.dtypes import to_dtype

        return self.program.call(torch.Tensor.to, (self, to_dtype(dtype)), {}, "cast")

    @property
    def T(self) -> Any:
        return self.program.call(lambda x: x.permute(*reversed(range(x.ndim))), (self,), {}, "transpose")

    # --- access to data: raises -----------------------------------------------------------------------

    def _no_value(self, wanted: str) -> NoReturn:
        raise ProgramError(
            f"Variable {self.name!r} ({dtype_name(self.dtype)}{list(self.shape)}) was used as {wanted} at "
            f"{user_line()}, but it has no value while the program is built; run the program and fetch {self.name!r}, "
            "or keep the computation inside the program (torch.where, masks, arithmetic on Variables)"
        )

    def __bool__(self) -> bool:  # noqa: PLE0304  (it raises)
        self._no_value("a truth value")

    def __float__(self) -> float:
        self._no_value("a number")

    def __int__(self) -> int:
        self._no_value("a number")

    def __index__(self) -> int:  # noqa: PLE0305  (it raises)
        self._no_value("an index")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._no_value("a NumPy array")

    def item(self) -> NoReturn:
        self._no_value("a number")

    def numpy(self) -> NoReturn:
        self._no_value("a NumPy array")

    def tolist(self) -> NoReturn:
        self._no_value("a list")

    def backward(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ProgramError(
            f"Variable {self.name!r}.backward() is eager style; a static program gets its gradients from "
            "optimizer.minimize(loss) or static.append_backward(loss)"
        )

    def __len__(self) -> int:
        if self.ndim == 0 or self.shape[0] < 0:
            raise ProgramError(f"Variable {self.name!r} of shape {list(self.shape)} has no known length")
        return self.shape[0]

    def __iter__(self) -> Iterator["Variable"]:
        return (self[i] for i in range(len(self)))

    # --- arithmetic -----------------------------------------------------------------------------------

    __hash__ = object.__hash__
    __array_ufunc__ = None  # array + variable calls __radd__, not NumPy's ufunc

    def __getitem__(self, index: Any) -> Any:
        item = self.program.call(operator.getitem, (self, index), {}, "slice")
        if self.sizes is not None and isinstance(index, int | slice):
            item.sizes = self.sizes[index] if isinstance(index, slice) else (self.sizes[index],)
        return item

    def __setitem__(self, index: Any, value: Any) -> None:
        """Code that follows reads a copy with the new elements; what was computed before stays as it is."""

        def changed(x: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
            out = x.clone()
            out[index] = value
            return out

        new = self.program.call(changed, (self, index, value), {}, "set_value")
        self.program.write(self, new.value)

    __add__ = _binary(operator.add, "elementwise_add")
    __radd__ = _binary(operator.add, "elementwise_add", swapped=True)
    __sub__ = _binary(operator.sub, "elementwise_sub")
    __rsub__ = _binary(operator.sub, "elementwise_sub", swapped=True)
    __mul__ = _binary(operator.mul, "elementwise_mul")
    __rmul__ = _binary(operator.mul, "elementwise_mul", swapped=True)
    __truediv__ = _binary(operator.truediv, "elementwise_div")
    __rtruediv__ = _binary(operator.truediv, "elementwise_div", swapped=True)
    __floordiv__ = _binary(operator.floordiv, "elementwise_floordiv")
    __rfloordiv__ = _binary(operator.floordiv, "elementwise_floordiv", swapped=True)
    __mod__ = _binary(operator.mod, "elementwise_mod")
    __rmod__ = _binary(operator.mod, "elementwise_mod", swapped=True)
    __pow__ = _binary(operator.pow, "elementwise_pow")
    __rpow__ = _binary(operator.pow, "elementwise_pow", swapped=True)
    __matmul__ = _binary(operator.matmul, "matmul")
    __rmatmul__ = _binary(operator.matmul, "matmul", swapped=True)
    __and__ = _binary(operator.and_, "bitwise_and")
    __rand__ = _binary(operator.and_, "bitwise_and", swapped=True)
    __or__ = _binary(operator.or_, "bitwise_or")
    __ror__ = _binary(operator.or_, "bitwise_or", swapped=True)
    __lt__ = _binary(operator.lt, "less_than")
    __le__ = _binary(operator.le, "less_equal")
    __gt__ = _binary(operator.gt, "greater_than")
    __ge__ = _binary(operator.ge, "greater_equal")
    __eq__ = _binary(operator.eq, "equal")
    __ne__ = _binary(operator.ne, "not_equal")
    __neg__ = _unary(operator.neg, "scale")
    __abs__ = _unary(operator.abs, "abs")
    __invert__ = _unary(operator.invert, "bitwise_not")


class Parameter(Variable):
    """A trainable variable of the scope."""

    persistable = True

    def __init__(
        self,
        program: "Program",
        name: str,
        value: torch.Tensor,
        *,
        trainable: bool = True,
        learning_rate: float = 1.0,
        regularizer: Any = None,
        need_clip: bool = True,
        initializer: InitFunction | None = None,
    ) -> None:
        super().__init__(program, name, value, stop_gradient=not trainable)
        if not math.isfinite(learning_rate):
            raise ProgramError(
                f"parameter {name!r} has learning rate factor {learning_rate}; use a finite number"
            )
        self.learning_rate = learning_rate
        """Multiplies the optimizer's rate for this parameter."""
        self.regularizer = regularizer
        self.need_clip = need_clip
        self.is_distributed = False
        self.is_sparse = False
        """True: the table of an embedding built with is_sparse; ranks all-gather the rows that they used."""
        self.initializer = initializer
        """Computes its initial value; None: unknown, as in a loaded program."""

    @property
    def trainable(self) -> bool:
        return not self._stop_gradient

    @trainable.setter
    def trainable(self, on: bool) -> None:
        self.stop_gradient = not on

    @property
    def optimize_attr(self) -> dict[str, float]:
        return {"learning_rate": self.learning_rate}


def _shown(size: int | torch.SymInt) -> int:
    """The number if the size is known, also if it was inferred: `[-1, 5] + [4, 5]` makes it 4. Else -1."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression) if expression.is_number else -1


def first_variable(tree: Any) -> Variable | None:
    """The first Variable in nested lists, tuples and dicts."""
    if isinstance(tree, Variable):
        return tree
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, list | tuple):
        return next((variable for part in tree if (variable := first_variable(part)) is not None), None)
    return None
