"""sync_batch_norm: equal to one batch norm over the batches of all ranks, in every layout."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine import collective
from argosy.engine.ops.batch_norm import sync_batch_norm, sync_batch_norm_backward
from tests.ranks import ForkServer

EPS = 1e-5
SHARES = {1: [6], 3: [3, 0, 4]}
"""Samples of each rank; one has none."""
SHAPES = [(5,), (5, 4), (5, 3, 4), (5, 2, 3, 4)]
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t.contiguous(),
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "transposed": lambda t: t.mT.contiguous().mT,
    "every second": lambda t: t.repeat_interleave(2, dim=-1)[..., ::2],
}


def assert_as_one_process(shape: tuple[int, ...], layout: str, dtype: torch.dtype, affine: bool) -> None:
    """This rank's y, dx, shares of dw and db, and statistics against torch's on the whole batch."""
    group = collective.world().group("dp")
    shares, rank = SHARES[group.size], collective.world().rank
    torch.manual_seed(7)
    x = 3 + 2 * torch.randn(sum(shares), *shape, dtype=dtype)
    dy = torch.randn_like(x)
    weight, bias = (torch.randn(shape[0], dtype=dtype) if affine else None for _ in range(2))
    leaves = [t.clone().requires_grad_() if t is not None else None for t in (x, weight, bias)]
    wanted = F.batch_norm(leaves[0], None, None, leaves[1], leaves[2], True, eps=EPS)
    wanted.backward(dy)
    mine = [LAYOUTS[layout](t.split(shares)[rank]) for t in (x, dy)]

    y, mean, invstd, count = sync_batch_norm(mine[0], weight, bias, EPS, "dp")
    mask = [True, affine, affine]
    dx, *shared = sync_batch_norm_backward(mine[1], mine[0], weight, mean, invstd, count, mask, "dp")

    flat = x.transpose(0, 1).flatten(1)
    tight = {"rtol": 1e-6, "atol": 1e-6} if dtype is torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(y, wanted.detach().split(shares)[rank], **tight)
    torch.testing.assert_close(mean, flat.mean(1), **tight)
    torch.testing.assert_close(invstd, (flat.var(1, correction=0) + EPS).rsqrt(), **tight)
    assert count.item() == flat.shape[1]
    torch.testing.assert_close(dx, leaves[0].grad.split(shares)[rank], **tight)
    for share, leaf in zip(shared, leaves[1:], strict=True):
        if affine:
            tolerance = {name: 5 * value for name, value in tight.items()}  # sums of up to 168 elements
            torch.testing.assert_close(group.all_reduce(share), leaf.grad, **tolerance)


def all_shapes_and_layouts() -> None:
    for dtype in (torch.float32, torch.float64):
        for shape in SHAPES:
            assert_as_one_process(shape, "contiguous", dtype, affine=True)
        for layout in LAYOUTS:
            assert_as_one_process((5, 3, 4), layout, dtype, affine=layout != "channels_last")


def a_large_mean_costs_no_digits() -> None:
    """A sum of squares would lose the variance altogether: 1e8 + 1 is 1e8 in float32."""
    rank, size = collective.world().rank, collective.world().size
    torch.manual_seed(1)
    x = torch.randn(size, 500, 1, dtype=torch.float64)
    _, mean, invstd, _ = sync_batch_norm((1e4 + x[rank]).float(), None, None, 0.0, "dp")
    torch.testing.assert_close(invstd.double(), 1 / x.std(correction=0).reshape(1), rtol=1e-3, atol=0)
    torch.testing.assert_close(mean, torch.tensor([1e4]), rtol=1e-5, atol=0)


def on_three_ranks() -> None:
    collective.connect()
    all_shapes_and_layouts()
    a_large_mean_costs_no_digits()


def test_alone_it_is_torchs_batch_norm() -> None:
    all_shapes_and_layouts()


def test_three_ranks_are_as_one_process_with_the_whole_batch(ranks: ForkServer) -> None:
    ranks.check(3, on_three_ranks)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_fake_kernel_knows_shape_strides_and_dtype(layout: str, dtype: torch.dtype) -> None:
    x, dy = (LAYOUTS[layout](torch.randn(4, 5, 6, 7).to(dtype)) for _ in range(2))
    weight, bias = torch.randn(5), torch.randn(5)
    out = sync_batch_norm(x, weight, bias, EPS, "dp")
    back = sync_batch_norm_backward(dy, x, weight, *out[1:], [True, True, True], "dp")
    with FakeTensorMode() as mode:
        fx, fdy, fw, fb = (mode.from_tensor(t) for t in (x, dy, weight, bias))
        fake = sync_batch_norm(fx, fw, fb, EPS, "dp")
        fake_back = sync_batch_norm_backward(fdy, fx, fw, *fake[1:], [True, True, True], "dp")
    for real, one in zip((*out, *back), (*fake, *fake_back), strict=True):
        assert (real.shape, real.stride(), real.dtype) == (one.shape, one.stride(), one.dtype)


def test_what_is_masked_is_not_computed() -> None:
    x, dy = torch.randn(4, 5), torch.randn(4, 5)
    _, *statistics = sync_batch_norm(x, None, None, EPS, "dp")
    dx, dweight, dbias = sync_batch_norm_backward(dy, x, None, *statistics, [False, False, True], "dp")
    assert dx is None
    assert dweight is None
    torch.testing.assert_close(dbias, dy.sum(0))
