"""store_mean, adapt_k_steps: the ends of an average of parameters over the ranks.

    store_mean(w, sum, 2)                              w = sum / 2
    adapt_k_steps(k, last, step, first, sum, …)        when the next average is due

`first` and `sum` hold the loss and the learning rate, in the first step and summed over the ranks now. The rule is
AdaComm's (Wang and Joshi 2019) as Paddle has it: k = ceil(sqrt(rate_0 loss / (rate loss_0) k_0)), from 1 to 16.
"""

# SPDX-License-Identifier: Apache-2.0
import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import same_shape

MAX_STEPS = 16


def _store_mean(target: Tensor, total: Tensor, ranks: int) -> None:
    target.copy_(total).mul_(1.0 / ranks)


def _adapt(
    k_steps: Tensor,
    last: Tensor,
    step: Tensor,
    first: Tensor,
    total: Tensor,
    ranks: int,
    init_k_steps: int,
    begin_step: int,
) -> None:
    last.copy_(step)
    if step.item() <= begin_step:
        return
    loss_0, rate_0 = first.double().unbind()
    loss, rate = (total.double() / ranks).unbind()
    wanted = (rate_0 * loss / (rate * loss_0) * init_k_steps).sqrt().ceil()
    # A loss or a rate of 0 gives NaN or inf: then the ranks average after every step, or as seldom as allowed.
    k_steps.copy_(torch.nan_to_num(wanted, nan=1.0, posinf=MAX_STEPS).clamp(1, MAX_STEPS))


store_mean = declare(
    "store_mean(Tensor(a!) target, Tensor total, int ranks) -> ()", _store_mean, lambda *args: None
)
adapt_k_steps = declare(
    "adapt_k_steps(Tensor(a!) k_steps, Tensor(b!) last, Tensor step, Tensor first, Tensor total, int ranks, "
    "int init_k_steps, int begin_step) -> ()",
    _adapt,
    lambda *args: None,
)
SPECS = (
    OpSpec(store_mean, _store_mean, verify=same_shape("target", "total")),
    OpSpec(adapt_k_steps, _adapt, verify=same_shape("first", "total")),
)
