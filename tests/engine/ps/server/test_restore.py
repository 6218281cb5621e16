"""A server resumes from the state that another process has written."""

# SPDX-License-Identifier: Apache-2.0
import errno
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from argosy.engine.disk import Buffer, Disk
from argosy.engine.errors import RejectedError
from argosy.engine.ps.trainer.trainer import Trainer
from tests.engine.ps.served import SETTINGS, PlainSgd, plan_of, served, step


def test_a_server_resumes_from_the_state_of_another_process(tmp_path: Path) -> None:
    with served(trainers=1, directory=tmp_path) as (_, plan):
        trainer = Trainer(plan, 0, SETTINGS)
        rows = torch.ones(2, 1, 2)
        for _ in range(3):
            step(trainer, torch.ones(3), 0.5, rows)
        trainer.close()
    with served(trainers=1, directory=tmp_path, updater=PlainSgd(w=torch.zeros(3))) as (service, plan):
        trainer = Trainer(plan, 0, SETTINGS)
        assert trainer.connection.next_step == 4
        assert service.steps.done == 3
        assert (step(trainer, torch.ones(3), 0.5, rows) == -2.0).all()
        assert trainer.rows.start_pull("table", torch.tensor([5])).wait().tolist() == [[-1.0, -1.0]]
        trainer.close()


def test_a_server_that_was_restarted_without_its_state_refuses_lookups_of_rows() -> None:
    with served(trainers=1) as (service, plan):
        trainer = Trainer(plan, 0, SETTINGS)
        rows = torch.ones(2, 1, 2)
        step(trainer, torch.ones(3), 1.0, rows)
        endpoint = service.rpc.endpoint
    with served(trainers=1, endpoint=endpoint, initialised_by_trainer=True):
        message = "wants values after step 1, and this server has done 0: it was restarted without its state"
        with pytest.raises(RejectedError, match=message):
            step(trainer, torch.ones(3), 1.0, rows)
        trainer.close()


def test_a_trainer_whose_collective_fails_takes_part_in_steps_again() -> None:
    with served(trainers=2) as (service, plan):
        trainers = [Trainer(plan, number, SETTINGS) for number in range(2)]
        with pytest.raises(RuntimeError, match="while excluded"), trainers[0].group.excluded():
            raise RuntimeError("while excluded")
        assert service.membership.active() == {0, 1}
        for trainer in trainers:
            trainer.close()


class FullDisk(Disk):
    """Has no room for the dense state while `is_full`."""

    is_full = False

    def write(self, path: Path, parts: Iterable[Buffer]) -> None:
        if self.is_full and path.name.startswith("state."):
            raise OSError(errno.ENOSPC, "no space left on device")
        super().write(path, parts)


def test_snapshots_that_fail_after_their_tables_were_written_lose_no_rows(tmp_path: Path) -> None:
    rows, disk = torch.ones(2, 1, 2), FullDisk()
    with served(trainers=1, mode="async", directory=tmp_path) as (service, plan):
        wal = service.state.wal
        assert wal is not None
        wal.disk = disk
        trainer = Trainer(plan, 0, SETTINGS)
        step(trainer, torch.ones(3), 0.5, rows)
        service.snapshots.take(1)
        disk.is_full = True
        for _ in range(4):  # whole and partial snapshots of the table, none of which counts
            step(trainer, torch.ones(3), 0.5, rows)
            with pytest.raises(OSError, match="no space left"):
                service.snapshots.take(1)
        trainer.close()
        service.plan = plan_of(plan.endpoints[0], 1, "sync")  # no snapshot at its end, as if it were killed
    with served(trainers=1, mode="async", directory=tmp_path) as (_, plan):
        trainer = Trainer(plan, 0, SETTINGS)
        assert (step(trainer, torch.zeros(3), 0.5) == -2.5).all()
        assert trainer.rows.start_pull("table", torch.tensor([5])).wait().tolist() == [[-1.5, -1.5]]
        trainer.close()
