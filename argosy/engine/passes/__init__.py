"""The default passes: what every program is rewritten by before it runs."""

# SPDX-License-Identifier: Apache-2.0
from torch import fx

from argosy.engine.passes.base import Pass
from argosy.engine.passes.channels_last import ChannelsLast
from argosy.engine.passes.choose_kernels import ChooseKernels
from argosy.engine.passes.in_place import InPlace
from argosy.engine.passes.rematerialize import DEFAULT_SHARE, Rematerialize


def default_passes(
    live_out: frozenset[fx.Node], without: frozenset[str] = frozenset(), memory_optimize: bool | None = None
) -> list[Pass]:
    """The passes that every program goes through before it runs, in order.

    `live_out`: the nodes whose values are read after the step. `without`: names of passes that the program's build
    strategy switched off. `memory_optimize`: True rematerializes every activation that can be, False none, None those
    that cost next to nothing.
    """
    share = DEFAULT_SHARE if memory_optimize is None else float(memory_optimize)
    passes: list[Pass] = [ChannelsLast(), ChooseKernels(), Rematerialize(live_out, share), InPlace(live_out)]
    return [rewrite for rewrite in passes if rewrite.name not in without]
