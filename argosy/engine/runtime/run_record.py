"""What this process remembers of the runs of a program, for all its executors."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from argosy.engine.ir.program import Program


@dataclass
class RunRecord:
    """What was logged and agreed on when a program was compiled and run."""

    logged_notices: set[tuple[str, str]] = field(default_factory=set)
    """(pass, line): notices of its passes that were logged already."""
    agreed_version: int = -1
    """The version of the program that `agreed_schedules` belong to."""
    agreed_schedules: set[tuple[str, ...]] = field(default_factory=set)
    """The lists of collectives that the ranks have agreed on."""

    def schedules_of(self, version: int) -> set[tuple[str, ...]]:
        """The agreed schedules of this version; those of other versions are dropped."""
        if self.agreed_version != version:
            self.agreed_version, self.agreed_schedules = version, set()
        return self.agreed_schedules


_records: WeakKeyDictionary[Program, RunRecord] = WeakKeyDictionary()


def run_record(program: Program) -> RunRecord:
    """The record of a program, created at first use; it is dropped with the program."""
    return _records.setdefault(program, RunRecord())
