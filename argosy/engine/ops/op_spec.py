"""Declaration of Argosy's ops: one name, one schema, one kernel.

An op is registered with torch under `argosy::name`, so that it can be recorded into a program. Its kernel is plain
Python over torch, which the runtime calls directly.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch._ops import OpOverload

from argosy.engine.ops.verifiers import Verifier

_library = torch.library.Library("argosy", "DEF")


@dataclass(frozen=True)
class OpSpec:
    """The properties of one op."""

    target: OpOverload
    kernel: Callable[..., Any]
    """What the runtime calls: the same as the target, without torch's dispatcher."""
    is_collective: bool = False
    """True: all ranks must run it, in the same order."""
    has_side_effects: bool = False
    """True: it acts outside of the program, so it is live even if its result has no users."""
    persistent: bool = False
    """True: the storage of its result outlives the step or is shared; no other op may write into it."""
    verify: Verifier | None = None
    """Returns what is wrong with a node's arguments, or "" (ops/verifiers.py); None: the schema is enough."""

    known: ClassVar[dict[OpOverload, "OpSpec"]] = {}

    def __post_init__(self) -> None:
        OpSpec.known[self.target] = self


def declare(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> OpOverload:
    """Register `argosy::schema`; `fake` computes the result's shape from fake tensors."""
    name = schema.split("(", 1)[0]
    _library.define(schema)
    _library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"argosy::{name}", fake, lib=_library)
    op: OpOverload = getattr(torch.ops.argosy, name).default
    return op
