"""Placement of blocks on servers: `config.split_method`, a class or its name."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.engine.ps.protocol import slicing
from argosy.engine.ps.protocol.slicing import VariableBlock


class PSDispatcher:
    """The base class; a subclass defines `dispatch`, which must be deterministic across processes."""

    def __init__(self, pserver_endpoints: Sequence[str] = ()) -> None:
        self._eps = list(pserver_endpoints)

    @property
    def eps(self) -> list[str]:
        """The servers' endpoints."""
        return self._eps

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The endpoint for each block; a block has a `name`."""
        raise NotImplementedError(f"{type(self).__name__} has no dispatch(varlist); define it")

    def reset(self) -> None:
        """Reset the state; called before blocks are placed."""

    def place(self, blocks: Sequence[VariableBlock], servers: int) -> list[VariableBlock]:
        """Assign a server to each block."""
        self.reset()
        endpoints = self.dispatch(blocks)
        unknown = [endpoint for endpoint in endpoints if endpoint not in self._eps]
        if len(endpoints) != len(blocks) or unknown:
            raise ConfigError(
                f"{type(self).__name__}.dispatch returned {endpoints!r} for {len(blocks)} blocks; it must return one "
                f"of {self._eps} for each"
            )
        return [
            VariableBlock(b.variable, b.number, b.first, b.shape, b.is_whole, self._eps.index(endpoint))
            for b, endpoint in zip(blocks, endpoints, strict=True)
        ]


class RoundRobin(PSDispatcher):
    """Places blocks on the servers in turn."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        return [self._eps[b.server] for b in slicing.round_robin(varlist, len(self._eps))]


class HashName(PSDispatcher):
    """Places blocks by a hash of the name that is the same in every process (Python's `hash` is not)."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        return [self._eps[b.server] for b in slicing.hash_name(varlist, len(self._eps))]


NAMED = {"RoundRobin": RoundRobin, "HashName": HashName}


def dispatcher(chosen: Any, endpoints: Sequence[str]) -> PSDispatcher:
    """The dispatcher for `split_method`: a class, its name, or None for RoundRobin."""
    kind = RoundRobin if chosen is None else NAMED.get(chosen) if isinstance(chosen, str) else chosen
    if not (isinstance(kind, type) and issubclass(kind, PSDispatcher)):
        raise ConfigError(
            f"split_method is {chosen!r}; use RoundRobin or HashName (the name or the class of fluid.transpiler), or a "
            "subclass of PSDispatcher"
        )
    return kind(endpoints)
