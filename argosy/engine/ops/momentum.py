"""momentum: v = mu · v + (g + decay · p), p -= lr · v, in one pass over memory.

With Nesterov's p -= lr · (g + decay · p + mu · v). v starts at zero, and stays there if mu is 0. `master` is a
float32 copy of a 16-bit parameter: the master is updated, and the parameter is set to its rounded value.
"""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from argosy.engine.ops.match_layout import match_layout
from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.sgd import sgd_lists


def _kernel(
    param: Tensor,
    grad: Tensor,
    velocity: Tensor,
    rate: Tensor,
    factor: float,
    mu: float,
    nesterov: bool,
    weight_decay: float,
    master: Tensor | None = None,
) -> None:
    lr = rate.item() * factor

    def update(*tensors: Tensor) -> None:
        lists = ([t] for t in tensors)
        sgd_lists(*lists, lr=lr, weight_decay=weight_decay, mu=mu, nesterov=nesterov)

    if master is None:
        match_layout(update, param, grad, velocity)
    else:
        match_layout(update, master, grad.to(master.dtype), velocity)
        param.copy_(master)


momentum = declare(
    "momentum(Tensor(a!) param, Tensor grad, Tensor(b!) velocity, Tensor rate, float factor, float mu, "
    "bool nesterov, float weight_decay, Tensor(m!)? master=None) -> ()",
    _kernel,
    lambda *args: None,
)
SPEC = OpSpec(momentum, _kernel)
