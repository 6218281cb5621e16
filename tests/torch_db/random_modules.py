"""What must hold for a random module whose draws are not eager mode's: distribution, scale, gradient."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tests.torch_db.compare import weights

_BY_CHANNEL = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def broken_property(
    module: nn.Module,
    inputs: Sequence[Tensor],
    actual: Sequence[Any],
    gradients: Sequence[Any],
    wanted: Sequence[Any],
) -> str:
    """The property that the outputs lack, as a sentence; "" if all hold."""
    for place, (have, want) in enumerate(zip(actual, wanted, strict=True)):
        if isinstance(want, Tensor) and (have.shape, have.dtype) != (want.shape, want.dtype):
            return f"output {place}: {have.dtype}{list(have.shape)} where eager has {want.dtype}{list(want.shape)}"
        if isinstance(want, Tensor) and have.isfinite().all() != want.isfinite().all():
            return f"output {place} is not finite"
    for kinds, holds in _PROPERTIES:
        if isinstance(module, kinds):
            return holds(module, inputs[0], actual[0], gradients[0] if gradients else None)
    return ""


def _dropped(module: Any, x: Tensor, out: Tensor, gradient: Tensor | None) -> str:
    """Each element is 0 or x / (1 - p), and so is its gradient; the share of zeros is p."""
    nonzero = out != 0
    scale = 0.0 if module.p == 1 else 1 / (1 - module.p)
    if not torch.allclose(out[nonzero], x[nonzero] * scale, rtol=1e-4, atol=1e-5):
        return "kept values are not x / (1 - p)"
    if gradient is not None and not torch.allclose(
        gradient, weights(out) * nonzero * scale, rtol=1e-4, atol=1e-5
    ):
        return "the gradient does not follow the mask of forward"
    if isinstance(module, _BY_CHANNEL):
        nonzero = nonzero.flatten(2).any(2) if out.ndim > 2 else nonzero.any(-1)
    return _share(nonzero, 1 - module.p)


def _share(kept: Tensor, share: float) -> str:
    count, sigma = kept.numel(), (kept.numel() * share * (1 - share)) ** 0.5
    gap = abs(float(kept.sum()) - count * share)
    return (
        f"{int(kept.sum())} of {count} values are kept at p={1 - share:.2f}" if gap > 5 * sigma + 1e-9 else ""
    )


def _leaky(module: Any, x: Tensor, out: Tensor, gradient: Tensor | None) -> str:
    """x where it is positive, and between lower and upper times x where it is not."""
    slope = (out / x)[x < 0]
    if not torch.equal(out[x >= 0], x[x >= 0]):
        return "positive values are changed"
    inside = (slope >= module.lower - 1e-6) & (slope <= module.upper + 1e-6)
    return "" if bool(inside.all()) else "a slope is outside of [lower, upper]"


def _pooled(module: Any, x: Tensor, out: Tensor, gradient: Tensor | None) -> str:
    """Every value is one of the input's."""
    return "" if bool(torch.isin(out, x).all()) else "a value is none of the input's"


_Property = Callable[[Any, Tensor, Tensor, Tensor | None], str]
_PROPERTIES: list[tuple[tuple[type[nn.Module], ...], _Property]] = [
    ((nn.Dropout, *_BY_CHANNEL), _dropped),
    ((nn.RReLU,), _leaky),
    ((nn.FractionalMaxPool2d, nn.FractionalMaxPool3d), _pooled),
]
