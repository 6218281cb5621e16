"""Replacements for the forward functions of torch modules that read tensor values while they are recorded."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.adaptive import _ASMoutput
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.rnn import PackedSequence

from argosy.engine.errors import ProgramError
from argosy.engine.ir.lowering import batch_norm


def replace_forwards(module: nn.Module) -> None:
    """Set a recordable `forward` as attribute of submodules that need one; the caller restores the attributes."""
    for sub in list(module.modules()):
        sub.__dict__["_compiled_call_impl"] = None  # module.compile(): a program is compiled as a whole
        for name, child in sub._modules.items():
            if child is not None and "_orig_mod" in child._modules:
                sub._modules[name] = child._modules["_orig_mod"]  # the same for torch.compile(child)
        if isinstance(sub, _BatchNorm) and sub.momentum is None:
            sub.__dict__["forward"] = partial(_cumulative_batch_norm, sub, sub.forward)
        elif isinstance(sub, nn.RNNBase):
            sub.__dict__["forward"] = partial(_recurrent, sub.forward)
        elif type(sub) is nn.AdaptiveLogSoftmaxWithLoss:
            sub.__dict__["forward"] = partial(_adaptive_log_softmax, sub)
        elif isinstance(sub, nn.TransformerEncoder):
            sub.__dict__["forward"] = partial(_encoder, sub, sub.forward)
        elif isinstance(sub, nn.TransformerDecoder):
            sub.__dict__["forward"] = partial(_decoder, sub.forward)


def _cumulative_batch_norm(module: Any, forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A batch norm with momentum=None, whose statistics are averages over all batches.

    torch's forward reads the number of batches as a Python float.
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


def _recurrent(forward: Callable[..., Any], x: Any, hx: Any = None) -> Any:
    """torch's forward reads the number of sequences from the values of a PackedSequence."""
    if isinstance(x, PackedSequence):
        raise ProgramError(
            "a PackedSequence is split into steps by the values of its lengths, which are unknown while a program is "
            "built; call the layer on the padded batch, and mask its outputs by the lengths"
        )
    return forward(x, hx)


def _encoder(
    module: nn.TransformerEncoder,
    forward: Callable[..., Tensor],
    src: Tensor,
    mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
) -> Tensor:
    """torch's forward checks whether the mask's values are causal, and removes padding with nested tensors."""
    nested, module.use_nested_tensor = module.use_nested_tensor, False
    try:
        return forward(src, mask, src_key_padding_mask, bool(is_causal))
    finally:
        module.use_nested_tensor = nested


def _decoder(
    forward: Callable[..., Tensor],
    tgt: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool | None = None,
    memory_is_causal: bool = False,
) -> Tensor:
    """torch's forward checks whether the mask's values are causal."""
    return forward(
        tgt,
        memory,
        tgt_mask,
        memory_mask,
        tgt_key_padding_mask,
        memory_key_padding_mask,
        bool(tgt_is_causal),
        memory_is_causal,
    )
