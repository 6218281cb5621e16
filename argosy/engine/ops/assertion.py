"""assertion: raise if a condition on the data of the step is false, with the values that explain it."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence

from torch import Tensor

from argosy.engine.ops.op_spec import OpSpec, declare


def _kernel(holds: Tensor, data: Sequence[Tensor], message: str, summarize: int) -> None:
    if bool(holds):
        return
    values = [x.flatten()[: None if summarize < 0 else summarize].tolist() for x in data]
    shown = "; ".join(f"{list(x.shape)}: {value}" for x, value in zip(data, values, strict=True))
    raise ValueError(
        f"{message}{': ' if shown else ''}{shown}"
    )  # the executor adds the node and its source line


def _fake(holds: Tensor, data: Sequence[Tensor], message: str, summarize: int) -> None:
    return None


assertion = declare(
    "assertion(Tensor holds, Tensor[] data, str message, int summarize) -> ()", _kernel, _fake
)
SPEC = OpSpec(assertion, _kernel, has_side_effects=True)
