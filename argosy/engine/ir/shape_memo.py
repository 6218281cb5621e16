"""Memoize the results of shape functions by op and argument shapes.

    relu(float32[N, 64, 56, 56])    miss   torch's fake kernel, some milliseconds of Python
    relu(float32[N, 64, 56, 56])    hit    an empty tensor of the same sizes and strides

torch's own cache of fake tensors checks each entry by computing it twice, and builds keys of everything that might
matter to a compiler. Here an op is memoized only if it returns new tensors that depend on nothing but its arguments.

A miss looks into the results of all programs of the process, so that building the same layers again is fast, as for a
training and a test program. There the key has all that a shape function can know of the sizes (`SizeEnv.facts`), and a
hit repeats the assumptions that the shape function made. Where all sizes are numbers (`run_with_numbers`), there are
no assumptions.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

if TYPE_CHECKING:
    from argosy.engine.ir.size_env import Requests, SizeEnv

_SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN = (
    int,
    float,
    complex,
    bool,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
_META = torch.device("meta")
_MAX_SHARED = 20_000
_is_memoizable: dict[Any, bool] = {}


@dataclass(frozen=True)
class _TensorSpec:
    """Sizes, strides, dtype and device of one tensor of a result."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device

    def map_sizes(self, function: Callable[[Any], Any]) -> "_TensorSpec":
        sizes, strides = tuple(map(function, self.sizes)), tuple(map(function, self.strides))
        return _TensorSpec(sizes, strides, self.dtype, self.device)

    def make(self, mode: FakeTensorMode) -> FakeTensor:
        # Only torch.empty_strided runs inside, so this guard is enough; leaving the modes would be expensive.
        with torch._C._DisableTorchDispatch(), in_kernel_invocation_manager(mode):
            empty = torch.empty_strided(self.sizes, self.strides, dtype=self.dtype, device=_META)
        return FakeTensor(mode, empty, self.device)


_shared: dict[Any, "tuple[Any, Requests]"] = {}
"""Key -> result, with expressions for sizes, and the assumptions that were requested. Of all programs."""


class ShapeMemo:
    """The memoized results of one program's ops; their sizes are symbols of one SizeEnv."""

    def __init__(self) -> None:
        self._results: dict[Any, Any] = {}
        self._muted_results: dict[Any, Any] = {}
        """Results computed while muted; an op that is recorded must run its shape function once for its assumptions."""

    def clear(self) -> None:
        """Discard all results: assumptions about sizes were undone, and results may depend on them."""
        self._results.clear()
        self._muted_results.clear()

    def run(
        self,
        mode: FakeTensorMode,
        target: Any,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        is_muted: bool,
    ) -> Any:
        """The result of `function`, the shape function of `target`; `is_muted`: assumptions are not recorded."""
        key = _key(target, args, kwargs)
        if key is None:
            return function(*args, **kwargs)
        known = self._results.get(key) or (self._muted_results.get(key) if is_muted else None)
        if known is not None:
            return _materialized(known, mode)
        env: SizeEnv = mode.shape_env  # type: ignore[assignment]
        results = self._muted_results if is_muted else self._results
        symbols = {s for part in key if isinstance(part, sympy.Basic) for s in part.free_symbols}
        shared_key = (torch.get_default_dtype(), *key, env.facts(symbols))
        if (shared := _shared.get(shared_key)) is not None:
            env.repeat(shared[1])
            results[key] = result = _map_sizes(shared[0], env.size_of)
            return _materialized(result, mode)
        with env.requests() as requests:
            out = function(*args, **kwargs)
        if (result := _spec_of(out, mode)) is not None:
            results[key] = result
            if requests.are_repeatable:
                if len(_shared) >= _MAX_SHARED:
                    _shared.clear()
                _shared[shared_key] = _map_sizes(result, _expression), requests
        return out


_of_numbers: dict[Any, Any] = {}
"""Key -> result, for arguments whose sizes are all numbers. Of all programs."""


def run_with_numbers(
    mode: FakeTensorMode, target: Any, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """The result of `function`, the shape function of `target`, in a mode without unknown sizes."""
    if (key := _key(target, args, kwargs)) is None:
        return function(*args, **kwargs)
    key = torch.get_default_dtype(), *key
    if (known := _of_numbers.get(key)) is not None:
        return _materialized(known, mode)
    out = function(*args, **kwargs)
    if (result := _spec_of(out, mode)) is not None:
        if len(_of_numbers) >= _MAX_SHARED:
            _of_numbers.clear()
        _of_numbers[key] = result
    return out


def _map_sizes(result: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(result, _TensorSpec):
        return result.map_sizes(function)
    return tuple(None if spec is None else spec.map_sizes(function) for spec in result)


def _expression(size: int | torch.SymInt) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _materialized(result: Any, mode: FakeTensorMode) -> Any:
    if isinstance(result, _TensorSpec):
        return result.make(mode)
    return tuple(None if spec is None else spec.make(mode) for spec in result)


def _spec_of(out: Any, mode: FakeTensorMode) -> Any:
    """The specs of a result's tensors; None if it cannot be memoized."""
    if isinstance(out, FakeTensor):
        return _tensor_spec(out, mode)
    if not isinstance(out, tuple):
        return None
    parts = [None if part is None else _spec_of(part, mode) for part in out]
    return tuple(parts) if all((p is None) == (o is None) for p, o in zip(parts, out, strict=True)) else None


def _tensor_spec(out: FakeTensor, mode: FakeTensorMode) -> _TensorSpec | None:
    known = mode.shape_env.backed_var_to_val.keys() if mode.shape_env is not None else set()
    sizes, strides = tuple(out.shape), tuple(out.stride())
    if any(isinstance(s, torch.SymInt) and not s.node.expr.free_symbols <= known for s in sizes):
        return None  # a size that depends on data is a new symbol every time
    if out.layout is not torch.strided or out.storage_offset() != 0 or out.is_conj() or out.is_neg():
        return None
    return _TensorSpec(sizes, strides, out.dtype, out.device)


def _key(target: Any, args: Any, kwargs: Any) -> Any:
    """A key such that equal keys have equal results; None if the op is not memoizable."""
    if target not in _is_memoizable:
        _is_memoizable[target] = _returns_new_tensors(target)
    if not _is_memoizable[target]:
        return None
    parts: list[Any] = [target]
    is_known = _add(args, parts) and _add(tuple(kwargs.items()), parts)
    return tuple(parts) if is_known else None


def _add(value: Any, parts: list[Any]) -> bool:
    if isinstance(value, tuple | list):
        parts.append(len(value))
        return all(_add(part, parts) for part in value)
    if isinstance(value, FakeTensor):
        if value.is_conj() or value.is_neg() or value.layout is not torch.strided:
            return False
        parts.append(value.dtype)
        parts.append(value.device)
        return _add(tuple(value.shape), parts) and _add(tuple(value.stride()), parts)
    if isinstance(value, _SIZES):
        parts.append(value.node.expr)
        return True
    if isinstance(value, _PLAIN):
        parts.append(type(value))
        parts.append(value)
        return True
    return False


def _returns_new_tensors(target: Any) -> bool:
    if not isinstance(target, OpOverload):
        return False
    schema = target._schema
    if any(a.alias_info is not None for a in (*schema.arguments, *schema.returns)):
        return False
    data_dependent = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
    is_tensors = bool(schema.returns) and all(
        str(r.type) in ("Tensor", "Optional[Tensor]") for r in schema.returns
    )
    return is_tensors and not data_dependent & set(target.tags)
