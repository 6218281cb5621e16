"""Why something is not equal, where we know: kept by hand, joined into docs/reference/torch-coverage.md."""

# SPDX-License-Identifier: Apache-2.0
import re
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
    "combinations": "torch needs the number of elements as a Python number.",
    "*split": "The number of parts must be known.",
    "chunk": "The number of parts must be known.",
    "resize_": "A Variable's shape does not change.",
    "einsum": "The sample has an unknown size where torch compares it with a known one.",
    "gather": "The sample has an empty index of another dtype, which eager mode does not look at.",
    "native_group_norm": "torch's kernels and shape functions differ for tensors without elements.",
    "unflatten": "torch's kernels and shape functions differ for tensors without elements.",
    "nn.functional.prelu": "torch needs the number of weights as a Python number.",
}
"""Pattern of names -> one sentence."""

_EQUAL_SIZES = r"built for \(?\w+\[\d+\]\)? == \(?\w+\[\d+\]"
MESSAGES: dict[str, str] = {
    _EQUAL_SIZES: "Two unknown sizes in one op are assumed to be equal: broadcasting is decided when the "
    "program is built.",
    r"built for .* == \d+": "An unknown size next to a known one is assumed to be equal to it.",
    r"built for": "torch chooses the formula by the size; the program has the one for the sizes that it was built for.",
    r"as numbers, as it has no mask": "torch.masked calls torch.ones(input.shape), outside of any program.",
    r"the number .* is needed": "torch computes with this size as a Python number.",
    r"then gives .* where the program was built for|does not take them": "The shape of the result depends on whether "
    "the size is 0 or 1.",
    r"at least one element": "The statistics of no rows do not exist.",
    r"depends on the data|without data": "The shape of the result depends on values.",
    r"needs the value of a variable": "It depends on values.",
    r"Expected more than 1 value per channel": "torch raises it, too.",
    r"must be batches of square|does not match|should be defined|must match|to be the same|Expected cond": "The sample "
    "has an unknown size where torch compares it with a known one.",
    r"non-zero size|tuple index|zero-dim": "torch's kernels and shape functions differ for tensors without elements.",
}
"""Pattern of messages -> one sentence, for names that have none."""


def reason_for(name: str, message: str) -> str:
    """The sentence for this name and message; "" if there is none."""
    by_name = (reason for pattern, reason in REASONS.items() if fnmatch(name, pattern))
    by_message = (reason for pattern, reason in MESSAGES.items() if re.search(pattern, message))
    return next(by_name, None) or next(by_message, "")
