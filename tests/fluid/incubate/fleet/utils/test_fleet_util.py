"""fluid.incubate.fleet.utils: FleetUtil and the barrier between workers; what needs pslib or HDFS raises."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy.engine.errors import ConfigError, UnknownNameError, UnsupportedError
from argosy.engine.runtime.scope import Scope
from argosy.fluid.incubate.fleet import utils
from argosy.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from argosy.fluid.incubate.fleet.utils.fleet_barrier_util import check_all_trainers_ready
from argosy.fluid.incubate.fleet.utils.fleet_util import FleetUtil


def test_worker_0_prints_metrics_of_all_workers(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    fleet.init()
    util, scope = FleetUtil("transpiler"), Scope()
    scope.put("pos", torch.tensor([0, 3]))
    scope.put("neg", torch.tensor([2, 0]))
    util.print_global_auc(scope, "pos", "neg", "epoch 0:")
    util.rank0_print("hello")
    util.rank0_error("wrong")
    util.rank0_info("right")
    util.set_zero("pos", scope)
    check_all_trainers_ready("/nowhere", 3)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["epoch 0: global auc = 1.0", "hello", "all 1 workers are ready for epoch 3"]
    assert "wrong" in caplog.text
    assert scope.get("pos").tolist() == [0, 0]


def test_what_needs_pslib_raises() -> None:
    with pytest.raises(ConfigError, match=r"pslib is not supported; use FleetUtil\(mode='transpiler'\)"):
        FleetUtil()
    with pytest.raises(
        UnknownNameError, match=r"FleetUtil\.save_paddle_params is not in Argosy: it is for pslib"
    ):
        FleetUtil("transpiler").save_paddle_params()
    with pytest.raises(UnsupportedError, match=r"http_server\.KVServer is not supported: ranks rendezvous"):
        utils.http_server.KVServer(8000)
    with pytest.raises(UnsupportedError, match=r"utils\.load_program is not supported: programs are saved"):
        utils.utils.load_program("model")
