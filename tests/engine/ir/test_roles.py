"""Roles: a copy has the role of its program; a program for testing prefetches nothing."""

# SPDX-License-Identifier: Apache-2.0
import torch

from argosy.engine.ir.program import Program, default_main_program
from argosy.engine.ir.roles import FedLookup, JobRole, ServerRole, TrainerRole
from argosy.engine.ps.protocol.job_plan import JobPlan
from argosy.engine.runtime.remote import prefetch_of

PLAN = JobPlan(("127.0.0.1:6174",), trainers=1)


def program_with(role: JobRole | None) -> Program:
    program = default_main_program()
    torch.relu(program.data("ids", [None]))
    program.role = role
    return program


def test_a_clone_has_the_same_role() -> None:
    program = program_with(ServerRole(PLAN, 0))
    assert program.clone().role is program.role


def test_a_program_for_testing_stays_a_trainer_without_prefetch() -> None:
    program = program_with(TrainerRole(PLAN, 3, (FedLookup("table", ("ids",)),)))
    assert prefetch_of(program) is not None
    copied = program.clone(for_test=True)
    assert copied.role == TrainerRole(PLAN, 3)
    assert prefetch_of(copied) is None


def test_other_programs_prefetch_nothing() -> None:
    assert prefetch_of(program_with(None)) is None
    assert prefetch_of(program_with(ServerRole(PLAN, 0))) is None
