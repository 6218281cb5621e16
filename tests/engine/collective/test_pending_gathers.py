"""pending_gathers: which all-gathers an access waits for, and what a failed one leaves."""

# SPDX-License-Identifier: Apache-2.0
import os

import pytest
import torch

from argosy.engine.collective.pending_gathers import PendingGathers
from argosy.engine.collective.rank_liveness import RankMonitor
from argosy.engine.collective.work import Work
from argosy.engine.errors import PeerLostError


class Arrives(Work):
    """A collective that writes `number` when it is waited for, or fails."""

    def __init__(self, tensor: torch.Tensor, number: float, error: PeerLostError | None = None) -> None:
        self.tensor, self.number, self.error = tensor, number, error

    def wait(self) -> None:
        if self.error is not None:
            raise self.error
        self.tensor.fill_(self.number)


@pytest.fixture
def monitor() -> RankMonitor:
    return RankMonitor(None, 0, 1)


def test_an_access_waits_for_the_gathers_of_its_tensors_only(monitor: RankMonitor) -> None:
    gathers = PendingGathers(monitor)
    first, second, third = (torch.zeros(2) for _ in range(3))
    gathers.add([first, second], Arrives(first, 1.0))
    gathers.add([third], Arrives(third, 2.0))
    gathers.wait_for([torch.zeros(2)])
    assert len(gathers) == 2
    gathers.wait_for([second])
    assert (first.tolist(), third.tolist(), len(gathers)) == ([1.0, 1.0], [0.0, 0.0], 1)
    gathers.wait_for()
    assert (third.tolist(), len(gathers)) == ([2.0, 2.0], 0)


def test_after_a_failure_every_access_raises_and_no_collective_may_start(
    monitor: RankMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    gathers = PendingGathers(monitor)
    lost, complete = torch.zeros(2), torch.zeros(2)
    gathers.add([lost], Arrives(lost, 0.0, PeerLostError("lost rank 1", (1,), "lost")))
    gathers.add([complete], Arrives(complete, 1.0))
    for _ in range(2):
        with pytest.raises(PeerLostError, match="lost rank 1"):
            gathers.wait_for([lost])
    assert monitor.failed_step == "PeerLostError: lost rank 1"
    gathers.wait_for([complete])
    assert complete.tolist() == [1.0, 1.0]
    gathers.finish()
    assert "at the end of the job: lost rank 1" in caplog.text


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_process_has_complete_parameters(monitor: RankMonitor) -> None:
    gathers, tensor = PendingGathers(monitor), torch.zeros(2)
    gathers._complete_before_forks()
    gathers.add([tensor], Arrives(tensor, 3.0))
    child = os.fork()
    if child == 0:
        os._exit(int(tensor.tolist() != [3.0, 3.0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(gathers) == 0
