"""What ranks publish about themselves in the store, and how the statuses of many ranks are read with few requests.

    rank r ──▶ status/r = {"heartbeat": 41, "step": 7, "started": {"dp": 1127}, "waiting": "", …}      each second

    up to 16 ranks    each rank reads the statuses of all others
    more ranks        rank 0 reads them, and publishes a digest: the few ranks that others may wait for
                      rank r ◀── digest, failures

To read all statuses on every rank is quadratic: 1,000 waiting ranks would read a million statuses a second. A digest
has a bounded size, so the load of the store grows with the number of ranks. A rank that fails appends its status to
`failures` as well, which every poll reads: a failure is seen as soon as it is published, not with the next digest.
"""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch._C._distributed_c10d import Store

from argosy.engine.errors import PeerLostError

MAX_DIRECT_RANKS = 16
"""Jobs of more ranks use the digest."""
MAX_LISTED = 16
"""The most ranks of one kind in a digest: behind in one group, exited, unresponsive, or not connected."""
RANKS_PER_S = 1000
"""How many statuses rank 0 reads per second; the store needs 35 us for each."""
UNRESPONSIVE_S = 2.5
"""Rank 0 reports a rank without a new heartbeat for this long: more than two periods."""
_DIGEST, _FAILURES = "status/digest", "status/failures"


@dataclass
class RankStatus:
    """What one rank publishes about itself."""

    heartbeat: int = 0
    """Incremented whenever the status is published."""
    step: int = 0
    """Steps that the rank has finished."""
    started: dict[str, int] = field(default_factory=dict)
    """By group: how many collectives the rank has started."""
    waiting: str = ""
    """The collective that it waits for: group, sequence number and name; empty if it does not wait."""
    waiting_for: tuple[int, int, int] = (0, 0, 1)
    """The ranks of that group, as first, end and step of a range."""
    outcome: str = ""
    """Not empty once the process exits: "done", or the exception that ended it."""


@dataclass
class StatusDigest:
    """The ranks that a waiting rank has to know about."""

    statuses: dict[int, RankStatus] = field(default_factory=dict)
    """The last status of ranks: of all connected ones in a small job; in others of those that are behind or exited."""
    unconnected: list[int] = field(default_factory=list)
    """Ranks that have published nothing yet."""
    unresponsive: list[int] = field(default_factory=list)
    """Ranks without a recent heartbeat, as seen by rank 0; empty in a small job, where each rank judges for itself."""


def encode_status(status: RankStatus) -> str:
    """The status as JSON."""
    # Copy `started`: the main thread modifies it concurrently.
    return json.dumps(vars(status) | {"started": dict(status.started)})


def is_consequence(outcome: str) -> bool:
    """True if a rank exited because it had lost another one."""
    return outcome.startswith(PeerLostError.__name__)


def publish(store: Store, rank: int, status: RankStatus) -> None:
    """Write the status of a rank."""
    store.set(f"status/{rank}", encode_status(status))


def publish_failure(store: Store, rank: int, status: RankStatus) -> None:
    """Append the status of a rank to the list of failures, once, if it has failed and no other rank caused it."""
    if status.outcome not in ("", "done") and not is_consequence(status.outcome):
        store.append(_FAILURES, json.dumps([rank, encode_status(status)]) + "\n")  # type: ignore[attr-defined]  # not in the stubs


def read_statuses(store: Store, ranks: Iterable[int], connected: Mapping[int, RankStatus]) -> StatusDigest:
    """Read the statuses of ranks; `connected` are known to have published one."""
    digest = StatusDigest()
    keys = {}
    for rank in ranks:
        key = f"status/{rank}"
        # Check first: reading a key that does not exist blocks.
        if rank in connected or store.check([key]):
            keys[rank] = key
        else:
            digest.unconnected.append(rank)
    if keys:
        for rank, text in zip(keys, store.multi_get(list(keys.values())), strict=True):
            digest.statuses[rank] = _decode_status(json.loads(text))
    return digest


def condense(every: StatusDigest, unresponsive: Iterable[int]) -> StatusDigest:
    """The digest of all statuses: of ranks behind the foremost one of a group, exited, or unresponsive; a few each.

    In a group, the ranks that have started the fewest collectives are the ones that the others wait for.
    """
    statuses = every.statuses
    groups = {name for status in statuses.values() for name in status.started}
    listed: set[int] = set()
    for name in groups:
        started = {rank: status.started.get(name, 0) for rank, status in statuses.items()}
        foremost = max(started.values())
        behind = [rank for rank, count in started.items() if count < foremost]
        listed.update(sorted(behind, key=lambda rank: (started[rank], rank))[:MAX_LISTED])
    exited = [rank for rank, status in statuses.items() if status.outcome]
    listed.update(sorted(exited, key=lambda rank: (_severity(statuses[rank].outcome), rank))[:MAX_LISTED])
    silent = sorted(rank for rank in unresponsive if not statuses[rank].outcome)[:MAX_LISTED]
    listed.update(silent)
    return StatusDigest({r: statuses[r] for r in sorted(listed)}, every.unconnected[:MAX_LISTED], silent)


def _severity(outcome: str) -> int:
    """Failures first, then their consequences, then success."""
    return 2 if outcome == "done" else 1 if is_consequence(outcome) else 0


def publish_digest(store: Store, digest: StatusDigest) -> None:
    """Write the digest, on rank 0."""
    statuses = {rank: json.loads(encode_status(status)) for rank, status in digest.statuses.items()}
    store.set(_DIGEST, json.dumps(vars(digest) | {"statuses": statuses}))
    store.append(_FAILURES, "")  # type: ignore[attr-defined]  # not in the stubs; so that the key exists


def has_digest(store: Store) -> bool:
    """Whether rank 0 has published a digest."""
    return store.check([_DIGEST, _FAILURES])


def read_digest(store: Store, watched: Iterable[int] = ()) -> StatusDigest:
    """Read the digest, the ranks that have failed since, and the statuses of `watched`, all of which must exist."""
    ranks = list(watched)
    keys = [_DIGEST, _FAILURES, *(f"status/{rank}" for rank in ranks)]
    digest_text, failures, *texts = store.multi_get(keys)
    fields = json.loads(digest_text)
    statuses = {int(rank): _decode_status(status) for rank, status in fields["statuses"].items()}
    statuses |= {rank: _decode_status(json.loads(text)) for rank, text in zip(ranks, texts, strict=True)}
    for line in failures.decode().splitlines():
        rank, text = json.loads(line)
        statuses[rank] = _decode_status(json.loads(text))
    return StatusDigest(statuses, fields["unconnected"], fields["unresponsive"])


def _decode_status(fields: dict[str, object]) -> RankStatus:
    status = RankStatus(**fields)  # type: ignore[arg-type]  # written by encode_status
    first, end, step = status.waiting_for
    status.waiting_for = (first, end, step)  # a list in JSON
    return status
