"""A run that needs only some gradients starts no collective that is never waited for."""

# SPDX-License-Identifier: Apache-2.0
import argosy as paddle
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.ir.program import default_main_program
from argosy.engine.ops.collectives import all_reduce_fused, wait
from argosy.engine.passes.base import rewrite
from argosy.engine.runtime.compile import compile_program


def test_every_collective_of_a_pruned_step_is_waited_for() -> None:
    x = paddle.static.data("x", [None, 4])
    for size in (8, 8, 2):
        x = paddle.static.nn.fc(x, size)
    loss = x.mean()
    _, pairs = paddle.optimizer.SGD(0.1).minimize(loss)
    strategy = DistributedStrategy()
    strategy.sync_nccl_allreduce, strategy.fuse_grad_size_in_MB = False, 0
    program = default_main_program()
    rewrite(program, training_passes(strategy, loss.program, pairs, ranks=2))
    for name in ("fc_0.w_0@GRAD", "fc_1.w_0@GRAD", "fc_2.b_0@GRAD"):
        step = compile_program(program, [program.var(name)], with_updates=False).step
        started = [node for node in step.nodes if node.target is all_reduce_fused]
        waited = [node for node in step.nodes if node.target is wait]
        assert started
        assert {node.args[0] for node in waited} == set(started), name
