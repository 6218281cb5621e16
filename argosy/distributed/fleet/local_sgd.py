"""strategy.localsgd and strategy.adaptive_localsgd: the ranks average their parameters in a period.

    every step    localsgd_step += 1
    in a period   average of the parameters (passes/average_parameters.py)

adaptive_localsgd chooses k itself: the more the loss has fallen, the more often the ranks average.

    first step    s = all_reduce([loss, rate]);  store_mean(first, s, ranks)
    in a period   s = all_reduce([loss, rate]);  adapt_k_steps(k_steps, last_step, step, first, s, …)
"""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import torch

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.ir.periods import Period
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.ops.collectives import all_reduce, wait
from argosy.engine.ops.local_sgd import adapt_k_steps, store_mean
from argosy.engine.passes.average_parameters import AverageParameters
from argosy.framework.initializer import Constant
from argosy.framework.layer import create_state
from argosy.framework.period import add_period


def average_parameters(
    strategy: DistributedStrategy,
    loss: Variable,
    startup: Program,
    params_grads: list[tuple[Parameter, Variable]],
    ranks: int,
) -> AverageParameters:
    """Add the strategy's period to the program of the loss; returns the pass that averages the parameters in it."""
    program = loss.program
    with program_guard(program, startup):
        period = _adaptive(strategy, loss, ranks) if strategy.adaptive_localsgd else _fixed(strategy)
    placeholder = program.recorder.placeholder_of
    trained = tuple((p.name, placeholder[p.value]) for p, _ in params_grads)
    return AverageParameters(trained, ranks, period=period.name, overlap=not strategy.sync_nccl_allreduce)


def _fixed(strategy: DistributedStrategy) -> Period:
    configs = strategy.localsgd_configs
    return add_period("localsgd", configs["k_steps"], configs["begin_step"])


def _adaptive(strategy: DistributedStrategy, loss: Variable, ranks: int) -> Period:
    configs = strategy.adaptive_localsgd_configs
    program, begin_step, init_k = loss.program, configs["begin_step"], configs["init_k_steps"]
    period = add_period("adaptive_localsgd", init_k, begin_step)
    k_steps = create_state(f"{period.name}_k_steps", [1], "int64", Constant(init_k))
    last = create_state(f"{period.name}_last_step", [1], "int64", Constant(0))
    first_values = create_state(f"{period.name}_first", [2], "float32", Constant(0.0))
    first = Period(f"{period.name}_first", period.step, every=0, begin_step=1)
    known = [p for p in program.training.periods if p.name != period.name]
    period = replace(period, every=k_steps.name, last=last.name)
    program.training = replace(program.training, periods=(*known, period, first))
    rate, step = program.var(program.training.optimizer_calls[-1].rate), program.var(period.step)
    with program.recording("optimize"), torch.no_grad():
        # The rate, too, so that all ranks compute the same k even if a script gives them different ones.
        with program.recorder.in_period(first.name):
            store_mean(first_values.value, _summed(loss, rate), ranks)
        with program.recorder.in_period(period.name):
            total = _summed(loss, rate)
            states = k_steps.value, last.value, step.value, first_values.value
            adapt_k_steps(*states, total, ranks, init_k, begin_step)
    return period


def _summed(loss: Variable, rate: Variable) -> torch.Tensor:
    """The loss and the learning rate of this step, each summed over the ranks."""
    recorder = loss.program.recorder
    values = torch.cat([loss.value.detach().reshape(1).float(), rate.value.reshape(1)])
    with recorder.in_role("communicate"):
        total: torch.Tensor = wait(all_reduce(values, "dp", "loss and learning rate"))
    for node in (recorder.node(total), recorder.node(total).prev):
        node.meta["finalized"] = True  # not in a bucket with the parameters
    return total
