"""paddle.save and paddle.load: state dicts of layers and optimizers, without pickle.

The file stores tensors by name; other values of a state (a scheduler's numbers) are stored as JSON.
"""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ArgumentTypeError
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.scope import global_scope

_REST = "@json"


def save(obj: Mapping[str, Any], path: str) -> None:
    """Write a state dict; for a Variable, its value in the global scope is saved."""
    if not isinstance(obj, Mapping) or not all(isinstance(name, str) for name in obj):
        raise ArgumentTypeError(
            f"save was given a {type(obj).__name__}; give a state_dict() (names and tensors). "
            "A whole program is saved by static.save"
        )
    tensors = {name: _tensor(value) for name, value in obj.items() if _is_tensor(value)}
    rest = {name: value for name, value in obj.items() if name not in tensors}
    tensors[_REST] = torch.frombuffer(bytearray(_json(rest)), dtype=torch.uint8)
    sums = atomic_files.checksums(tensors)
    atomic_files.replace_files(
        {Path(path): atomic_files.tensor_writer(tensors, sums, atomic_files.save_id(sums))}
    )


def load(path: str, return_numpy: bool = False) -> dict[str, Any]:
    """Load a state dict that `save` wrote: torch tensors, or NumPy arrays, by name."""
    tensors, _ = atomic_files.read_tensors(Path(path))
    rest = tensors.pop(_REST, None)
    values: dict[str, Any] = {n: value.numpy() if return_numpy else value for n, value in tensors.items()}
    return values if rest is None else values | json.loads(rest.numpy().tobytes())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Variable | torch.Tensor | np.ndarray)


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, Variable):
        return global_scope().peek(value.name)
    return torch.as_tensor(value)


def _json(rest: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(rest).encode()
    except TypeError as e:
        raise ArgumentTypeError(f"save: {e}; a state dict contains tensors, numbers and strings") from e
