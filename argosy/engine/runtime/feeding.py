"""Turn what the user feeds into the tensors of a compiled step, and check names, dtypes and shapes."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
import torch

from argosy.engine.data.arrays import converted, to_tensor
from argosy.engine.data.feed import FeedReader
from argosy.engine.errors import DataError, FeedError, FeedTypeError, nearest
from argosy.engine.ir.dtypes import dtype_name
from argosy.engine.ir.program import Program
from argosy.engine.ir.ragged import companion_of
from argosy.engine.runtime.compile import Compiled, Feed, feed_of
from argosy.engine.runtime.feeding_ragged import Parts, with_companions

FeedLike = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


def feed_values(
    program: Program, compiled: Compiled, fed: Mapping[str, Any]
) -> tuple[list[torch.Tensor], dict[sympy.Symbol, int]]:
    """The tensors in the order of the step's arguments, and the values of the unknown sizes."""
    fed = with_companions(program, fed)
    values = []
    sizes: dict[sympy.Symbol, int] = {}
    for want in compiled.feeds:
        if want.name not in fed:
            raise FeedError(_missing(program, want, fed))
        values.append(_tensor(want, fed[want.name], sizes))
    if len(fed) != len(compiled.feeds):
        _check_unused(program, compiled, fed, sizes)
    return values, sizes


def fed_by_name(program: Program, feed: FeedLike) -> Mapping[str, Any]:
    """The feeds by name: those of `feed`, and the next batch of each of the program's started readers."""
    if feed is None:
        return _from_readers(program.readers)
    fed = _merged(feed)
    started = [reader for reader in program.readers if reader.is_started]
    for reader in started:
        if both := [name for name in reader.feed_names if name in fed]:
            raise FeedError(
                f"feed {both[0]!r} was given, but a started data loader feeds it: {', '.join(reader.feed_names)}; "
                f"run {program.name!r} without these feeds, or call reset() of the loader first"
            )
    return {**fed, **_from_readers(started)} if started else fed


def fed_variables(program: Program, feed: FeedLike) -> tuple[str, ...]:
    """The names in `feed` of variables that the program computes; they are fed instead."""
    if feed is None:
        return ()
    named = (program.vars.get(name) for name in _merged(feed))
    return tuple(v.name for v in named if v is not None and not (v.is_data or v.persistable))


def fed_sizes(program: Program, fed: Mapping[str, Any]) -> dict[sympy.Symbol, int]:
    """The values of the unknown sizes, as far as they follow from the fed arrays; nothing is checked."""
    sizes: dict[sympy.Symbol, int] = {}
    fed = with_companions(program, fed)
    for name in program.all_feeds().keys() & fed.keys():
        wanted = feed_of(program, name).sizes
        shape = tuple(getattr(fed[name], "shape", ()))
        shape = (*shape, 1) if _lacks_last(shape, wanted) else shape
        if len(shape) == len(wanted):
            sizes.update((w, n) for w, n in zip(wanted, shape, strict=True) if isinstance(w, sympy.Symbol))
    return sizes


def _check_unused(
    program: Program, compiled: Compiled, fed: Mapping[str, Any], sizes: dict[sympy.Symbol, int]
) -> None:
    """Check feeds that the step does not use; their sizes are checked too, because assumptions may refer to them."""
    known, used = program.all_feeds(), {want.name for want in compiled.feeds}
    for name, value in fed.items():
        if name in program.persistables():
            raise FeedError(
                f"feed {name!r} is a variable of the scope, which is not fed; set its value with "
                f"global_scope().find_var({name!r}).get_tensor().set(array, place)"
            )
        if name not in known:
            raise FeedError(
                f"feed {name!r} is not a feed of {program.name!r}{nearest(name, program.feeds())}"
            )
        if name not in used:
            _tensor(feed_of(program, name), value, sizes)


def _from_readers(readers: Iterable[FeedReader]) -> Mapping[str, Any]:
    fed: dict[str, Any] = {}
    for reader in readers:
        fed.update(reader.next_feed())
    return fed


def _merged(feed: FeedLike) -> Mapping[str, Any]:
    if isinstance(feed, Mapping):
        if not all(isinstance(name, str) for name in feed):
            raise FeedTypeError(
                "the keys of feed must be names; use feed={x.name: array}, not feed={x: array}"
            )
        return feed
    if not isinstance(feed, list | tuple) or not all(isinstance(f, Mapping) for f in feed):
        raise FeedTypeError(
            f"feed is a {type(feed).__name__}; give a dict {{name: array}} or a list of such dicts"
        )
    if len(feed) == 1:
        return feed[0]
    parts: dict[str, Parts] = {}
    for mapping in feed:
        for name, value in mapping.items():
            parts.setdefault(name, Parts()).append(value)
    for name, values in parts.items():
        if len(values) < len(feed):
            raise FeedError(
                f"feed {name!r} is in {len(values)} of {len(feed)} dicts; give it in each of them"
            )
    return parts


def _missing(program: Program, want: Feed, fed: Mapping[str, Any]) -> str:
    if (base := companion_of(want.name)) is not None and base in fed:
        return (
            f"feed {base!r} is an array, and the program needs the lengths of its sequences; feed a LoDTensor: "
            "fluid.create_lod_tensor(rows, [lengths], place)"
        )
    shape = list(program.vars[want.name].shape)
    hint = nearest(want.name, fed) if fed else " (nothing was fed)"
    return f"feed {want.name!r} ({dtype_name(want.dtype)}{shape}) is missing{hint}; pass feed={{{want.name!r}: …}}"


def _tensor(want: Feed, value: Any, sizes: dict[sympy.Symbol, int]) -> torch.Tensor:
    """The fed value as a tensor of the right dtype and shape; unknown sizes are added to `sizes`."""
    if isinstance(value, Parts):
        value = _concatenated(want, value)
    elif not isinstance(value, torch.Tensor):
        value = _converted(want, value)
    if value.dtype != want.dtype:
        raise FeedError(
            f"feed {want.name!r} is {dtype_name(value.dtype)} and must be {dtype_name(want.dtype)}; "
            f"convert it: array.astype({dtype_name(want.dtype)!r})"
        )
    if _lacks_last(value.shape, want.sizes):
        value = value.unsqueeze(-1)
    shape = value.shape
    if len(shape) != len(want.sizes):
        raise FeedError(_wrong_shape(want, shape))
    for size, wanted in zip(shape, want.sizes, strict=True):
        if isinstance(wanted, sympy.Symbol):
            expected = sizes.setdefault(wanted, size)
        else:  # a variable that the program computes has sizes such as 2*N
            expected = wanted if isinstance(wanted, int) else wanted.xreplace(sizes)
        if size != expected and isinstance(expected, int | sympy.Integer):
            raise FeedError(_wrong_shape(want, shape))
    tensor: torch.Tensor = value.detach().contiguous()
    return tensor.clone() if want.is_mutated else tensor


def _lacks_last(shape: Sequence[int], wanted: Sequence[int | sympy.Expr]) -> bool:
    """True if only a last dimension of size 1 is missing, as in labels [N] for [N, 1]; it is added as in Paddle."""
    return len(shape) > 0 and len(shape) + 1 == len(wanted) and wanted[-1] == 1


def _converted(want: Feed, value: Any) -> torch.Tensor:
    """A tensor of the value; numbers and lists of them are converted to the feed's dtype, arrays must have it."""
    array = value.numpy() if hasattr(value, "numpy") else value
    try:
        tensor = to_tensor(array, want.name)
        return tensor if isinstance(array, np.ndarray) else converted(tensor, want.dtype, want.name)
    except DataError as e:
        raise FeedError(f"feed {e}") from e


def _concatenated(want: Feed, parts: Parts) -> torch.Tensor:
    tensors = [part if isinstance(part, torch.Tensor) else _converted(want, part) for part in parts]
    if len({(t.dtype, t.shape[1:]) for t in tensors}) > 1 or not all(t.ndim for t in tensors):
        kinds = ", ".join(f"{dtype_name(t.dtype)}{list(t.shape)}" for t in tensors)
        raise FeedError(
            f"feed {want.name!r}: its {len(tensors)} parts cannot be concatenated along the first dimension: {kinds}; "
            "give them the same dtype and the same other dimensions"
        )
    return torch.cat(tensors)


def _wrong_shape(want: Feed, shape: Sequence[int]) -> str:
    wanted = ", ".join(str(s) if isinstance(s, int) else "any" for s in want.sizes)
    return f"feed {want.name!r} has shape {list(shape)} and must have [{wanted}]; reshape it, or change static.data"
