"""Reader decorators: shuffle, shard, batch, map, read ahead. See `argosy.engine.data.readers`."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.data.process_readers import multiprocess_reader
from argosy.engine.data.readers import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shard,
    shuffle,
    xmap_readers,
)
from argosy.framework.missing import missing

__all__ = [
    "ComposeNotAligned",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shard",
    "shuffle",
    "xmap_readers",
]

__getattr__ = missing(__name__, globals())
