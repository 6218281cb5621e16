"""Why something is not equal, where we know: kept by hand, joined into docs/torch_coverage.md."""

# SPDX-License-Identifier: Apache-2.0
from fnmatch import fnmatch

REASONS: dict[str, str] = {
    "nonzero*": "The number of results depends on the values.",
    "argwhere": "The number of results depends on the values.",
    "masked_select": "The number of results depends on the values.",
    "unique*": "The number of results depends on the values.",
    "bincount": "The number of bins depends on the largest value.",
    "item": "A Python number of a Variable's value does not exist while the program is built.",
    "equal": "It gives a Python bool, which depends on the values.",
    "allclose": "It gives a Python bool, which depends on the values.",
    "sparse.*": "Programs have dense tensors only.",
    "to_sparse": "Programs have dense tensors only.",
    "tensor_split": "The sizes of the parts depend on the values of the indices, if these are a tensor.",
    "repeat_interleave": "The size of the result depends on the values of the repeats.",
    "BatchNorm*d 0 rows": "The statistics of no rows do not exist.",
    "linalg.lstsq*": "The shape of the residuals depends on the rank, which depends on the values.",
    "index_reduce.prod": "The second derivative, which static.gradients prepares, asks whether a value is zero.",
    "scatter_reduce.prod": "The second derivative, which static.gradients prepares, asks whether a value is zero.",
    "combinations": "torch needs the number of elements as a Python number.",
    "*split": "The number of parts must be known.",
    "chunk": "The number of parts must be known.",
    "nn.GaussianNLLLoss": "Two unknown sizes in one elementwise op are assumed to be equal, so neither may be 1.",
}
"""Pattern of names -> one sentence."""


def reason_for(name: str) -> str:
    """The sentence for this name; "" if there is none."""
    return next((reason for pattern, reason in REASONS.items() if fnmatch(name, pattern)), "")
