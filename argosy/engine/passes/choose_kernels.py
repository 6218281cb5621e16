"""Let convolutions choose their kernels at every call: ATen's, or matrix products.

    before    y = aten.convolution(x, w)            channels_last, 8 channels or more on both sides
    after     y = argosy.convolution(x, w)          and so for the gradients of x and of w

Runs behind channels_last, whose order in memory the products need. ops/convolution.py has the reason.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.ops.convolution import convolution, convolution_backward
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten
_LEAST_CHANNELS = 8
"""With fewer a product never wins."""
# op -> (ours, where its arguments begin: input, weight, …)
_OURS = {
    aten.convolution.default: (convolution, 0),
    aten.convolution_backward.default: (convolution_backward, 1),
}


@dataclass(frozen=True)
class ChooseKernels(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "choose_kernels"

    def run(self, graph: fx.Graph) -> Report:
        found = [node for node in graph.nodes if node.target in _OURS]
        changed = [node for node in found if _is_meant(node)]
        for node in changed:
            node.target = _OURS[node.target][0]
        return Report(len(changed), f"{len(changed)} of {len(found)} convolutions choose their kernel")


def _is_meant(node: fx.Node) -> bool:
    first = _OURS[node.target][1]  # type: ignore[index]  # one of the two
    arguments: tuple[Any, ...] = node.args[first:]
    x, weight = arguments[0].meta["val"], arguments[1].meta["val"]
    dilation, transposed, groups = arguments[5], arguments[6], arguments[8]
    return (
        weight.ndim == 4
        and min(weight.shape[:2]) >= _LEAST_CHANNELS
        and (groups, transposed, list(dilation)) == (1, False, [1, 1])
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and all(t.is_contiguous(memory_format=torch.channels_last) for t in (x, weight))
    )
