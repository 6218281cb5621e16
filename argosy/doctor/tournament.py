"""Measure the links between hosts in the rounds of a tournament; every rank gets the links of all."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from argosy.doctor.links import MeasuredLink, seconds_per_direction
from argosy.doctor.tcp import measure
from argosy.engine import env
from argosy.engine.collective import Identity
from argosy.engine.net import address_of_interface, family_of, host_of, local_address

Gather = Callable[[str, Any], list[Any]]
"""Gathers a value, which JSON can express, from every rank; also a barrier."""


def tournament(
    gather: Gather,
    rank: int,
    ends: Sequence[int],
    schedule: Sequence[Sequence[tuple[int, int]]],
    offers: Sequence[str],
    source: str,
) -> list[MeasuredLink]:
    """Measure the pairs of every round, from this address. `ends`: the rank of every host that measures."""
    links = []
    for pairs in schedule:
        measured: list[MeasuredLink] = []
        for a, b in pairs:
            if rank == ends[a]:
                measured += _both_directions(a, b, offers[ends[b]], source, len(ends))
        gathered = gather("round of links", [asdict(link) for link in measured])
        links += [MeasuredLink(**fields) for found in gathered for fields in found]
    return links


def _both_directions(a: int, b: int, offer: str, source: str, hosts: int) -> list[MeasuredLink]:
    try:
        figures = measure(offer, source, seconds_per_direction(hosts))
    except OSError as e:
        error = f"{offer.split(maxsplit=1)[0]} cannot be reached: {e.strerror or e}"
        return [MeasuredLink(a, b, error=error)]
    return [
        MeasuredLink(a, b, figures.sent, figures.latency_s, figures.clock_s),
        MeasuredLink(b, a, figures.received, figures.latency_s, -figures.clock_s),
    ]


def listed_address(identity: Identity) -> str:
    """The address of this host in the list of hosts."""
    if identity.endpoints:
        return host_of(identity.endpoints[identity.rank])
    return local_address(host_of(identity.master)) if identity.size > 1 else "127.0.0.1"


def address_of(identity: Identity) -> str:
    """The address that the collectives of this host use: that of --interface, if it is given."""
    listed = listed_address(identity)
    interface = env.text("GLOO_SOCKET_IFNAME", "").split(",")[0]
    if not interface:
        return listed
    return address_of_interface(interface, family_of(listed), "GLOO_SOCKET_IFNAME")
