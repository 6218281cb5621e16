"""How blocks are dealt out over the servers: `config.split_method`, a class or its name."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.engine.ps import slicing
from argosy.engine.ps.slicing import Block


class PSDispatcher:
    """The base; a subclass defines `dispatch`. Every process must come to the same result."""

    def __init__(self, pserver_endpoints: Sequence[str] = ()) -> None:
        self._eps = list(pserver_endpoints)

    @property
    def eps(self) -> list[str]:
        """The servers' endpoints."""
        return self._eps

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """The endpoint of each of these blocks, which have a name."""
        raise NotImplementedError(f"{type(self).__name__} has no dispatch(varlist); define it")

    def reset(self) -> None:
        """Begin anew; called before blocks are dealt out."""

    def place(self, blocks: Sequence[Block], servers: int) -> list[Block]:
        """The blocks with their servers."""
        self.reset()
        chosen = self.dispatch(blocks)
        unknown = [one for one in chosen if one not in self._eps]
        if len(chosen) != len(blocks) or unknown:
            raise ConfigError(
                f"{type(self).__name__}.dispatch gave {chosen!r} for {len(blocks)} blocks; it must give one of "
                f"{self._eps} for each"
            )
        return [
            Block(b.variable, b.number, b.first, b.shape, b.is_whole, self._eps.index(one))
            for b, one in zip(blocks, chosen, strict=True)
        ]


class RoundRobin(PSDispatcher):
    """Servers in turn."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        return [self._eps[b.server] for b in slicing.round_robin(varlist, len(self._eps))]


class HashName(PSDispatcher):
    """By a hash of the block's name, the same in every process (Python's own hash is not)."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        return [self._eps[b.server] for b in slicing.hash_name(varlist, len(self._eps))]


NAMED = {"RoundRobin": RoundRobin, "HashName": HashName}


def dispatcher(chosen: Any, endpoints: Sequence[str]) -> PSDispatcher:
    """The dispatcher that `split_method` says: a class, its name, or None for RoundRobin."""
    kind = RoundRobin if chosen is None else NAMED.get(chosen) if isinstance(chosen, str) else chosen
    if not (isinstance(kind, type) and issubclass(kind, PSDispatcher)):
        raise ConfigError(
            f"split_method is {chosen!r}; use RoundRobin or HashName (the name or the class of fluid.transpiler), or a "
            "subclass of PSDispatcher"
        )
    return kind(endpoints)
