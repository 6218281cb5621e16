"""The passes, and which of them a program goes through: one ordinary list."""

# SPDX-License-Identifier: Apache-2.0
from torch import fx

from argosy.engine.passes.base import Pass
from argosy.engine.passes.channels_last import ChannelsLast
from argosy.engine.passes.in_place import InPlace

PASSES: tuple[type[Pass], ...] = (ChannelsLast, InPlace)


def default_passes(kept: frozenset[fx.Node]) -> list[Pass]:
    """What every program goes through before it runs; `kept` are the nodes that are read after the step."""
    return [ChannelsLast(), InPlace(kept)]
