"""How an op of ours is declared: one name, one schema, one kernel.

The op is registered with torch under `argosy::name`, so that it can be recorded into a program, and its
kernel is plain Python over torch, which the runtime calls directly.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch._ops import OpOverload

_library = torch.library.Library("argosy", "DEF")


@dataclass(frozen=True)
class OpSpec:
    """All that the system may ask about one op."""

    target: OpOverload
    kernel: Callable[..., Any]
    """What the runtime calls: the same as the target, without torch's dispatcher in between."""
    paddle_name: str
    communicates: bool = False
    """True: all ranks must run it, in the same order."""
    acts: bool = False
    """True: it does something outside of the program, so that it is run although nobody reads its result."""
    lasting: bool = False
    """True: its result lies in memory that outlasts the step or that others read; nobody may write into it."""

    known: ClassVar[dict[OpOverload, "OpSpec"]] = {}

    def __post_init__(self) -> None:
        OpSpec.known[self.target] = self


def declare(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> OpOverload:
    """Register `argosy::schema`; `fake` computes the result's shape from fake tensors."""
    name = schema.split("(", 1)[0]
    _library.define(schema)
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"argosy::{name}", fake, lib=_library)
    made: OpOverload = getattr(torch.ops.argosy, name).default
    return made
