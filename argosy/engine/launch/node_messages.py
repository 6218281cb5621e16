"""The messages between the launchers of a job's nodes; see `nodes.py`."""

# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

MAX_BYTES = 1 << 20
"""The limit of one message, a line of JSON."""


class _Message:
    """A frozen dataclass that can be sent: numbers, strings, and tuples of them."""

    def to_json(self) -> dict[str, Any]:
        return {"type": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Raises ValueError if a field is missing or unknown."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        given = {name: _frozen(value) for name, value in values.items() if name != "type"}
        if sorted(given) != sorted(names):
            raise ValueError(f"a {cls.__name__} has the fields {names}, not {sorted(given)}")
        return cls(**given)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Joined:
    """Not sent, but an event: this node is connected, and the others reach it at this address."""

    address: str


@dataclass(frozen=True)
class Offer(_Message):
    """What one node brings into an attempt."""

    node: int
    host: str
    """Its name, for messages."""
    address: str
    """Where the other nodes reach its processes."""
    ports: tuple[int, ...]
    """Free ports at that address, one for each of its processes, and one for MASTER_PORT."""
    devices: tuple[tuple[str, ...], ...]
    """In a collective job: the devices of each of its ranks."""
    mode: str
    """collective or ps."""
    version: str
    role: str = ""
    """In a parameter-server job: server or worker if the node runs only these."""


@dataclass(frozen=True)
class Plan(_Message):
    """The offers of all nodes, in order: what each launcher derives the endpoints of all processes from."""

    offers: tuple[Offer, ...]
    token: str
    """The secret of the job."""
    attempt: int

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        offers = [Offer.from_json(offer) for offer in values["offers"]]
        return super().from_json(values | {"offers": offers})


@dataclass(frozen=True)
class Result(_Message):
    """How the processes of one node ended."""

    node: int
    kind: Literal["done", "preempted", "failed", "signal"]
    """done: by themselves. preempted: they have saved a checkpoint. failed: one failed, so all nodes must end.

    signal: the launcher received one.
    """
    code: int
    """The exit code of that node's launcher, if it were alone."""
    text: str = ""
    """The failure report."""
    is_cause: bool = True
    """False if its failed processes only lost processes of another node."""


@dataclass(frozen=True)
class Verdict(_Message):
    """How an attempt ended, for all nodes."""

    code: int
    text: str
    """What node 0 prints: the report of the cause."""
    restarts: bool = False
    """Another attempt follows."""
    is_local: bool = False
    """Decided by this node alone, which has no connection to node 0."""


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Raises ValueError if the line is no message."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"a message is an object, not {message!r:.80}")
    return message
