"""A task is one op, module, sample of our own or random net; its cases are its samples, in each mode and form."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, partial

from tests.torch_db import modules, nets, ops, samples
from tests.torch_db.compare import forms
from tests.torch_db.modules import ModuleSample
from tests.torch_db.outcome import Outcome, Record

GROUPS = ("modules", "samples", "ops", "nets")


@dataclass(frozen=True)
class Task:
    """What one process does."""

    group: str
    name: str
    limit: int = 32
    """The most samples to take."""


@dataclass(frozen=True)
class Case:
    """One sample in one form."""

    stub: Record
    """Where its records belong; the mode is that of the first one."""
    outcomes: Callable[[], Iterator[tuple[str, Outcome]]]

    def run(self) -> Iterator[Record]:
        stub = self.stub
        for mode, outcome in self.outcomes():
            yield Record(stub.group, stub.name, mode, stub.form, stub.sample, outcome.kind, outcome.detail)


def tasks(
    groups: tuple[str, ...] = GROUPS, only: str = "*", limit: int = 32, num_nets: int = nets.COUNT
) -> list[Task]:
    """The tasks of these groups whose name matches the pattern `only`, or contains it."""
    random_nets = [nets.name_of(seed) for seed in range(num_nets)]
    named = {"modules": modules.MODULES, "samples": own_samples(), "ops": ops.OPS, "nets": random_nets}
    return [
        Task(group, name, limit)
        for group in groups
        for name in named[group]
        if fnmatch(name, only) or only in name
    ]


def cases(task: Task) -> Iterator[Case]:
    """In a fixed order, so that a task can resume after a case that ended the process."""
    if task.group == "ops":
        for index, sample in enumerate(ops.samples(task.name, task.limit)):
            for form, unknown in forms(sample.tree).items():
                stub = Record(task.group, task.name, "forward", form, index, "")
                yield Case(stub, partial(ops.check, sample, unknown))
        return
    if task.group == "nets":
        yield from net_cases(task)
        return
    for training in (True, False):
        for index, given in enumerate(_module_samples(task, training)):
            for form, unknown in forms(given.tree, given.has_batch).items():
                yield module_case(task, given, index, training, form, unknown)


def module_case(
    task: Task, sample: ModuleSample, index: int, training: bool, form: str, unknown: bool
) -> Case:
    stub = Record(task.group, task.name, "train" if training else "eval", form, index, "")
    return Case(stub, partial(modules.check, sample, training, unknown))


def net_cases(task: Task) -> Iterator[Case]:
    seed = nets.seed_of(task.name)
    for mode, check in (("train", nets.check_training), ("eval", nets.check_evaluation)):
        yield Case(Record(task.group, task.name, mode, "unknown", 0, ""), partial(check, seed))


def _module_samples(task: Task, training: bool) -> list[ModuleSample]:
    if task.group == "samples":
        return [own_samples()[task.name]]
    return modules.samples(task.name, training, task.limit)


@cache
def own_samples() -> dict[str, ModuleSample]:
    return samples.samples()
