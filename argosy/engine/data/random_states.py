"""The states of the global random generators of the process: torch's, NumPy's and Python's.

Readers shuffle with the latter two, dropout draws from torch's; a resumed run restores all three.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class RandomStates:
    """A snapshot of the global random generators."""

    torch: Tensor
    numpy: dict[str, Any]
    python: tuple[Any, ...]
    cuda: tuple[Tensor, ...] = ()

    @classmethod
    def capture(cls) -> RandomStates:
        """Capture the current states."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
        numpy: Any = np.random.get_state(legacy=False)
        return cls(torch.get_rng_state(), numpy, random.getstate(), tuple(cuda))

    def restore(self) -> None:
        """Set the generators to these states; they are shared by all threads of the process."""
        torch.set_rng_state(self.torch)
        np.random.set_state(self.numpy)
        random.setstate(self.python)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))

    def to_json(self) -> dict[str, Any]:
        """The states as plain lists, numbers and strings."""
        return {
            "torch": text_of(self.torch),
            "numpy": _plain(self.numpy),
            "python": self.python,
            "cuda": [text_of(state) for state in self.cuda],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> RandomStates:
        """The inverse of `to_json`, before or after JSON encoding."""
        version, internal, gauss = fields["python"]
        cuda = tuple(state_of(state) for state in fields["cuda"])
        return cls(state_of(fields["torch"]), fields["numpy"], (version, tuple(internal), gauss), cuda)


def text_of(state: Tensor) -> str:
    """The state of a torch generator as hexadecimal digits."""
    return bytes(state.tolist()).hex()


def state_of(text: str) -> Tensor:
    """The inverse of `text_of`."""
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
