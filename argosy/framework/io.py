"""paddle.save and paddle.load: state dicts of layers and optimizers, without pickle.

Tensors lie in the file by name; what else a state holds (a scheduler's numbers) is JSON beside them.
"""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.engine.runtime import store
from argosy.engine.runtime.scope import global_scope

_REST = "@json"


def save(obj: Mapping[str, Any], path: str) -> None:
    """Write a state dict; of a Variable the value in the global scope is saved."""
    if not isinstance(obj, Mapping) or not all(isinstance(name, str) for name in obj):
        raise ConfigError(
            f"save was given a {type(obj).__name__}; give a state_dict() (names and tensors). "
            "A whole program is saved by static.save"
        )
    tensors = {name: _tensor(value) for name, value in obj.items() if _is_tensor(value)}
    rest = {name: value for name, value in obj.items() if name not in tensors}
    tensors[_REST] = torch.frombuffer(bytearray(_json(rest)), dtype=torch.uint8)
    sums = store.checksums(tensors)
    store.replace_files({Path(path): store.tensor_writer(tensors, sums, store.save_id(sums))})


def load(path: str, return_numpy: bool = False) -> dict[str, Any]:
    """What `save` wrote: torch tensors, or NumPy arrays, by name."""
    tensors, _ = store.read_tensors(Path(path))
    rest = tensors.pop(_REST, None)
    made: dict[str, Any] = {n: value.numpy() if return_numpy else value for n, value in tensors.items()}
    return made if rest is None else made | json.loads(rest.numpy().tobytes())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Variable | torch.Tensor | np.ndarray)


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, Variable):
        return global_scope().get(value.name)
    return torch.as_tensor(value)


def _json(rest: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(rest).encode()
    except TypeError as e:
        raise ConfigError(f"save: {e}; a state dict holds tensors, and numbers or texts beside them") from e
