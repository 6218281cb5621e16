"""Autotune in real jobs of two ranks: switching changes no result, and all ranks switch in the same step."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.auto.autotune import Autotune
from argosy.distributed.auto.decision_log import FORMAT
from argosy.distributed.auto.setting import Setting
from argosy.distributed.auto.tuner import Decision, Proposal, TunerStep
from argosy.engine.collective import world
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.runtime.checkpoint import Checkpoint
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.ranks import ForkServer

STEPS = 24
NO_BUILD = {"ARGOSY_KERNELS": "0"}
"""An empty cache has no kernels, and building them takes long."""
Arrays = dict[str, np.ndarray[Any, Any]]


class RoundRobin:
    """A decider that gives each setting three steps in turn."""

    spent_s = elapsed_s = reference_ms = 0.0
    wants_samples = False

    def __init__(self, settings: Sequence[Setting]) -> None:
        self.settings = list(settings)
        self.setting = self.settings[0]
        self.decisions: list[Decision] = []
        self.blocks = 0

    def next_block(self) -> list[TunerStep]:
        self.setting = self.settings[self.blocks % len(self.settings)]
        self.blocks += 1
        return [TunerStep(self.setting)] * 3

    def finish(self, times: Sequence[float], elapsed_s: float, overhead_s: float) -> bool:
        return False

    def propose(self, proposals: Sequence[Proposal], reason: str, took_s: float) -> None:
        raise AssertionError("not planned")

    def restore(self, setting: Setting) -> None:
        self.settings, self.blocks = [setting], 0


def strategy_of(auto: bool, **configs: Any) -> Any:
    strategy = fleet.DistributedStrategy()
    if auto:
        strategy.auto = True
        strategy.auto_configs = {"cache": False, **configs}
    return strategy


class Net:
    """A small multilayer perceptron with dropout, and its executor."""

    def __init__(self, strategy: Any, hidden: int = 64) -> None:
        torch.manual_seed(0)
        fleet.init(is_collective=True, strategy=strategy)
        x, y = paddle.static.data("x", [None, 16]), paddle.static.data("y", [None, 1], "int64")
        h = x
        for _ in range(3):
            h = paddle.nn.functional.dropout(paddle.static.nn.fc(h, hidden, activation="relu"), 0.1)
        self.loss = paddle.nn.functional.cross_entropy(paddle.static.nn.fc(h, 4), y)
        fleet.distributed_optimizer(paddle.optimizer.Momentum(0.05, 0.9), strategy).minimize(self.loss)
        self.main = paddle.static.default_main_program()
        self.exe = paddle.static.Executor()
        self.exe.run(paddle.static.default_startup_program())

    def step(self, number: int, size: int = 8) -> float:
        rng = np.random.default_rng(100 * number + fleet.worker_index())
        feed = {"x": rng.standard_normal((size, 16)).astype("float32"), "y": rng.integers(0, 4, (size, 1))}
        return float(self.exe.run(self.main, feed=feed, fetch_list=[self.loss])[0])

    def values(self) -> Arrays:
        scope = paddle.static.global_scope()
        return {name: scope.get(name).numpy().copy() for name in self.main.persistables()}


class fresh:
    """Programs, names and a scope of their own, with a seed."""

    def __enter__(self) -> None:
        main, startup = Program("main"), Program("startup")
        main.random_seed = startup.random_seed = 7
        self.guards = [program_guard(main, startup), names.guard(), scope_guard(Scope())]
        for guard in self.guards:
            guard.__enter__()

    def __exit__(self, *_: object) -> None:
        for guard in reversed(self.guards):
            guard.__exit__(None, None, None)


def same_on_all_ranks(what: str, value: Any) -> list[str]:
    texts = world().all_gather_object(what, json.dumps(value))
    assert len(set(texts)) == 1, texts
    return texts


def plain_run() -> tuple[Arrays, list[float]]:
    with fresh():
        net = Net(strategy_of(auto=False))
        losses = [net.step(number) for number in range(STEPS)]
        return net.values(), losses


def switching_changes_nothing() -> None:
    wanted, losses = plain_run()
    with fresh():
        net = Net(strategy_of(auto=True))
        tuned = net.main.alternatives
        assert isinstance(tuned, Autotune)
        given = tuned.tuner.setting
        small = replace(given, bucket_mb=0)
        settings = [given, replace(small, overlap=True), small, replace(given, divides_updates=False)]
        tuned.tuner = RoundRobin(settings)
        active, found = [], []
        for number in range(STEPS):
            found.append(net.step(number))
            active.append(tuned.active.text())
            net.exe.memory_report(net.main)
        assert len(set(active)) == 4, active
        assert active[0] != active[3]
        same_on_all_ranks("settings#1 (of each step)", active)
        assert found == losses
        for name, value in net.values().items():
            np.testing.assert_array_equal(value, wanted[name], name)
        test = net.main.clone(for_test=True)
        assert test.alternatives is None
        net.step(STEPS)
        assert tuned.active in settings, "a clone does not change the program"
        with program_guard(net.main):
            other = paddle.mean(net.loss)
        net.exe.run(
            net.main,
            feed={"x": np.zeros((2, 16), "float32"), "y": np.zeros((2, 1), "int64")},
            fetch_list=[other],
        )
        assert tuned.active == given, "the changed program runs as it is"


def test_switching_changes_no_result_and_all_ranks_switch_in_the_same_step(ranks: ForkServer) -> None:
    said = ranks.check(2, switching_changes_nothing)
    assert "was changed after minimize" in said[0]


def tunes_itself() -> None:
    folder = Path(os.environ["ARGOSY_METRICS_DIR"])
    active = []
    with fresh():
        net = Net(strategy_of(auto=True, budget=100.0, cache=True, min_gain=0.01))
        tuned = net.main.alternatives
        assert isinstance(tuned, Autotune)
        for number in range(60):
            net.step(number)
            active.append(tuned.active.text())
        same_on_all_ranks("settings#1 (of each step)", active)
        kinds = [decision.kind for decision in tuned.tuner.decisions]
        assert kinds[:2] == ["start", "plan"], kinds
        same_on_all_ranks("decisions#1 (kinds)", [kinds, tuned.tuner.setting.text()])
        checkpoint = Checkpoint(folder / "checkpoints")
        checkpoint.save(60, net.exe, net.main)
        setting = tuned.tuner.setting
    if fleet.worker_index() == 0:
        content = json.loads((folder / "autotune.json").read_text())
        assert content["format"] == FORMAT
        assert content["ranks"] == 2
        assert content["decisions"][1]["kind"] == "plan"
        assert "shared memory of" in content["link"]
    with fresh():
        net = Net(strategy_of(auto=True, cache=False))
        resumed = net.main.alternatives
        assert isinstance(resumed, Autotune)
        assert resumed.tuner.setting != Setting(bucket_mb=1, overlap=True)
        assert Checkpoint(folder / "checkpoints").restore(net.exe, net.main) is not None
        assert resumed.tuner.setting == setting
        net.step(0)


def test_a_job_plans_logs_and_resumes(ranks: ForkServer, tmp_path: Path) -> None:
    said = ranks.check(
        2, tunes_itself, ARGOSY_METRICS_DIR=str(tmp_path), ARGOSY_CACHE=str(tmp_path / "cache"), **NO_BUILD
    )
    assert "autotune, step 0: starts with buckets of 32 MB (that of the strategy)" in said[0]
    assert "autotune, step 12: plan: " in said[0]
    assert "autotune" not in said[1]


def starts_with_the_cached_choice() -> None:
    from argosy.distributed.auto import choice_cache

    chosen = Setting(bucket_mb=1, overlap=True)
    with fresh():
        net = Net(strategy_of(auto=True, cache=True))
        tuned = net.main.alternatives
        assert isinstance(tuned, Autotune)
        assert tuned.job.cache_file is not None
        if fleet.worker_index() == 0:
            choice_cache.add(tuned.job.cache_file, tuned.job.cache_key, 0.0, chosen, 1.0)
        fleet.barrier_worker()
        net.step(0)
    with fresh():
        net = Net(strategy_of(auto=True, cache=True))
        again = net.main.alternatives
        assert isinstance(again, Autotune)
        assert again.tuner.setting == again.active == chosen
        assert "overlap" in again.tuner.decisions[0].setting.text()
        net.step(0)
    with fresh():
        net = Net(strategy_of(auto=True, cache=True), hidden=32)
        other = net.main.alternatives
        assert isinstance(other, Autotune)
        assert other.tuner.setting != chosen, "another model"


def test_the_choice_of_an_earlier_job_starts_the_next(ranks: ForkServer, tmp_path: Path) -> None:
    ranks.check(2, starts_with_the_cached_choice, ARGOSY_CACHE=str(tmp_path), **NO_BUILD)


def rejects_what_it_cannot_tune() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"localsgd": True}, "strategy.auto and strategy.localsgd are both on"),
        ({"dgc": True}, "strategy.auto and strategy.dgc are both on"),
    ]
    for switches, expected in cases:
        strategy = strategy_of(auto=True)
        for name, value in switches.items():
            setattr(strategy, name, value)
        with fresh(), pytest.raises(ConfigError, match=expected):
            Net(strategy)
    strategy = strategy_of(auto=True)
    strategy.sharding = True
    with fresh():
        net = Net(strategy)
        assert net.main.alternatives is None
        net.step(0)


def test_what_cannot_be_tuned_raises_or_says_so(ranks: ForkServer) -> None:
    said = ranks.check(2, rejects_what_it_cannot_tune)
    assert "nothing is tuned" in said[0]


def has_one_rank() -> None:
    with fresh():
        net = Net(strategy_of(auto=True))
        assert net.main.alternatives is None
        net.step(0)


def test_one_rank_has_nothing_to_tune(ranks: ForkServer) -> None:
    (said,) = ranks.check(1, has_one_rank)
    assert said.count("autotune: the job has one rank") == 1
