"""Forward functions in the place of those torch modules' that ask for a value while they are recorded."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.adaptive import _ASMoutput
from torch.nn.modules.batchnorm import _BatchNorm

from argosy.engine.ir.lowering import batch_norm


def replace_forwards(module: nn.Module) -> None:
    """Give submodules that need it another `forward`, as an attribute; the caller restores the attributes."""
    for sub in module.modules():
        if isinstance(sub, _BatchNorm) and sub.momentum is None:
            sub.__dict__["forward"] = partial(_cumulative_batch_norm, sub, sub.forward)
        elif type(sub) is nn.AdaptiveLogSoftmaxWithLoss:
            sub.__dict__["forward"] = partial(_adaptive_log_softmax, sub)


def _cumulative_batch_norm(module: Any, forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A batch norm with momentum=None: its statistics are averages over all batches.

    torch's forward takes the number of batches as a Python float.
    """
    tracked = module.num_batches_tracked
    if not module.training or tracked is None:
        return forward(x)
    module._check_input_dim(x)
    out = batch_norm(x, None, None, module.weight, module.bias, True, 0.0, module.eps)
    with torch.no_grad():
        tracked.add_(1)
        var, mean = torch.var_mean(x, [d for d in range(x.ndim) if d != 1])
        for running, value in ((module.running_mean, mean), (module.running_var, var)):
            running.add_((value - running) / tracked)
    return out


def _adaptive_log_softmax(module: nn.AdaptiveLogSoftmaxWithLoss, x: Tensor, target: Tensor) -> _ASMoutput:
    """The log-probability of each target among those of all classes.

    torch's forward selects the rows of each cluster, so its sizes depend on the targets.
    """
    if target.ndim == 0:
        out = module.log_prob(x.unsqueeze(0)).gather(1, target.view(1, 1)).view([])
    else:
        out = module.log_prob(x).gather(1, target.unsqueeze(1)).squeeze(1)
    return _ASMoutput(out, (-out).mean())
