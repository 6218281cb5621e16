"""What became of one case, and whether an error is one that a user can act on."""

# SPDX-License-Identifier: Apache-2.0
import re
from dataclasses import dataclass
from fnmatch import fnmatch

from argosy.engine.errors import ArgosyError

EQUAL, REJECTED, RAW, WRONG, CRASH = "equal", "rejected", "raw", "wrong", "crash"
TIMEOUT, RUNNER_FAILS, SKIPPED, EAGER_FAILS = "timeout", "runner fails", "skipped", "eager fails"
KINDS = (EQUAL, REJECTED, RAW, WRONG, CRASH, TIMEOUT, RUNNER_FAILS, SKIPPED)
"""`eager fails` is not among them: such a case is not counted. `skipped`: an earlier part of the case failed."""
FAILURES = frozenset({RAW, WRONG, CRASH, TIMEOUT, RUNNER_FAILS})
SHAPE_ONLY = "shape only"
"""The detail of an `equal` whose values are random or uninitialised in eager mode too."""
PROPERTIES_ONLY = "properties only"
"""The detail of an `equal` of a random module whose draws differ, and whose distribution was checked."""


@dataclass(frozen=True)
class Outcome:
    """The result of a case and, if it is not plainly equal, one line that says why."""

    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Record:
    """One line of the results."""

    group: str
    """modules, samples, ops or nets."""
    name: str
    mode: str
    """train, eval, clone; forward, backward."""
    form: str
    """concrete or unknown."""
    sample: int
    kind: str
    detail: str = ""


RAW_MESSAGES: dict[str, str] = {
    r"(?:: |^)aten[.:]+\w+[.\w]*$": "only the name of an operator",
    r"\b[su]\d+\b": "a symbol of torch's ShapeEnv",
    r"Cannot access (?:data pointer|storage)|data pointer of Tensor": "a fake tensor's storage",
    r"[Uu]ninitialized": "a lazy module's parameter",
    r"not enough values to unpack|too many values to unpack": "a Python error inside torch",
    r"neither Paddle's Variable nor torch.Tensor": "an attribute of torch.Tensor that Variable does not have",
    r"INTERNAL[ _]ASSERT|TORCH_CHECK|\.cpp:\d|\.h:\d|please report a bug": "C++ text",
    r"unsupported operand|object has no attribute|object is not|must be Tensor, not": "a Python error inside torch",
    r"FakeTensor|fake tensor|[Mm]eta tensor|device meta|'meta'|\bSym(?:Int|Bool|Float)\b": "torch's internals",
    r"NotImplemented(?:Error)?\b|DispatchKey|dispatch key|__torch_dispatch__": "torch's internals",
    r"<(?:function|built-in|method|torch\.)": "a Python object",
    r"symbolically traced variables": "torch.fx's internals",
    r"unsupported memory format option": "torch's internals",
    r"built for [^;]*= (?:13|17|19|23|29|31|37|41)\b": "the hint of an unknown size, which the user never gave",
    r"\b(?:Ne|Eq|Mod|FloorDiv|PythonMod|CeilToInt)\(": "sympy's notation",
    r"belongs to another program": "of a tensor of this very program",
    r"is not a dimension of a feed": "a size of this very program",
}
"""Patterns of messages that do not help the user, each with what is wrong with it."""

NEEDS_VALUE = (
    "allclose", "equal", "item", "bool", "nonzero*", "argwhere", "masked_select", "unique*", "bincount",
    "histogramdd", "histc", "tensor_split", "repeat_interleave", "combinations", "is_nonzero", "linalg.cond",
    "linalg.matrix_rank*", "linalg.pinv*", "nn.functional.embedding_bag", "segment_reduce*", "to_sparse",
    "sparse.*", "where", "__getitem__", "index_*", "scatter_reduce.*",
)  # fmt: skip
"""Names of what needs a variable's value to know its result's size, or whether it is valid."""
_NEEDS_VALUE_MESSAGE = "needs the value of a variable"
_USER_LINE = re.compile(r"\w+\.py:\d+")


def classify(error: Exception, name: str) -> Outcome:
    """`rejected` if the error names what is unsupported, why and where; else `raw`."""
    text = str(error).strip()
    line = text.split("\n", 1)[0][:400]
    if not isinstance(error, ArgosyError):
        return Outcome(RAW, f"{type(error).__name__}: {line}")
    for pattern, reason in RAW_MESSAGES.items():
        if re.search(pattern, text, re.MULTILINE):
            return Outcome(RAW, f"{line} [the message has {reason}]")
    if _NEEDS_VALUE_MESSAGE in text and not any(fnmatch(name, known) for known in NEEDS_VALUE):
        return Outcome(RAW, f"{line} [no value is needed]")
    if not _USER_LINE.search(text):
        return Outcome(RAW, f"{line} [the message names no line]")
    return Outcome(REJECTED, line)


def stable(detail: str) -> str:
    """The detail without what changes from run to run: paths, line numbers, figures, generated names."""
    detail = re.sub(r"(?:at )?(?:[\w./-]+/)?\w+\.py:\d+(?: in [\w<>]+)?", "…", detail)
    detail = re.sub(r"0x[0-9a-f]+", "0x…", detail)
    detail = re.sub(r"\d+\.\d+(?:e[+-]?\d+)?", "#", detail)
    return re.sub(r"\s+", " ", detail).strip()
