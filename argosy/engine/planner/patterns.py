"""What a collective costs: who sends how much to whom over sockets; what a rank touches in shared memory.

Over sockets, with n ranks and B bytes, as gloo does it:

    all_reduce       ring: 2 (n - 1) rounds, each rank sends B / n to the next one; or recursive halving and doubling:
                     2 log2 n rounds
    reduce           ring reduce-scatter in n - 1 rounds, then every rank sends its part to the root
    broadcast        binomial tree: log2 n rounds, the root sends B in each
    all_gather       ring: n - 1 rounds of B
    reduce_each      n reduces of B / n in order, one to each rank          reduce_scatter of sharding
    broadcast_each   n broadcasts of B / n in order, one from each rank     all_gather_shards
    barrier          an all_reduce of 4 bytes

A chunk is sent in segments of at most 1 MiB, and at least two, so that one is reduced while the other is received.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from argosy.engine.errors import ConfigError
from argosy.engine.planner.groups import Ints

Floats = npt.NDArray[np.float64]
_SEGMENT = 1 << 20
_STAGING = 1 << 20
_BARRIER_RADIX = 8


@dataclass(frozen=True)
class Pattern:
    """The messages of a collective over sockets; ranks are indices in the group."""

    rounds: int
    """Messages that wait for each other: each costs the latency of a link."""
    messages: int
    """That one rank sends, one after the other."""
    serial_bytes: float
    """That pass one link after the other, because a later message needs an earlier one."""
    senders: Ints
    receivers: Ints
    nbytes: Floats
    """By pair of sender and receiver, in the whole collective."""
    pair_bytes: float = 0.0
    """In addition from each rank to each other; n² pairs would be too many to list."""


def pattern(kind: str, algorithm: str, size: int, nbytes: float, root: int = 0) -> Pattern:
    """The messages of a collective of so many ranks."""
    if kind in ("all_reduce", "barrier") and algorithm == "halving_doubling":
        return _halving_doubling(size, nbytes or 4.0)
    makers: dict[str, Callable[[], Pattern]] = {
        "all_reduce": lambda: _ring(size, 2 * (size - 1), 2 * (size - 1) / size * (nbytes or 4.0)),
        "all_gather": lambda: _ring(size, size - 1, (size - 1) * nbytes),
        "reduce": lambda: _reduce(size, nbytes, root),
        "broadcast": lambda: _broadcast(size, nbytes, root),
        "reduce_each": lambda: _reduce_each(size, nbytes),
        "broadcast_each": lambda: _broadcast_each(size, nbytes),
    }
    makers["barrier"] = makers["all_reduce"]
    return makers[kind]()


def _ring(size: int, rounds: int, edge_bytes: float) -> Pattern:
    ranks = np.arange(size)
    per_round = edge_bytes / max(rounds, 1)
    messages = rounds * max(2, math.ceil(per_round / _SEGMENT))
    return Pattern(rounds, messages, edge_bytes, ranks, (ranks + 1) % size, np.full(size, edge_bytes))


def _halving_doubling(size: int, nbytes: float) -> Pattern:
    if size & (size - 1):
        raise ConfigError(f"halving_doubling with {size} ranks; use it with a power of two, or a ring")
    ranks = np.arange(size)
    steps = size.bit_length() - 1
    parts = [nbytes / (2 << step) for step in range(steps)]
    # Halving begins with the nearest rank, so that the largest messages stay on a host where they can.
    receivers = np.concatenate([ranks ^ (1 << step) for step in range(steps)]) if steps else ranks[:0]
    sizes = np.repeat(np.array([2 * part for part in parts], dtype=np.float64), size)
    messages = 2 * sum(max(1, math.ceil(part / _SEGMENT)) for part in parts)
    return Pattern(2 * steps, messages, 2 * sum(parts), np.tile(ranks, steps), receivers, sizes)


def _reduce(size: int, nbytes: float, root: int) -> Pattern:
    ring = _ring(size, size - 1, (size - 1) / size * nbytes)
    others = np.array([rank for rank in range(size) if rank != root], dtype=np.int64)
    part = nbytes / size
    return Pattern(
        ring.rounds + 1,
        ring.messages + 1,
        ring.serial_bytes + part * len(others),
        np.concatenate([ring.senders, others]),
        np.concatenate([ring.receivers, np.full(len(others), root)]),
        np.concatenate([ring.nbytes, np.full(len(others), part)]),
    )


def _broadcast(size: int, nbytes: float, root: int) -> Pattern:
    rounds = (size - 1).bit_length()
    senders, receivers = [], []
    for step in range(rounds):
        count = min(1 << step, size - (1 << step))
        senders.append(np.arange(count))
        receivers.append(np.arange(count) + (1 << step))
    src, dst = (
        (np.concatenate(a) + root) % size if a else np.zeros(0, np.int64) for a in (senders, receivers)
    )
    return Pattern(rounds, rounds, rounds * nbytes, src, dst, np.full(len(src), float(nbytes)))


def _broadcast_each(size: int, nbytes: float) -> Pattern:
    """Summed over the roots, each rank sends min(2^k, n - 2^k) parts to the rank 2^k after it."""
    ranks, rounds = np.arange(size), (size - 1).bit_length()
    receivers = [(ranks + (1 << step)) % size for step in range(rounds)]
    parts = [min(1 << step, size - (1 << step)) * nbytes / size for step in range(rounds)]
    return Pattern(
        size * rounds,
        size * rounds,
        rounds * nbytes,
        np.tile(ranks, rounds),
        np.concatenate(receivers) if receivers else ranks[:0],
        np.repeat(np.array(parts, dtype=np.float64), size),
    )


def _reduce_each(size: int, nbytes: float) -> Pattern:
    """The rings of all reduces together, and from each rank a part of each shard to its owner."""
    one = _reduce(size, nbytes / size, 0)
    ring = _ring(size, size * (size - 1), (size - 1) / size * nbytes)
    return replace(
        ring,
        rounds=size * one.rounds,
        messages=size * one.messages,
        serial_bytes=size * one.serial_bytes,
        pair_bytes=nbytes / size / size,
    )


# --- shared memory ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedWork:
    """A collective in shared memory: what each rank reads and writes, and the barriers."""

    touched: float
    """Bytes that a rank reads and writes."""
    barriers: int


def shared_work(kind: str, size: int, nbytes: float, is_flat: bool) -> SharedWork:
    """What collective/shm_collectives.py does for a tensor of so many bytes."""
    chunks = max(1, math.ceil(nbytes / _STAGING))
    summed = nbytes * (size + 1) / size  # reads its shard of every rank, writes its shard
    staged = SharedWork(4 * nbytes + summed, 2 * chunks)
    return {
        "barrier": SharedWork(0.0, 1),
        "host_barrier": SharedWork(0.0, 1),
        "sum": SharedWork(summed, 0),
        "reduce_scatter": SharedWork(summed, 1),
        "all_reduce": SharedWork(summed, 2) if is_flat else staged,
        "reduce": staged,
        # The root copies a chunk in while the others copy the one before out.
        "broadcast": SharedWork(2 * nbytes + 2 * min(nbytes, _STAGING), chunks),
        "all_gather": SharedWork(2 * nbytes * (size + 1), chunks),
    }[kind]


def barrier_rounds(size: int) -> int:
    """Rounds of a barrier: in each a rank waits for up to 7 others."""
    rounds, reach = 1, _BARRIER_RADIX
    while reach < size:
        rounds, reach = rounds + 1, reach * _BARRIER_RADIX
    return rounds
