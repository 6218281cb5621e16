"""look_ahead: move the slow weights towards the fast ones, and continue from there.

    slow += alpha (fast - slow);  fast = slow

Lookahead (Zhang et al. 2019), equation in section 2. assign_slow(slow, fast) initializes the slow weights.
"""

# SPDX-License-Identifier: Apache-2.0
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare
from argosy.engine.ops.verifiers import same_shape


def _look_ahead(fast: Tensor, slow: Tensor, alpha: float) -> None:
    slow.lerp_(fast, alpha)
    fast.copy_(slow)


def _assign_slow(slow: Tensor, fast: Tensor) -> None:
    slow.copy_(fast)


look_ahead = declare(
    "look_ahead(Tensor(a!) fast, Tensor(b!) slow, float alpha) -> ()", _look_ahead, lambda *args: None
)
assign_slow = declare("assign_slow(Tensor(a!) slow, Tensor fast) -> ()", _assign_slow, lambda *args: None)
SPECS = (
    OpSpec(look_ahead, _look_ahead, verify=same_shape("fast", "slow")),
    OpSpec(assign_slow, _assign_slow, verify=same_shape("slow", "fast")),
)
