"""Pieces of random nets: modules as users write them, each made by random choices for an input of known sizes."""

# SPDX-License-Identifier: Apache-2.0
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from tests.torch_db import net_functions

Shape = tuple[int, ...]
"""Sizes without the batch."""
MOST_VALUES = 160
"""Of an activation, per row of the batch."""


class Choices(random.Random):
    """Random choices of a net, and the probability of its dropouts."""

    def __init__(self, seed: int, p: float) -> None:
        super().__init__(seed)
        self.p = p

    def chance(self, share: float = 0.5) -> bool:
        return self.random() < share


ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.Hardswish, nn.PReLU, nn.Softplus, nn.Mish,
    nn.Sigmoid, nn.SELU, nn.ReLU6, nn.Hardtanh, nn.Softsign, nn.LogSigmoid, nn.Identity,
    lambda: nn.ReLU(inplace=True), lambda: nn.ELU(inplace=True), lambda: nn.GELU("tanh"),
)  # fmt: skip


# --- layers -------------------------------------------------------------------------------------------


def linear(choices: Choices, shape: Shape) -> nn.Module:
    layer = nn.Linear(shape[-1], choices.choice((4, 6, 8)), bias=choices.chance(0.8))
    return nn.Sequential(layer, choices.choice(ACTIVATIONS)())


def convolution(choices: Choices, shape: Shape) -> nn.Module:
    dims, channels = len(shape) - 1, shape[0]
    kinds = {1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d)}[dims]
    out = choices.choice((4, 6))
    groups = 2 if channels % 2 == 0 and choices.chance(0.3) else 1
    kind = choices.choice((kinds[0], kinds[0], kinds[1]))
    options: dict[str, Any] = {"bias": choices.chance(), "stride": choices.choice((1, 1, 2))}
    if kind is kinds[0]:
        options["padding_mode"] = choices.choice(("zeros", "zeros", "circular", "replicate"))
    layer = kind(channels, out, choices.choice((1, 2, 3)), padding=1, groups=groups, **options)
    sizes = _after(layer, shape)
    return nn.Sequential(layer, norm(choices, sizes), choices.choice(ACTIVATIONS)())


def _after(module: nn.Module, shape: Shape) -> Shape:
    with torch.no_grad():
        return tuple(module(torch.zeros(2, *shape)).shape[1:])


def norm(choices: Choices, shape: Shape) -> nn.Module:
    """A normalisation of [batch, channels, …]."""
    dims, channels = len(shape) - 1, shape[0]
    batch: Any = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d}[dims]
    makers: list[Callable[[], nn.Module]] = [
        lambda: batch(channels),
        lambda: batch(channels, momentum=0.3, affine=False),
        lambda: batch(channels, momentum=None),
        lambda: batch(channels, track_running_stats=False),
        lambda: nn.GroupNorm(2 if channels % 2 == 0 else 1, channels),
        lambda: nn.LayerNorm(shape),
        lambda: nn.LayerNorm(shape[-1:], elementwise_affine=False),
        lambda: nn.RMSNorm(shape[-1]),
    ]
    if dims:
        instance = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d}[dims]
        makers += [
            lambda: instance(channels, track_running_stats=True),
            lambda: instance(channels, affine=True, track_running_stats=True),
            lambda: instance(channels, affine=True),
        ]
    return choices.choice(makers)()


def dropout(choices: Choices, shape: Shape) -> nn.Module:
    kinds: list[type[nn.Module]] = [nn.Dropout, nn.AlphaDropout]
    kinds += {1: [], 2: [nn.Dropout1d, nn.FeatureAlphaDropout], 3: [nn.Dropout2d, nn.FeatureAlphaDropout]}[
        len(shape)
    ]
    inner = choices.choice(kinds)(choices.p)
    return nn.Sequential(inner, nn.Linear(shape[-1], shape[-1])) if choices.chance() else inner


class FunctionalDropout(nn.Module):
    """Dropout, noise and stochastic depth by functions."""

    def __init__(self, p: float, kind: str) -> None:
        super().__init__()
        self.p, self.kind = p, kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "function":
            return F.dropout(x, self.p, self.training)
        if not self.training:
            return x
        if self.kind == "noise":
            return x + self.p * torch.randn_like(x)
        if self.kind == "bernoulli":
            return x * torch.bernoulli(torch.full_like(x, 1 - self.p)) / (1 - self.p)
        keep = torch.rand(x.shape[0], *[1] * (x.ndim - 1)) >= self.p
        return x * keep / (1 - self.p)


def functional_dropout(choices: Choices, shape: Shape) -> nn.Module:
    return FunctionalDropout(choices.p, choices.choice(("function", "noise", "bernoulli", "depth")))


class Function(nn.Module):
    """A function without parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        return self.function.__name__


def function(choices: Choices, shape: Shape) -> nn.Module:
    """One or two functions that fit the input."""
    modules: list[nn.Module] = []
    for _ in range(choices.choice((1, 1, 2))):
        modules.append(Function(_fitting_function(choices, shape)))
        shape = _after(modules[-1], shape)
    return modules[0] if len(modules) == 1 else nn.Sequential(*modules)


def _fitting_function(choices: Choices, shape: Shape) -> Callable[[Tensor], Tensor]:
    for _ in range(100):
        given = net_functions.BY_DIMS[len(shape) + 1] if choices.chance() else net_functions.ANY
        candidate = choices.choice(given)
        try:
            after = _after(Function(candidate), shape)
        except (RuntimeError, ValueError, IndexError, TypeError):
            continue
        if is_small(after):
            return candidate
    raise ValueError(f"no function fits {shape}")


def is_small(shape: Shape) -> bool:
    """Whether an activation may have these sizes."""
    return 0 < len(shape) < 4 and min(shape) > 0 and math.prod(shape) <= MOST_VALUES and 2 <= shape[-1] <= 24


# --- sequences ----------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """A recurrent layer; what it returns of its results, and its first state, differ."""

    def __init__(self, rnn: Any, result: str, has_state: bool) -> None:
        super().__init__()
        self.rnn, self.result = rnn, result
        count = rnn.num_layers * (2 if rnn.bidirectional else 1)
        self.state = nn.Parameter(0.1 * torch.randn(count, 1, rnn.hidden_size)) if has_state else None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.rnn.batch_first else x.transpose(0, 1)
        state = None
        if self.state is not None:
            state = self.state.expand(-1, x.shape[0 if self.rnn.batch_first else 1], -1).contiguous()
            state = (state, torch.zeros_like(state)) if isinstance(self.rnn, nn.LSTM) else state
        out, last = self.rnn(x, state)
        last = last[1] if isinstance(last, tuple) else last
        if self.result == "again":
            out, _ = self.rnn(x.flip(-1), (last, last) if isinstance(self.rnn, nn.LSTM) else last)
        if self.result == "last":
            return last.transpose(0, 1).flatten(1)
        return out if self.rnn.batch_first else out.transpose(0, 1)


def recurrent(choices: Choices, shape: Shape) -> nn.Module:
    layers = choices.choice((1, 1, 2))
    options = {"dropout": choices.p} if layers > 1 else {}
    kind: Any = choices.choice((nn.LSTM, nn.GRU, nn.RNN))
    if kind is nn.RNN:
        options["nonlinearity"] = choices.choice(("tanh", "relu"))
    rnn = kind(
        shape[-1], 4, layers, bidirectional=choices.chance(0.3), batch_first=choices.chance(0.7),
        bias=choices.chance(0.8), **options,
    )  # fmt: skip
    return Recurrent(rnn, choices.choice(("all", "all", "last", "again")), choices.chance(0.3))


class CellLoop(nn.Module):
    """A cell called for every step of time."""

    def __init__(self, cell: nn.LSTMCell | nn.GRUCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state: Any = x.new_zeros(x.shape[0], self.cell.hidden_size)
        if isinstance(self.cell, nn.LSTMCell):
            state = (state, state)
        states = []
        for step in x.unbind(1):
            state = self.cell(step, state)
            states.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(states, 1)


def cell_loop(choices: Choices, shape: Shape) -> nn.Module:
    return CellLoop(choices.choice((nn.LSTMCell, nn.GRUCell))(shape[-1], 4))


class Attention(nn.Module):
    """Self-attention, with or without a causal mask, or attention of learned queries."""

    def __init__(self, width: int, length: int, kind: str, p: float, batch_first: bool) -> None:
        super().__init__()
        self.kind = kind
        self.attention = nn.MultiheadAttention(
            width,
            2 if width % 2 == 0 else 1,
            dropout=p,
            batch_first=batch_first,
            add_bias_kv=kind == "bias_kv",
        )
        self.queries = nn.Parameter(torch.randn(1, 2, width)) if kind == "queries" else None
        self.register_buffer("mask", torch.full((length, length), -torch.inf).triu(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        queries = x if self.queries is None else self.queries.expand(x.shape[0], -1, -1)
        memory = x
        if not self.attention.batch_first:
            queries, memory = queries.transpose(0, 1), memory.transpose(0, 1)
        mask = self.mask if self.kind == "causal" else None
        out, weights = self.attention(
            queries, memory, memory, attn_mask=mask, need_weights=self.kind != "no weights"
        )
        out = out if self.attention.batch_first else out.transpose(0, 1)
        return out if self.kind != "weights" else torch.cat([out, weights], -1)


def attention(choices: Choices, shape: Shape) -> nn.Module:
    kind = choices.choice(("plain", "causal", "queries", "no weights", "weights", "bias_kv"))
    return Attention(shape[1], shape[0], kind, choices.p, choices.chance(0.7))


def encoder_layer(choices: Choices, shape: Shape) -> nn.Module:
    width = shape[1]
    layer = nn.TransformerEncoderLayer(
        width, 2 if width % 2 == 0 else 1, 8, dropout=choices.p, batch_first=True,
        activation=choices.choice((F.relu, F.gelu)), norm_first=choices.chance(),
    )  # fmt: skip
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False) if choices.chance(0.2) else layer


class Positions(nn.Module):
    """Adds what is learned for each place."""

    def __init__(self, width: int, by_embedding: bool) -> None:
        super().__init__()
        self.by_embedding = by_embedding
        self.table = nn.Embedding(40, width)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if self.by_embedding:
            return x + self.table(torch.arange(length))
        return x + self.table.weight[:length].unsqueeze(0)


def positions(choices: Choices, shape: Shape) -> nn.Module:
    return Positions(shape[1], choices.chance())


# --- state --------------------------------------------------------------------------------------------


class Running(nn.Module):
    """Keeps statistics of training in buffers, in one of the ways that users have."""

    mean: Tensor
    count: Tensor
    recent: Tensor

    def __init__(self, shape: Shape, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("mean", torch.zeros(shape), persistent=kind != "lerp")
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("recent", torch.zeros(3, *shape))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return getattr(self, f"_{self.kind}")(x)
        return x - self.mean + 0.1 * self.recent.mean(0)

    def _assigned(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)  # with a gradient that nothing reads
        return x - x.mean(0)

    def _detached(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        self.count = self.count + 1
        return x - self.mean

    def _read_before(self, x: Tensor) -> Tensor:
        out = x - self.mean
        with torch.no_grad():
            self.mean = torch.where(self.count == 0, x.mean(0), 0.8 * self.mean + 0.2 * x.mean(0))
            self.count += 1
        return out

    def _lerp(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.count += 1
            self.mean.lerp_(x.mean(0), 0.2)
        return x - self.mean

    def _in_place(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        self.count.add_(1)
        return x - self.mean / self.count

    def _queue(self, x: Tensor) -> Tensor:
        self.recent = torch.cat([self.recent[1:], x.detach().mean(0, keepdim=True)])
        return x - self.recent.mean(0)

    def _row(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.recent[1:] = self.recent[:-1].clone()
            self.recent[0] = x.mean(0)
        return x - 0.5 * self.recent[0]

    def _slot(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.recent.index_copy_(0, (self.count % 3).view(1), x.mean(0, keepdim=True))
            self.count.copy_(self.count + 1)
        return x * (1 + 0.1 * self.recent.sum(0).tanh())


def running(choices: Choices, shape: Shape) -> nn.Module:
    kinds = ("assigned", "detached", "read_before", "lerp", "in_place", "queue", "row", "slot")
    return Running(shape, choices.choice(kinds))


class ShadowWeight(nn.Module):
    """Evaluates with an average of the weights of training."""

    shadow: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("shadow", self.layer.weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.shadow.lerp_(self.layer.weight, 0.3)
            return self.layer(x)
        return F.linear(x, self.shadow, self.layer.bias)


def shadow_weight(choices: Choices, shape: Shape) -> nn.Module:
    return ShadowWeight(shape[-1])


class Mode(nn.Module):
    """Computes something else in training."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(width, width), kind

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if self.kind == "eval only":
            return y if self.training else y.clamp(-1, 1)
        if self.training:
            y = y * 1.5 if self.kind == "scale" else y + 0.1 * x.mean(0)
        return y


def mode(choices: Choices, shape: Shape) -> nn.Module:
    return Mode(shape[-1], choices.choice(("scale", "mean", "eval only")))


# --- gradient hooks -----------------------------------------------------------------------------------


class HookedTensor(nn.Module):
    """A hook of a tensor that forward computes."""

    def __init__(self, hook: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.hook = hook

    def forward(self, x: Tensor) -> Tensor:
        y = x * 1.1
        if y.requires_grad:
            y.register_hook(self.hook)
        return y


HOOKS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda g: 0.5 * g,
    lambda g: g.clamp(-0.01, 0.01),
    lambda g: g / (1 + g.norm()),
    lambda g: torch.where(g > 0, 2 * g, g),
)


def hooked_tensor(choices: Choices, shape: Shape) -> nn.Module:
    return HookedTensor(choices.choice(HOOKS))


def hooked_parameter(choices: Choices, shape: Shape) -> nn.Module:
    layer = nn.Linear(shape[-1], 6)
    if choices.chance(0.25):
        layer.weight.register_post_accumulate_grad_hook(_halve_gradient)
    else:
        layer.weight.register_hook(choices.choice(HOOKS))
        if choices.chance(0.3):
            layer.weight.register_hook(choices.choice(HOOKS))
    return layer


def _halve_gradient(parameter: Tensor) -> None:
    if parameter.grad is not None:
        parameter.grad.mul_(0.5)


def _scale_all(gradients: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    return tuple(None if g is None else 0.7 * g for g in gradients)


def hooked_module(choices: Choices, shape: Shape) -> nn.Module:
    layer = nn.Linear(shape[-1], 6)
    kinds = choices.sample(("forward", "pre", "backward", "backward pre"), choices.choice((1, 1, 2)))
    if "forward" in kinds:
        layer.register_forward_hook(lambda module, args, out: 1.5 * out)
    if "pre" in kinds:
        layer.register_forward_pre_hook(lambda module, args: (args[0] + 0.1,))
    if "backward" in kinds:
        layer.register_full_backward_hook(lambda module, inputs, outputs: _scale_all(inputs))
    if "backward pre" in kinds:
        layer.register_full_backward_pre_hook(lambda module, outputs: _scale_all(outputs))
    return nn.Sequential(layer, nn.Tanh())


# --- parametrizations ---------------------------------------------------------------------------------


class Symmetric(nn.Module):
    """A parametrization as in torch's tutorial."""

    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)


def parametrized(choices: Choices, shape: Shape) -> nn.Module:
    width = shape[-1]
    layer: nn.Module = nn.Linear(width, choices.choice((4, width)))
    if len(shape) == 3 and choices.chance():
        layer = nn.Conv2d(shape[0], 4, 3, padding=1)
    makers: list[Callable[[nn.Module], nn.Module]] = [
        parametrizations.weight_norm,
        lambda m: parametrizations.weight_norm(m, dim=None),
        parametrizations.spectral_norm,
        lambda m: parametrizations.spectral_norm(m, n_power_iterations=2),
        lambda m: parametrizations.orthogonal(m, orthogonal_map=choices.choice(("matrix_exp", "cayley"))),
        lambda m: nn.utils.weight_norm(m),  # noqa: PLW0108  (torch warns of it when it is called)
        lambda m: nn.utils.spectral_norm(m),  # noqa: PLW0108
    ]
    if isinstance(layer, nn.Linear) and layer.out_features == width:
        makers.append(lambda m: parametrize.register_parametrization(m, "weight", Symmetric()))
    return nn.Sequential(choices.choice(makers)(layer), choices.choice(ACTIVATIONS)())


# --- around other pieces ------------------------------------------------------------------------------


class Residual(nn.Module):
    """x + f(x), plain or with a learned factor."""

    def __init__(self, inner: nn.Module, has_factor: bool) -> None:
        super().__init__()
        self.inner = inner
        self.factor = nn.Parameter(torch.tensor(0.5)) if has_factor else None

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return x + y if self.factor is None else x + self.factor * y


class Twice(nn.Module):
    """The same module called twice: one after the other, or beside each other."""

    def __init__(self, inner: nn.Module, is_chained: bool) -> None:
        super().__init__()
        self.inner, self.is_chained = inner, is_chained

    def forward(self, x: Tensor) -> Tensor:
        if self.is_chained:
            return self.inner(self.inner(x))
        return self.inner(x) - self.inner(0.5 * x)


class Alias(nn.Module):
    """One module under two names."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.first = self.second = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) * 0.5 + self.second(x.flip(0))


class Checkpointed(nn.Module):
    """Recomputes the activations in backward."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return checkpoint(self.inner, x, use_reentrant=False)
        return self.inner(x)


class OverSteps(nn.Module):
    """A module called on every step of time as a batch of its own."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.shape[:2]
        y = self.inner(x.reshape(batch * length, *x.shape[2:]))
        return y.view(batch, length, *y.shape[1:])


class Projected(nn.Module):
    """An einsum, or a matmul, with a parameter."""

    def __init__(self, width: int, by_einsum: bool) -> None:
        super().__init__()
        self.by_einsum = by_einsum
        self.weight = nn.Parameter(torch.randn(width, 6) / width**0.5)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("b...d,de->b...e", x, self.weight) if self.by_einsum else x @ self.weight


def projected(choices: Choices, shape: Shape) -> nn.Module:
    return Projected(shape[-1], choices.chance())


def residual(choices: Choices, shape: Shape) -> nn.Module:
    return Residual(simple(choices, shape), choices.chance())


def twice(choices: Choices, shape: Shape) -> nn.Module:
    return Twice(simple(choices, shape), choices.chance())


def alias(choices: Choices, shape: Shape) -> nn.Module:
    return Alias(simple(choices, shape))


def checkpointed(choices: Choices, shape: Shape) -> nn.Module:
    return Checkpointed(choices.choice((linear, hooked_module, projected))(choices, shape))


def over_steps(choices: Choices, shape: Shape) -> nn.Module:
    return OverSteps(simple(choices, shape[1:]))


def frozen(choices: Choices, shape: Shape) -> nn.Module:
    """Some or all parameters without a gradient."""
    inner = simple(choices, shape)
    parameters = list(inner.parameters())
    for parameter in choices.sample(parameters, choices.randint(0, len(parameters))):
        parameter.requires_grad_(False)
    return inner


Maker = Callable[[Choices, Shape], nn.Module]
FLAT: tuple[Maker, ...] = (
    linear, linear, norm, dropout, functional_dropout, running, running, shadow_weight, mode, hooked_tensor,
    hooked_parameter, hooked_module, parametrized, parametrized, projected,
)  # fmt: skip
SEQUENCE: tuple[Maker, ...] = (
    convolution, convolution, recurrent, recurrent, cell_loop, attention, attention, encoder_layer, positions,
)  # fmt: skip
IMAGE: tuple[Maker, ...] = (convolution, convolution, convolution)
AROUND: tuple[Maker, ...] = (*[residual] * 4, *[twice] * 3, *[alias] * 2, *[frozen] * 3, checkpointed)


def piece(choices: Choices, shape: Shape) -> nn.Module:
    """A module for an input of these sizes; may not fit it, then calling it raises."""
    if choices.chance(0.3):
        makers = (*AROUND, over_steps, over_steps) if len(shape) > 1 else AROUND
        return choices.choice(makers)(choices, shape)
    return simple(choices, shape)


def simple(choices: Choices, shape: Shape) -> nn.Module:
    """A piece that has no other piece inside."""
    if choices.chance(0.3):
        return function(choices, shape)
    return choices.choice(FLAT + {1: (), 2: SEQUENCE, 3: IMAGE}[len(shape)])(choices, shape)
