"""Requests between trainers and servers: the metadata of each kind. Tensors follow it in the same message."""

# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec
import torch

from argosy.engine.errors import ConfigError
from argosy.engine.ps.protocol.job_plan import JobPlan

M = TypeVar("M", bound=msgspec.Struct)
PREEMPTION = "preemption"
"""The name of the all-gather by which trainers agree on the step boundary at which they stop."""


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that a request needs; None: any."""

    name: str
    dtype: torch.dtype | None = None
    dims: int | None = None
    is_number: bool = False
    """True: one element, a float."""

    def fits(self, tensor: torch.Tensor) -> bool:
        if self.is_number:
            return tensor.is_floating_point() and tensor.numel() == 1
        return self.dtype in (None, tensor.dtype) and self.dims in (None, tensor.ndim)

    def __str__(self) -> str:
        if self.is_number:
            return "a number"
        return f"{_name(self.dtype)} with {self.dims} dimension{'' if self.dims == 1 else 's'}"


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """The metadata of a request of a trainer or of another server."""

    def needs(self) -> Sequence[TensorSpec] | None:
        """The tensors of the request, in order; None: any number of any."""
        return ()


_IDS = TensorSpec("ids", torch.int64, 1)


class Hello(Message):
    """A trainer registers. Reply: HelloReply."""

    mode: str
    trainers: int
    blocks: list[str]
    """Name and shape of each."""
    tables: list[str]
    optimizers: list[str]


class HelloReply(msgspec.Struct):
    """Where a trainer continues."""

    next_step: int
    """The step that the server expects from this trainer next; counted from 1."""
    is_initialised: bool


class Push(Message):
    """Gradients (geo: deltas) of blocks; one tensor for each."""

    step: int
    blocks: list[str]
    rates: list[float]

    def __post_init__(self) -> None:
        if len(self.blocks) != len(self.rates):
            raise ValueError(f"{len(self.blocks)} blocks and {len(self.rates)} rates")

    def needs(self) -> Sequence[TensorSpec]:
        return [TensorSpec(name) for name in self.blocks]


class PushRows(Message):
    """Gradients (geo: deltas) of rows of a table: tensors ids, rows."""

    step: int
    table: str
    rate: float

    def needs(self) -> Sequence[TensorSpec]:
        return (_IDS, TensorSpec("rows", torch.float32, 2))


class Barrier(Message):
    """This trainer has sent all of a step; `pushes`: the sequence numbers of its pushes, which may arrive later.

    The reply is sent when the step is done.
    """

    step: int
    pushes: list[int]


class Pull(Message):
    """The values of blocks, once a step is done."""

    after: int
    blocks: list[str]
    steps: int = 0
    """async: how many steps this trainer has done since its last pull."""


class PullRows(Message):
    """The rows of these ids (one tensor), once a step is done."""

    after: int
    table: str
    create: bool = True
    """False: missing rows are not created; the reply has their initial values."""

    def needs(self) -> Sequence[TensorSpec]:
        return (_IDS,)


class PullIds(Message):
    """The ids that have a row in a table, if they are no more than `most`. Reply: one tensor, sorted."""

    table: str
    most: int


class PullChanges(Message):
    """geo: the rows that were changed since this trainer's last PullChanges. Reply: ids, rows."""

    table: str


class Initialise(Message):
    """Initial values of blocks; ignored by a server that is initialised."""

    blocks: list[str]
    shared: list[str]
    """Variables that every trainer has for itself, so that all start with the same values; their tensors come last."""

    def needs(self) -> Sequence[TensorSpec]:
        return [TensorSpec(name) for name in (*self.blocks, *self.shared)]


class Pause(Message):
    """This trainer waits in a collective: steps do not wait for it until its next Hello."""


class SharedInit(Message):
    """The initial values of variables that every trainer has for itself. Reply: names, and a tensor for each."""


class LastStep(Message):
    """A server asks another, when a job starts from the state of an earlier one. Reply: Restored."""


class Restored(msgspec.Struct):
    """The content of a server's state directory."""

    step: int | None
    """The last step that is done; None: no state."""
    is_untouched: bool
    """It has initial values only."""


class ReduceNorm(Message):
    """A server's part of a norm (one tensor), for server 0. Reply: the sum."""

    number: int
    group: int
    member: int

    def needs(self) -> Sequence[TensorSpec]:
        return (TensorSpec("part", is_number=True),)


class QueryNorm(Message):
    """Reply: the sum with this number, if the server has it."""

    number: int


class AllGather(Message):
    """Reply: the tensors of all trainers, in order, when all have joined."""

    name: str
    number: int

    def needs(self) -> None:
        return None


class AllGatherResult(Message):
    """Query the result of an all-gather. Reply: as for `AllGather`; `counts` is None if it has not completed."""

    name: str
    number: int


class PreemptionRequested(Message):
    """Query whether the job is to stop: a trainer has joined the all-gather PREEMPTION, or the server was signalled.

    Reply: `is_requested`.
    """


class Send(Message):
    """Bytes (one tensor) for another trainer. No reply: the sender cancels it when all have received their data."""

    number: int
    to: int

    def needs(self) -> Sequence[TensorSpec]:
        return (TensorSpec("bytes", torch.uint8, 1),)


class Recv(Message):
    """Reply: the data sent to this trainer, one tensor for each sender, in order, once all have sent."""

    number: int


class Save(Message):
    """Write the tables into a directory of the server's host. Reply: the files and their checksums."""

    directory: str
    save: str
    """Part of the file names: the files of an earlier save stay until this one is committed."""


class CommitSave(Message):
    """Commit a save: the server removes the files of earlier ones."""

    directory: str
    save: str


class Load(Message):
    """Load a saved model. Idempotent by `number`."""

    path: str
    number: int
    """How often the trainers have loaded something in this job."""


class PullState(Message):
    """All dense state of the server: parameters and optimizer state. Reply: names, and a tensor for each."""


class Goodbye(Message):
    """This trainer leaves the job."""

    is_preempted: bool = False
    """The job was preempted, and has saved a checkpoint."""


def hello(plan: JobPlan) -> Hello:
    """The settings that trainers and servers of a job must agree on."""
    tables = [f"{table.name}[{table.dim}]" for table in plan.tables]
    return Hello(plan.mode, plan.trainers, plan.described(), tables, list(plan.optimizers))


@cache
def kind(message: type[Message]) -> str:
    """The wire name of a message class: push_rows."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", message.__name__).lower()


def read(expected: type[M], meta: Any) -> M:
    """Decode metadata; raises ConfigError if it is invalid."""
    try:
        return msgspec.convert(meta, expected)
    except msgspec.ValidationError as e:
        raise ConfigError(
            f"invalid {expected.__name__} message: {e}; use the same Argosy in all processes"
        ) from e


def check_tensors(request_kind: str, meta: Any, tensors: Sequence[torch.Tensor]) -> None:
    """Raise ConfigError if a request's tensors are not those that its kind needs."""
    needed = read(_kinds()[request_kind], meta).needs()
    if needed is None:
        return
    if len(tensors) != len(needed):
        names = ", ".join(spec.name for spec in needed)
        raise ConfigError(
            f"{request_kind} has {len(tensors)} tensors, and needs {len(needed)} ({names or 'none'}); use the same "
            "Argosy in all processes"
        )
    for wanted, tensor in zip(needed, tensors, strict=True):
        if not wanted.fits(tensor):
            raise ConfigError(
                f"the tensor {wanted.name} of {request_kind} is {_name(tensor.dtype)}{list(tensor.shape)}, and must be "
                f"{wanted}; use the same Argosy in all processes"
            )


@cache
def _kinds() -> dict[str, type[Message]]:
    return {kind(message): message for message in Message.__subclasses__()}


def meta(message: msgspec.Struct) -> dict[str, Any]:
    """A message as plain data."""
    return msgspec.to_builtins(message)  # type: ignore[no-any-return]
