"""The names of fluid.incubate.fleet.base: both 1.x fleets are the fleet of this process."""

# SPDX-License-Identifier: Apache-2.0
import copy

import pytest

import argosy as paddle
from argosy import fluid
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.fluid.incubate.fleet.base import fleet_base
from argosy.fluid.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet, Mode
from argosy.fluid.incubate.fleet.collective import fleet as collective
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet as transpiler


def test_both_fleets_are_the_fleet_of_this_process() -> None:
    assert collective._fleet is transpiler._fleet is paddle.distributed.fleet.fleet
    assert isinstance(collective, Fleet)
    assert isinstance(transpiler, Fleet)
    assert (Mode.TRANSPILER, Mode.PSLIB, Mode.COLLECTIVE) == (1, 2, 3)
    with pytest.raises(UnknownNameError, match="fleet_base.Fleets is not in Argosy .did you mean 'Fleet'"):
        _ = fleet_base.Fleets


def test_without_a_launcher_a_job_with_servers_trains_alone() -> None:
    transpiler.init()
    assert (transpiler.is_first_worker(), transpiler.worker_num(), transpiler.server_num()) == (True, 1, 0)
    assert (transpiler.worker_endpoints(True), transpiler.server_endpoints()) == ("127.0.0.1:6170", [])
    optimizer = DistributedOptimizer(fluid.optimizer.SGD(0.5))
    assert copy.copy(optimizer).get_lr() == 0.5
    with pytest.raises(ConfigError, match="was given a int"):
        transpiler.distributed_optimizer(3)
