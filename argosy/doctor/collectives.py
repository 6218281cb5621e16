"""All-reduces of the job against what this host or network should reach, which is measured, too."""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.doctor.check import Check, in_bits
from argosy.doctor.compute import COPY_BYTES, best_of
from argosy.engine.collective import World

SHM_SHARE = 0.1
"""Of the rate at which a rank copies memory: the sum reads every rank's buffer and writes one, so it moves about as
many bytes as a copy, and has two barriers. Measured on 2 cores with a load of 5 to 17: 0.21 to 1.1."""
GLOO_SHARE = 0.1
"""Of the rate of one TCP connection: gloo also adds, in one thread. Measured on 2 busy cores: 0.26 to 1.5 over
loopback, 1.0 over 1 Gbit/s."""
_GLOO_S = 0.15
"""How long one gloo all-reduce should take: on a slow link it gets fewer bytes."""
_LEAST_BYTES = 1 << 16
_ROUNDS = 5


def shm_all_reduce(world: World, group: str, copy_rate: float) -> Check:
    """Sum a flat buffer over the ranks of this host, which form `group`; all ranks of the job call it together."""
    ranks, numel = world.group(group), COPY_BYTES // 4
    name = "shared-memory all-reduce"
    if ranks.size == 1:
        return Check(name, "ok", "one rank on this host: not measured")
    if world.device.type != "cpu":
        return Check(name, "ok", "ranks on GPUs use NCCL: not measured")
    buffer = world.flat_buffer("doctor", numel, torch.float32, group)
    if buffer.segment is None or ranks.shm is None:
        return Check(
            name,
            "warning",
            "off: the ranks of this host use sockets",
            "unset ARGOSY_SHM; it needs Linux on x86-64, and ranks that may open each other's /proc/PID/fd "
            "(the same user; in containers the same pid namespace)",
        )
    index = ranks.ranks.index(world.rank)
    buffer.local.fill_(index + 1.0)

    def sum_up() -> None:
        ranks.start_all_reduce_span(buffer, 0, numel, "doctor").wait()

    took_s = best_of(sum_up, 2 * _ROUNDS)
    expected = ranks.size * (ranks.size + 1) / 2
    if not bool((buffer.result == expected).all()):
        return Check(name, "failure", "the sum is wrong", "the memory of this host is faulty: run memtest")
    rate = buffer.local.nbytes / took_s
    figure = f"{rate / 1e9:.3g} GB/s of {ranks.size} ranks; a copy has {copy_rate / 1e9:.3g} GB/s"
    if rate < SHM_SHARE * copy_rate:
        return Check(
            name,
            "warning",
            figure,
            "the ranks wait for each other: use fewer ranks than cores, and end other processes",
            rate,
            "bytes/s",
        )
    return Check(name, "ok", figure, value=rate, unit="bytes/s")


def gloo_all_reduce(world: World, link: float) -> Check:
    """Sum a tensor over all ranks through sockets; `link`: bits per second that the slowest link has."""
    group = world.group("util")  # the group that never uses shared memory
    name = "gloo all-reduce"
    nbytes = max(_LEAST_BYTES, min(COPY_BYTES, int(link / 8 * _GLOO_S / 2)))
    tensor = torch.ones(nbytes // 4)
    took_s = best_of(lambda: group.start_all_reduce(tensor, "max", "doctor").wait(), _ROUNDS)
    if not bool((tensor == 1.0).all()):
        return Check(name, "failure", "the result is wrong", "the memory or network of a host is faulty")
    # Every rank of a ring sends all but its own part, twice: first sums, then results.
    rate = 8 * nbytes * 2 * (group.size - 1) / group.size / took_s
    figure = f"{in_bits(rate)} of {group.size} ranks; a TCP connection has {in_bits(link)}"
    if rate < GLOO_SHARE * link:
        return Check(
            name,
            "warning",
            figure,
            "the network is faster than gloo here: check the load of the cores, and --interface",
            rate,
            "bit/s",
        )
    return Check(name, "ok", figure, value=rate, unit="bit/s")
