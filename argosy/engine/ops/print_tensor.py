"""print_tensor: print a tensor whenever the step computes it."""

# SPDX-License-Identifier: Apache-2.0
import sys
from collections import Counter

import torch
from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare

_printed: Counter[str] = Counter()
"""How often each print has printed, by its name."""


def _kernel(x: Tensor, name: str, head: str, fields: str, first_n: int, summarize: int) -> None:
    _printed[name] += 1
    if 0 <= first_n < _printed[name]:
        return
    wanted = fields.split()
    values = x.detach().flatten()
    shown = values if summarize < 0 else values[:summarize]
    rest = " …" if len(shown) < len(values) else ""
    lines = [head] if head else []
    texts = {
        "shape": f"  - shape: {list(x.shape)}",
        "layout": f"  - layout: {'contiguous' if x.is_contiguous() else list(x.stride())}",
        "dtype": f"  - dtype: {str(x.dtype).removeprefix('torch.')}",
        "data": f"  - data: [{' '.join(f'{v:g}' for v in shown.to(torch.float64).tolist())}{rest}]",
    }
    print("\n".join([*lines, *(texts[field] for field in wanted)]), file=sys.stderr, flush=True)


def _fake(x: Tensor, name: str, head: str, fields: str, first_n: int, summarize: int) -> None:
    return None


print_tensor = declare(
    "print_tensor(Tensor x, str name, str head, str fields, int first_n, int summarize) -> ()", _kernel, _fake
)
SPEC = OpSpec(print_tensor, _kernel, has_side_effects=True)
