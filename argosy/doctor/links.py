"""Every link between two hosts against its neighbours: which one is slow, which clock is wrong.

Pairs are measured in the rounds of a tournament, so that no host measures two links at a time:

    round 0    0-3  1-2
    round 1    0-2  3-1
    round 2    0-1  2-3

A link that looks slow is measured again while all others are idle, and the better figure counts.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from argosy.doctor.check import Check, Status, in_bits, in_seconds

SLOW, BROKEN = 0.5, 0.1
"""A link below this fraction of its reference, the upper quartile of its neighbours, is a warning, or a failure. Chosen
with a margin: equal links of 1 Gbit/s between hosts on 2 busy cores measured 883 to 958 Mbit/s."""
LITTLE = 100e6
"""Bits per second: the gradients of ResNet-50, 102 MB, take 8 s at this rate."""
NOMINAL_CAP = 10e9
"""One TCP connection of a Python process may reach no more: over loopback, 2 busy cores reached 6 to 21 Gbit/s."""
LATE, LATENCY_S = 10.0, 1e-3
"""A round trip this many times that of its neighbours, and longer than this, is a warning."""
FAR_S = 10e-3
"""A round trip between two sites; every collective takes several."""
CLOCK_S = 0.05
"""Timelines of several hosts are merged by their clocks, and failures sorted by them: tens of milliseconds count."""
MAX_ROUNDS = 16
BUDGET_S = 6.0
"""For all rounds together."""
_LONGEST_S, _SHORTEST_S = 0.3, 0.02
_CHECK = "check adapter, cable and switch port (ethtool), and other traffic"
_REPEATED = 6
"""How many links are measured again."""


@dataclass(frozen=True)
class MeasuredLink:
    """The link from one host to another, or why it could not be measured."""

    source: int
    target: int
    bits_per_s: float = 0.0
    latency_s: float = 0.0
    clock_s: float = 0.0
    """How far the target's clock is ahead of the source's."""
    error: str = ""

    @property
    def pair(self) -> tuple[int, int]:
        return min(self.source, self.target), max(self.source, self.target)


def rounds(hosts: int) -> list[list[tuple[int, int]]]:
    """The pairs of every round, by the circle method; at most MAX_ROUNDS, in which every host has a link."""
    players = list(range(hosts + hosts % 2))
    schedule = []
    for _ in range(min(len(players) - 1, MAX_ROUNDS)):
        half = len(players) // 2
        pairs = zip(players[:half], reversed(players[half:]), strict=True)
        schedule.append([(a, b) for a, b in pairs if max(a, b) < hosts])
        players = [players[0], players[-1], *players[1:-1]]
    return schedule


def seconds_per_direction(hosts: int) -> float:
    """How long one direction of a link is measured, so that all rounds stay within BUDGET_S."""
    return min(_LONGEST_S, max(_SHORTEST_S, BUDGET_S / (2 * max(1, len(rounds(hosts))))))


def suspects(links: Sequence[MeasuredLink], speeds: Mapping[int, float]) -> list[tuple[int, int]]:
    """The pairs of links that look slow, to be measured again; the slowest first."""
    slow = [link for link in links if not link.error and _rate_status(link, links, speeds)[0] != "ok"]
    slow.sort(key=lambda link: link.bits_per_s)
    return list(dict.fromkeys(link.pair for link in slow))[:_REPEATED]


def better(first: Sequence[MeasuredLink], again: Sequence[MeasuredLink]) -> list[MeasuredLink]:
    """The links with the better figures of two measurements."""
    repeated = {(link.source, link.target): link for link in again if not link.error}
    return [
        other
        if (other := repeated.get((link.source, link.target))) and other.bits_per_s > link.bits_per_s
        else link
        for link in first
    ]


def judge(links: Sequence[MeasuredLink], names: Sequence[str], speeds: Mapping[int, float]) -> list[Check]:
    """A line for each link. `names`: of the hosts; `speeds`: bits per second that a host's adapter has negotiated."""
    return [_judge(link, links, names, speeds) for link in links]


def _judge(
    link: MeasuredLink, links: Sequence[MeasuredLink], names: Sequence[str], speeds: Mapping[int, float]
) -> Check:
    where = f"{names[link.source]} -> {names[link.target]}"
    if link.error:
        return Check(
            "link",
            "failure",
            link.error,
            "ranks connect to ports of the ephemeral range on every host: check routes and firewalls between these "
            "two, and that both have the address that the other one uses",
            where=where,
        )
    status, reason, advice = _rate_status(link, links, speeds)
    if status != "ok" and (slow := _slow_host(link, links)) is not None:
        advice = f"all links {slow[0]} {names[slow[1]]} are slow: {_CHECK}"
    figure = f"{in_bits(link.bits_per_s)}, round trip {in_seconds(link.latency_s)}"
    late = _lateness(link, links)
    if status == "ok" and late:
        status, reason, advice = "warning", late, "look for a detour or a full queue: traceroute, tc -s qdisc"
    return Check("link", status, figure + reason, advice, link.bits_per_s, "bit/s", where)


def _neighbours(link: MeasuredLink, links: Sequence[MeasuredLink]) -> list[MeasuredLink]:
    ends = {link.source, link.target}
    return [other for other in links if other is not link and not other.error and ends & {*other.pair}]


def _rate_status(
    link: MeasuredLink, links: Sequence[MeasuredLink], speeds: Mapping[int, float]
) -> tuple[Status, str, str]:
    """The status of a link's rate, the reason, what to do."""
    others = sorted(other.bits_per_s for other in _neighbours(link, links))
    reference = others[3 * len(others) // 4] if others else 0.0
    if link.bits_per_s < SLOW * reference:
        status: Status = "failure" if link.bits_per_s < BROKEN * reference else "warning"
        return (
            status,
            f": slow, its neighbours have {in_bits(reference)}",
            f"{_CHECK}, at both ends",
        )
    nominal = min(speeds.get(link.source, 0.0), speeds.get(link.target, 0.0), NOMINAL_CAP)
    if link.bits_per_s < SLOW * nominal:
        return (
            "warning",
            f": slow, the adapters have {in_bits(nominal)}",
            "check cables, switch and other traffic",
        )
    if link.bits_per_s < LITTLE:
        return (
            "warning",
            ": slow for training",
            "choose a faster network with --interface, or send less: docs/how-to/communication.md",
        )
    return "ok", "", ""


def _slow_host(link: MeasuredLink, links: Sequence[MeasuredLink]) -> tuple[str, int] | None:
    """Where all links are as slow as this one: (from, its source) or (to, its target); None if it is the link."""
    fast = [other for other in links if other.bits_per_s * SLOW > link.bits_per_s]
    out = [other for other in links if other.source == link.source and other is not link]
    into = [other for other in links if other.target == link.target and other is not link]
    is_source = bool(out) and not any(other in fast for other in out)
    is_target = bool(into) and not any(other in fast for other in into)
    if not fast or is_source == is_target:
        return None
    return ("from", link.source) if is_source else ("to", link.target)


def _lateness(link: MeasuredLink, links: Sequence[MeasuredLink]) -> str:
    others = sorted(other.latency_s for other in _neighbours(link, links))
    usual = others[len(others) // 4] if others else link.latency_s
    if link.latency_s > max(LATENCY_S, LATE * usual):
        return f": late, its neighbours have {in_seconds(usual)}"
    return ": far" if link.latency_s > FAR_S else ""


def clocks(links: Sequence[MeasuredLink], names: Sequence[str]) -> list[Check]:
    """The clock of every host against that of host 0, over links of which the sum is shortest in number."""
    ahead, error = {0: 0.0}, {0: 0.0}
    reached = [0]
    for host in reached:  # grows: breadth first
        for link in links:
            if link.error or link.source != host or link.target in ahead:
                continue
            ahead[link.target] = ahead[host] + link.clock_s
            error[link.target] = error[host] + link.latency_s / 2
            reached.append(link.target)
    return [_clock(names[host], names[0], ahead[host], error[host]) for host in reached[1:]]


def _clock(name: str, first: str, ahead_s: float, error_s: float) -> Check:
    is_wrong = abs(ahead_s) - error_s > CLOCK_S
    return Check(
        "clock",
        "warning" if is_wrong else "ok",
        f"{in_seconds(abs(ahead_s))} {'ahead of' if ahead_s >= 0 else 'behind'} {first}, ± {in_seconds(error_s)}",
        "synchronize the clocks: timedatectl set-ntp true, or start chronyd" if is_wrong else "",
        ahead_s,
        "s",
        name,
    )
