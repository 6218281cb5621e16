"""What trainers and servers say to each other: the meta data of each kind of request. Tensors travel beside it."""

# SPDX-License-Identifier: Apache-2.0
from typing import Annotated, Any, TypeVar

import msgspec

from argosy.engine.errors import ConfigError

M = TypeVar("M", bound=msgspec.Struct)


class Hello(msgspec.Struct, forbid_unknown_fields=True):
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


class Push(msgspec.Struct, forbid_unknown_fields=True):
    """Gradients (geo: changes) of blocks; one tensor for each."""

    step: int
    blocks: list[str]
    rates: list[float]


class PushRows(msgspec.Struct, forbid_unknown_fields=True):
    """Gradients (geo: changes) of rows of a table: tensors ids, rows."""

    step: int
    table: str
    rate: float


class Barrier(msgspec.Struct, forbid_unknown_fields=True):
    """This trainer has sent all of a step, in so many messages, which may arrive later. Answered when it is done."""

    step: int
    pushes: Annotated[int, msgspec.Meta(ge=0)]


class Pull(msgspec.Struct, forbid_unknown_fields=True):
    """The values of blocks, once a step is done."""

    after: int
    blocks: list[str]
    steps: int = 0
    """async: how many steps this trainer has done since it asked last."""


class PullRows(msgspec.Struct, forbid_unknown_fields=True):
    """The rows of these ids (one tensor), once a step is done."""

    after: int
    table: str
    create: bool = True
    """False: rows that are not there are not made; their first values are answered."""


class PullChanges(msgspec.Struct, forbid_unknown_fields=True):
    """geo: the rows that anybody has changed since this trainer asked last. Answered with ids, rows."""

    table: str


class Initialise(msgspec.Struct, forbid_unknown_fields=True):
    """First values of blocks; ignored by a server that has values already."""

    blocks: list[str]


class Pause(msgspec.Struct, forbid_unknown_fields=True):
    """This trainer waits for the others elsewhere: steps go on without it until its next Hello."""


class Keep(msgspec.Struct, forbid_unknown_fields=True):
    """Values of variables that every trainer has for itself, so that all begin with the same."""

    names: list[str]


class Kept(msgspec.Struct, forbid_unknown_fields=True):
    """Answered with what was kept: names, and a tensor for each, once the servers have their first values."""


class Total(msgspec.Struct, forbid_unknown_fields=True):
    """A server's part of a norm (one tensor), for server 0. Answered with the sum."""

    number: int
    group: int
    member: int


class KnownTotal(msgspec.Struct, forbid_unknown_fields=True):
    """Answered with the sum of this number, if the server has it."""

    number: int


class Meet(msgspec.Struct, forbid_unknown_fields=True):
    """Answered with the tensors of all members, in order, when all have come."""

    name: str
    number: int
    group: str
    """trainers"""
    member: int


class Post(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes (one tensor) for another trainer."""

    box: str
    to: int


class Take(msgspec.Struct, forbid_unknown_fields=True):
    """What was posted for this trainer: one tensor for each sender, in order, once all have posted."""

    box: str


class Save(msgspec.Struct, forbid_unknown_fields=True):
    """Write the tables into a directory of the server's host."""

    directory: str


class State(msgspec.Struct, forbid_unknown_fields=True):
    """Everything dense that the server keeps: parameters and optimizer state. Answered with names."""


class Leave(msgspec.Struct, forbid_unknown_fields=True):
    """This trainer is done; nobody waits for it any more."""


def read(kind: type[M], meta: Any) -> M:
    """The meta data as its type; an error that names what is wrong."""
    try:
        return msgspec.convert(meta, kind)
    except msgspec.ValidationError as e:
        raise ConfigError(f"a {kind.__name__} message is wrong: {e}; the programs differ in version") from e


def meta(message: msgspec.Struct) -> dict[str, Any]:
    """A message as plain data."""
    return msgspec.to_builtins(message)  # type: ignore[no-any-return]
