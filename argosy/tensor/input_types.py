"""What the functions of `tensor` accept (framework/input_types.py)."""

# SPDX-License-Identifier: Apache-2.0

INPUTS = {
    "x: float": """
        acos asin atan bernoulli ceil cholesky cos cosh dist erf exp expm1 floor inverse log log10 log1p
        log2 logsumexp mean multinomial norm reciprocal round rsqrt sin sinh sqrt stanh std tan
        tanh trunc var
    """,
    "x: number": """
        abs argmax argmin argsort cumsum increment isfinite isinf isnan max median min neg prod scale sign sort
        square topk trace tril triu
    """,
    "x: float; y: float": "bmm matmul",
    "x: float; vec: float": "mv",
    "input: float; mat2: float": "mm",
    "input: float; x: float; y: float": "addmm",
    "x: number; y: number": "cross dot",
    "x: any": """
        all any broadcast_to cast chunk clip diag equal_all expand flatten flip full_like nonzero numel
        ones_like pow reshape roll split squeeze strided_slice sum tile transpose unsqueeze unstack
        zeros_like
    """,
    "x: any; y: any": "allclose expand_as",
    "x: any; index: integer": "gather gather_nd index_sample index_select",
    "x: any; index: integer; updates: any": "scatter scatter_nd_add",
    "x: any; mask: bool": "masked_select",
    "condition: bool": "where",
    "input: any": "shape slice t unbind",
    "x: any[]": "concat stack",
}
"""The inputs -> the functions that have them; those of two operands also accept numbers and arrays as operands."""
