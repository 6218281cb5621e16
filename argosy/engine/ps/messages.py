"""What trainers and servers say to each other: the meta data of each kind of request. Tensors travel beside it."""

# SPDX-License-Identifier: Apache-2.0
import re
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from argosy.engine.errors import ConfigError
from argosy.engine.ps.plan import Plan

M = TypeVar("M", bound=msgspec.Struct)


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """What a trainer or another server says."""


class Hello(Message):
    """A trainer's first word. Answered with the Welcome."""

    mode: str
    trainers: int
    blocks: list[str]
    """Name and shape of each."""
    tables: list[str]
    optimizers: list[str]


class Welcome(msgspec.Struct):
    """What a trainer has to know to go on."""

    next_step: int
    """The step that the server wants from this trainer next; counted from 1."""
    is_initialised: bool


class Push(Message):
    """Gradients (geo: changes) of blocks; one tensor for each."""

    step: int
    blocks: list[str]
    rates: list[float]


class PushRows(Message):
    """Gradients (geo: changes) of rows of a table: tensors ids, rows."""

    step: int
    table: str
    rate: float


class Barrier(Message):
    """This trainer has sent all of a step, in so many messages, which may arrive later. Answered when it is done."""

    step: int
    pushes: Annotated[int, msgspec.Meta(ge=0)]


class Pull(Message):
    """The values of blocks, once a step is done."""

    after: int
    blocks: list[str]
    steps: int = 0
    """async: how many steps this trainer has done since it asked last."""


class PullRows(Message):
    """The rows of these ids (one tensor), once a step is done."""

    after: int
    table: str
    create: bool = True
    """False: rows that are not there are not made; their first values are answered."""


class PullChanges(Message):
    """geo: the rows that anybody has changed since this trainer asked last. Answered with ids, rows."""

    table: str


class Initialise(Message):
    """First values of blocks; ignored by a server that has values already."""

    blocks: list[str]
    kept: list[str]
    """Variables that every trainer has for itself, so that all begin with the same; their tensors come last."""


class Pause(Message):
    """This trainer waits for the others elsewhere: steps go on without it until its next Hello."""


class Kept(Message):
    """Answered with what trainers begin with: names, and a tensor for each, once there are first values."""


class Total(Message):
    """A server's part of a norm (one tensor), for server 0. Answered with the sum."""

    number: int
    group: int
    member: int


class KnownTotal(Message):
    """Answered with the sum of this number, if the server has it."""

    number: int


class Meet(Message):
    """Answered with the tensors of all trainers, in order, when all have come."""

    name: str
    number: int


class Post(Message):
    """Bytes (one tensor) for another trainer. Not answered: who posts takes it back when all have what is theirs."""

    number: int
    to: int


class Take(Message):
    """What was posted for this trainer: one tensor for each sender, in order, once all have posted."""

    number: int


class Save(Message):
    """Write the tables into a directory of the server's host."""

    directory: str


class State(Message):
    """Everything dense that the server keeps: parameters and optimizer state. Answered with names."""


class Leave(Message):
    """This trainer is done; nobody waits for it any more."""


def hello(plan: Plan) -> Hello:
    """What both sides of a job must agree on."""
    tables = [f"{table.name}[{table.dim}]" for table in plan.tables]
    return Hello(plan.mode, plan.trainers, plan.described(), tables, list(plan.optimizers))


@cache
def kind(message: type[Message]) -> str:
    """What a request with such a message is called: push_rows."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", message.__name__).lower()


def read(expected: type[M], meta: Any) -> M:
    """The meta data as its type; an error that names what is wrong."""
    try:
        return msgspec.convert(meta, expected)
    except msgspec.ValidationError as e:
        raise ConfigError(
            f"a {expected.__name__} message is wrong: {e}; the programs differ in version"
        ) from e


def meta(message: msgspec.Struct) -> dict[str, Any]:
    """A message as plain data."""
    return msgspec.to_builtins(message)  # type: ignore[no-any-return]
