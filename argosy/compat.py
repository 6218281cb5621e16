"""paddle.compat: conversions for scripts that run in Python 2 and 3."""

# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

from argosy.framework.missing import missing

int_type = long_type = int


def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Decode bytes in a value, a list, a set or a dict; lists and sets are changed themselves if inplace."""
    return _convert(obj, lambda v: v.decode(encoding) if isinstance(v, bytes) else v, inplace)


def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Encode the strings in a value, a list or a set; they are changed themselves if inplace."""
    return _convert(obj, lambda v: v.encode(encoding) if isinstance(v, str) else v, inplace)


def _convert(obj: Any, convert: Any, inplace: bool) -> Any:
    if not isinstance(obj, list | set | dict):
        return convert(obj)
    if isinstance(obj, dict):
        changed: Any = {convert(key): _convert(value, convert, False) for key, value in obj.items()}
    else:
        changed = type(obj)(_convert(value, convert, False) for value in obj)
    if not inplace:
        return changed
    obj.clear()
    obj.extend(changed) if isinstance(obj, list) else obj.update(changed)
    return obj


def round(x: float, d: int = 0) -> float:
    """x rounded to d digits; a half goes away from zero, as in Python 2."""
    power = 10.0**d
    if x > 0:
        return float(math.floor(x * power + 0.5)) / power
    return float(math.ceil(x * power - 0.5)) / power if x < 0 else math.copysign(0.0, x)


def floor_division(x: float, y: float) -> float:
    """x // y."""
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """str(exc)."""
    return str(exc)


__all__ = [
    "floor_division", "get_exception_message", "int_type", "long_type", "round", "to_bytes", "to_text",
]  # fmt: skip
__getattr__ = missing(__name__, globals())
