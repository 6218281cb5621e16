"""Averages of parameters over the steps of training.

    update_ema(param, average, decay)                       average = decay · average + (1 - decay) · param
    accumulate_average(param, sum_1, sum_2, sum_3, …)       sums over a window of steps, as Paddle's average_accumulates

The window of `accumulate_average` ends when it has at least `min_window` steps and at least min(max_window,
window_rate · updates) of them. Its sum moves to `sum_3`, and the next window begins; the average is over both. `sum_1`
moves to `sum_2` every 16,384 steps, so that small terms are not lost in a large sum.

    look_ahead(fast, slow, alpha)                           slow += alpha (fast - slow);  fast = slow
    assign_slow(slow, fast)                                 the initial values of the slow weights

Lookahead (Zhang et al. 2019), equation in section 2: the slow weights average the fast ones, which continue from there.
"""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import same_shape

_MAX_TERMS = 16_384


def _update_ema(param: Tensor, average: Tensor, decay: Tensor) -> None:
    rate = decay.item()
    average.mul_(rate).add_(param, alpha=1 - rate)


def _accumulate(
    param: Tensor,
    sum_1: Tensor,
    sum_2: Tensor,
    sum_3: Tensor,
    num_accumulates: Tensor,
    old_num_accumulates: Tensor,
    num_updates: Tensor,
    window_rate: float,
    min_window: int,
    max_window: int,
) -> None:
    sum_1.add_(param)
    updates, accumulated = int(num_updates.add_(1).item()), int(num_accumulates.add_(1).item())
    if updates % _MAX_TERMS == 0:
        sum_2.add_(sum_1)
        sum_1.zero_()
    if accumulated >= min_window and accumulated >= min(max_window, updates * window_rate):
        sum_3.copy_(sum_1).add_(sum_2)
        sum_1.zero_()
        sum_2.zero_()
        old_num_accumulates.fill_(accumulated)
        num_accumulates.zero_()


def _look_ahead(fast: Tensor, slow: Tensor, alpha: float) -> None:
    slow.lerp_(fast, alpha)
    fast.copy_(slow)


def _assign_slow(slow: Tensor, fast: Tensor) -> None:
    slow.copy_(fast)


update_ema = declare(
    "update_ema(Tensor param, Tensor(a!) average, Tensor decay) -> ()", _update_ema, lambda *args: None
)
accumulate_average = declare(
    "accumulate_average(Tensor param, Tensor(a!) sum_1, Tensor(b!) sum_2, Tensor(c!) sum_3, "
    "Tensor(d!) num_accumulates, Tensor(e!) old_num_accumulates, Tensor(f!) num_updates, float window_rate, "
    "int min_window, int max_window) -> ()",
    _accumulate,
    lambda *args: None,
)
look_ahead = declare(
    "look_ahead(Tensor(a!) fast, Tensor(b!) slow, float alpha) -> ()", _look_ahead, lambda *args: None
)
assign_slow = declare("assign_slow(Tensor(a!) slow, Tensor fast) -> ()", _assign_slow, lambda *args: None)
SPECS = (
    OpSpec(update_ema, _update_ema),
    OpSpec(accumulate_average, _accumulate),
    OpSpec(look_ahead, _look_ahead, verify=same_shape("fast", "slow")),
    OpSpec(assign_slow, _assign_slow, verify=same_shape("slow", "fast")),
)
