"""run_record: what a process remembers of a program's runs."""

# SPDX-License-Identifier: Apache-2.0
import gc
import weakref

from argosy.engine.ir.program import Program
from argosy.engine.runtime.run_record import run_record


def test_all_executors_share_the_record_of_a_program() -> None:
    program = Program()
    run_record(program).logged_notices.add(("pass", "line"))
    assert run_record(program).logged_notices == {("pass", "line")}
    assert run_record(Program()).logged_notices == set()


def test_schedules_are_agreed_for_one_version() -> None:
    program = Program()
    run_record(program).schedules_of(1).add(("all_reduce",))
    assert run_record(program).schedules_of(1) == {("all_reduce",)}
    assert run_record(program).schedules_of(2) == set()
    assert run_record(program).schedules_of(1) == set()


def test_a_record_does_not_keep_its_program() -> None:
    program = Program()
    run_record(program)
    gone = weakref.ref(program)
    del program
    gc.collect()
    assert gone() is None
