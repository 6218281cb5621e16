"""Select the kernel of a convolution at run time: ATen's, or matrix products.

    before    y = aten.convolution(x, w)            channels_last, at least 8 input and output channels
    after     y = argosy.convolution(x, w)          likewise convolution_backward

In float32 and in bfloat16. Runs after channels_last, because the matrix products need that memory format. See
ops/convolution.py.
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from argosy.engine.ops.convolution import convolution, convolution_backward
from argosy.engine.passes.base import Pass, Report

aten = torch.ops.aten
_MIN_CHANNELS = 8
"""With fewer channels a matrix product is never faster."""
# ATen op -> (Argosy op, index of the first of the arguments input, weight, …)
_REPLACEMENTS = {
    aten.convolution.default: (convolution, 0),
    aten.convolution_backward.default: (convolution_backward, 1),
}


@dataclass(frozen=True)
class ChooseKernels(Pass):
    """See the module's picture."""

    name: ClassVar[str] = "choose_kernels"

    def run(self, graph: fx.Graph) -> Report:
        convolutions = [node for node in graph.nodes if node.target in _REPLACEMENTS]
        changed = [node for node in convolutions if _is_supported(node)]
        for node in changed:
            node.target = _REPLACEMENTS[node.target][0]
        text = f"{len(changed)} of {len(convolutions)} convolutions select their kernel at run time"
        return Report(len(changed), text)


def _is_supported(node: fx.Node) -> bool:
    first = _REPLACEMENTS[node.target][1]  # type: ignore[index]  # one of the two
    arguments: tuple[Any, ...] = node.args[first:]
    x, weight = arguments[0].meta["val"], arguments[1].meta["val"]
    dilation, transposed, groups = arguments[5], arguments[6], arguments[8]
    return (
        weight.ndim == 4
        and min(weight.shape[:2]) >= _MIN_CHANNELS
        and (groups, transposed, list(dilation)) == (1, False, [1, 1])
        and x.device.type == "cpu"
        and x.dtype == weight.dtype
        and x.dtype in (torch.float32, torch.bfloat16)
        and all(t.is_contiguous(memory_format=torch.channels_last) for t in (x, weight))
    )
