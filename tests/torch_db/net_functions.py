"""Functions of one tensor as users write them in a forward: views, indices, reductions, sizes taken from `x.shape`.

The first dimension is the batch, of unknown size when the function is recorded.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# --- any number of dimensions -------------------------------------------------------------------------


def softmax(x: Tensor) -> Tensor:
    return F.softmax(x, -1) * x.shape[-1]


def log_softmax(x: Tensor) -> Tensor:
    return F.log_softmax(x, dim=1)


def cumsum(x: Tensor) -> Tensor:
    return x.cumsum(-1) / x.shape[-1]


def cumsum_of_batch(x: Tensor) -> Tensor:
    return torch.cumsum(x, 0) / x.shape[0]


def clamp(x: Tensor) -> Tensor:
    return x.clamp(-0.7, 0.9)


def where(x: Tensor) -> Tensor:
    return torch.where(x > 0.1, x, 0.2 * x.sin())


def chunk_and_cat(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([second, first.tanh()], -1)


def split_and_stack(x: Tensor) -> Tensor:
    first, second = x.split(x.shape[-1] // 2, -1)
    return torch.stack([first, second], 1).sum(1)


def gated(x: Tensor) -> Tensor:
    return F.glu(x, -1)


def topk(x: Tensor) -> Tensor:
    return x.topk(max(1, x.shape[-1] - 1), -1).values


def topk_indices(x: Tensor) -> Tensor:
    _, indices = x.detach().topk(2, dim=-1)
    return x.gather(-1, indices) * 1.5


def gather_reversed(x: Tensor) -> Tensor:
    index = torch.arange(x.shape[-1] - 1, -1, -1).expand(x.shape)
    return torch.gather(x, -1, index)


def sort(x: Tensor) -> Tensor:
    values, _ = torch.sort(x, -1, descending=True)
    return values


def index_select(x: Tensor) -> Tensor:
    return x.index_select(-1, torch.tensor([1, 0, 1, 2]))


def index_by_list(x: Tensor) -> Tensor:
    return x[..., [2, 0, 1]]


def every_second(x: Tensor) -> Tensor:
    return x[..., ::2]


def pad(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1), value=0.5)


def crop_or_pad(x: Tensor) -> Tensor:
    if x.shape[-1] > 5:
        return x[..., :5]
    return F.pad(x, (0, 5 - x.shape[-1]))


def if_of_sizes(x: Tensor) -> Tensor:
    if x.ndim > 2 and x.shape[1] % 2 == 0:
        return x[:, : x.shape[1] // 2] - x[:, x.shape[1] // 2 :]
    return x * len(x.shape)


def flatten(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], -1)


def flatten_with_known_size(x: Tensor) -> Tensor:
    return x.reshape(-1, math.prod(x.shape[1:]))


def to_pairs(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], 2, -1)


def unflatten(x: Tensor) -> Tensor:
    return x.unflatten(-1, (2, -1)).transpose(1, -1).flatten(1, 2) if x.ndim == 2 else x.unsqueeze(1).sum(1)


def normalise(x: Tensor) -> Tensor:
    return F.normalize(x + 0.1, dim=-1)


def standardise(x: Tensor) -> Tensor:
    dims = list(range(1, x.ndim))
    return (x - x.mean(dims, keepdim=True)) / (x.std(dims, keepdim=True) + 0.5)


def functional_layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[1:], eps=0.1)


def centred_over_batch(x: Tensor) -> Tensor:
    return x - x.mean(0, keepdim=True)


def scaled_by_batch_size(x: Tensor) -> Tensor:
    return x * (1 + 1 / x.shape[0])


def position_in_batch(x: Tensor) -> Tensor:
    place = torch.arange(x.shape[0], dtype=x.dtype) / x.size(0)
    return x + place.view(-1, *[1] * (x.ndim - 1))


def rolled_batch(x: Tensor) -> Tensor:
    return 0.5 * (x + x.roll(1, 0))


def flipped_batch(x: Tensor) -> Tensor:
    return x - 0.3 * torch.flip(x, dims=[0])


def doubled_batch(x: Tensor) -> Tensor:
    both = torch.cat([x, x.cos()], 0)
    first, second = both[: x.shape[0]], both[x.shape[0] :]
    return first + second


def repeated_batch(x: Tensor) -> Tensor:
    twice = x.repeat_interleave(2, dim=0)
    return twice.view(x.shape[0], 2, *x.shape[1:]).amax(1)


def other_rows(x: Tensor) -> Tensor:
    """Attention of every row to every row of the batch."""
    rows = x.flatten(1)
    share = torch.softmax(rows @ rows.T / rows.shape[1], -1)
    return (share @ rows).view_as(x)


def zeros_beside(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_zeros(*x.shape[:-1], 2)], -1)


def ones_like(x: Tensor) -> Tensor:
    return x * torch.full_like(x, 0.5) + torch.ones_like(x)


def set_in_place(x: Tensor) -> Tensor:
    y = x * 2
    y[:, 0] = 0.25
    y[..., -1] += 1.0
    return y


def mul_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y.mul_(0.5).add_(x, alpha=0.1)
    return y.relu_() - 0.1


def masked_fill(x: Tensor) -> Tensor:
    return x.masked_fill(x.detach() < -0.5, -0.5)


def masked_fill_in_place(x: Tensor) -> Tensor:
    y = x + 1
    y.masked_fill_(y > 1.5, 1.5)
    return y


def assign_by_mask(x: Tensor) -> Tensor:
    y = x.clone()
    y[y < 0] = 0.0
    return y


def scatter_add(x: Tensor) -> Tensor:
    index = torch.arange(x.shape[-1]).remainder(2).expand_as(x)
    return torch.zeros_like(x).scatter_add(-1, index, x)


def straight_through(x: Tensor) -> Tensor:
    return x + (x.tanh() - x).detach()


def scale_without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = x.abs().mean().clamp(min=0.1)
    return x / (1 + scale)


class _Scaled(torch.autograd.Function):
    """Passes a value and scales its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradients[0] * ctx.factor * x.cos(), None


def autograd_function(x: Tensor) -> Tensor:
    return _Scaled.apply(x, 0.3)


def signs_as_classes(x: Tensor) -> Tensor:
    return F.one_hot((x > 0).long(), 2).to(x.dtype).sum(-2) / x.shape[-1] + x.mean()


def via_double(x: Tensor) -> Tensor:
    return (x.double() * 1.5).sin().to(x.dtype)


def spectrum(x: Tensor) -> Tensor:
    return torch.fft.rfft(x, dim=-1).real / x.shape[-1]


def minimum_and_maximum(x: Tensor) -> Tensor:
    return torch.minimum(x, x.mean(-1, keepdim=True)) + torch.maximum(x, x.new_tensor(0.2))


def log_sum(x: Tensor) -> Tensor:
    return x - x.logsumexp(-1, keepdim=True)


def power(x: Tensor) -> Tensor:
    return (x.abs() + 0.1) ** 0.5


def lerp(x: Tensor) -> Tensor:
    return torch.lerp(x, x.flip(-1), 0.3)


def addcmul(x: Tensor) -> Tensor:
    return torch.addcmul(x, x.tanh(), x.sigmoid(), value=0.5)


def moved_dims(x: Tensor) -> Tensor:
    return x.movedim(1, -1).contiguous()


def einsum_of_rows(x: Tensor) -> Tensor:
    return torch.einsum("b...i,b...j->b...ij", x, x.cos()).mean(-1)


# --- [batch, features] --------------------------------------------------------------------------------


def outer(x: Tensor) -> Tensor:
    return torch.einsum("bi,bj->bij", x, x.tanh())


def view_as_sequence(x: Tensor) -> Tensor:
    batch, width = x.shape
    return x.view(batch, width // 2, 2)


def as_image(x: Tensor) -> Tensor:
    return x[:, None, None, :].expand(-1, 2, 3, -1) * 0.5


def distances(x: Tensor) -> Tensor:
    """Distances to all rows of the batch, reduced over these."""
    squares = (x.unsqueeze(1) - x.unsqueeze(0)).pow(2)
    return squares.mean(1).tanh()


def addmm(x: Tensor) -> Tensor:
    width = x.shape[1]
    return torch.addmm(x, x, torch.eye(width) * 0.5, beta=0.5)


# --- [batch, time, features] --------------------------------------------------------------------------


def scores(x: Tensor) -> Tensor:
    batch, length, width = x.shape
    mask = torch.ones(length, length).tril() == 0
    weights = torch.einsum("btd,bsd->bts", x, x).div(width**0.5).masked_fill(mask, -torch.inf)
    return torch.bmm(weights.softmax(-1), x).reshape(batch, length, width)


def attend(x: Tensor) -> Tensor:
    batch, length, width = x.shape
    heads = x.view(batch, length, 2, width // 2).transpose(1, 2)
    out = F.scaled_dot_product_attention(heads, heads, heads * 0.5, is_causal=True)
    return out.transpose(1, 2).reshape(batch, length, width)


def over_steps(x: Tensor) -> Tensor:
    state, states = torch.zeros_like(x[:, 0]), []
    for step in range(x.shape[1]):
        state = torch.tanh(0.5 * state + x[:, step])
        states.append(state)
    return torch.stack(states, dim=1)


def unbound_steps(x: Tensor) -> Tensor:
    return sum(step * 0.5**place for place, step in enumerate(x.unbind(1)))


def last_step(x: Tensor) -> Tensor:
    return x[:, -1]


def mean_and_max(x: Tensor) -> Tensor:
    return torch.cat([x.mean(1), x.max(dim=1).values], dim=-1)


def transposed(x: Tensor) -> Tensor:
    return x.transpose(1, 2)


def permuted(x: Tensor) -> Tensor:
    return x.permute(0, 2, 1).contiguous().view(x.shape[0], x.shape[2], -1)


def sine_positions(x: Tensor) -> Tensor:
    place = torch.arange(x.shape[1]).unsqueeze(1)
    rate = torch.exp(torch.arange(x.shape[2]) * (-math.log(10.0) / x.shape[2]))
    return x + torch.sin(place * rate)


def interpolate_linear(x: Tensor) -> Tensor:
    return F.interpolate(x, size=x.shape[-1] + 2, mode="linear", align_corners=False)


def interpolate_nearest(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2)


def max_pool(x: Tensor) -> Tensor:
    return F.max_pool1d(x, 2, ceil_mode=True)


def avg_pool(x: Tensor) -> Tensor:
    return F.avg_pool1d(x, 3, stride=2, padding=1)


def adaptive_pool(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool1d(x, 3)


def pad_replicate(x: Tensor) -> Tensor:
    return F.pad(x, (1, 2), mode="replicate")


def as_map(x: Tensor) -> Tensor:
    return x.unsqueeze(1).repeat(1, 2, 1, 1)


def step_times_batch(x: Tensor) -> Tensor:
    batch, length, width = x.shape
    rows = F.silu(x.reshape(batch * length, width))
    return rows.view(batch, length, width)


def windows(x: Tensor) -> Tensor:
    return x.unfold(1, 2, 1).amax(-1)


# --- [batch, channels, height, width] -----------------------------------------------------------------


def interpolate_bilinear(x: Tensor) -> Tensor:
    return F.interpolate(x, size=(x.shape[-2] + 1, x.shape[-1] * 2), mode="bilinear", align_corners=True)


def interpolate_bicubic(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=1.5, mode="bicubic")


def interpolate_area(x: Tensor) -> Tensor:
    return F.interpolate(x, size=2, mode="area")


def max_pool_image(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 2, stride=1, padding=1)


def avg_pool_image(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False)


def adaptive_max_pool(x: Tensor) -> Tensor:
    return F.adaptive_max_pool2d(x, (2, None))


def global_pool(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


def pad_reflect(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1, 0, 1), mode="reflect")


def pad_circular(x: Tensor) -> Tensor:
    return F.pad(x, (1, 0, 1, 0), mode="circular")


def pixel_shuffle(x: Tensor) -> Tensor:
    return F.pixel_shuffle(x, 2)


def pixel_unshuffle(x: Tensor) -> Tensor:
    return F.pixel_unshuffle(x, 2)


def patches(x: Tensor) -> Tensor:
    return F.unfold(x, 2, stride=2).transpose(1, 2)


def as_sequence(x: Tensor) -> Tensor:
    return x.flatten(2).transpose(1, 2)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1).mean(1)


def shuffle_channels(x: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(x.shape)


def attend_image(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, 0.5 * x)


def grid_sample(x: Tensor) -> Tensor:
    theta = torch.tensor([[0.8, 0.1, 0.0], [0.0, 0.9, 0.1]]).expand(x.shape[0], -1, -1)
    grid = F.affine_grid(theta, [x.shape[0], 1, 3, 3], align_corners=False)
    return F.grid_sample(x, grid, align_corners=False)


ANY = (
    softmax, log_softmax, cumsum, cumsum_of_batch, clamp, where, chunk_and_cat, split_and_stack, gated, topk,
    topk_indices, gather_reversed, sort, index_select, index_by_list, every_second, pad, crop_or_pad, if_of_sizes,
    flatten, flatten_with_known_size, to_pairs, unflatten, normalise, standardise, functional_layer_norm,
    centred_over_batch, scaled_by_batch_size, position_in_batch, rolled_batch, flipped_batch, doubled_batch,
    repeated_batch, other_rows, zeros_beside, ones_like, set_in_place, mul_in_place, masked_fill,
    masked_fill_in_place, assign_by_mask, scatter_add, straight_through, scale_without_gradient, autograd_function,
    signs_as_classes, via_double, spectrum, minimum_and_maximum, log_sum, power, lerp, addcmul, moved_dims,
    einsum_of_rows,
)  # fmt: skip
BY_DIMS = {
    2: (outer, view_as_sequence, as_image, distances, addmm),
    3: (
        scores, attend, over_steps, unbound_steps, last_step, mean_and_max, transposed, permuted, sine_positions,
        interpolate_linear, interpolate_nearest, max_pool, avg_pool, adaptive_pool, pad_replicate, as_map,
        step_times_batch, windows,
    ),
    4: (
        interpolate_bilinear, interpolate_bicubic, interpolate_area, max_pool_image, avg_pool_image,
        adaptive_max_pool, global_pool, pad_reflect, pad_circular, pixel_shuffle, pixel_unshuffle, patches,
        as_sequence, channels_last, shuffle_channels, attend_image, grid_sample,
    ),
}  # fmt: skip
"""Number of dimensions, with the batch -> functions that need just so many."""
