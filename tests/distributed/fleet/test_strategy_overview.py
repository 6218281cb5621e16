"""print(strategy): Paddle's box, with a mark for what was changed."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.distributed.fleet.strategy_overview import applied
from argosy.static.strategies import BuildStrategy

TITLES = ["Environment Flags, Communication Flags", "Build Strategy", "Execution Strategy"]


class AllThere(DistributedStrategy):
    fields = {n: replace(f, status="works") for n, f in DistributedStrategy.fields.items()}  # noqa: RUF012


def marked(strategy: DistributedStrategy) -> list[list[str]]:
    return [line.strip(" |").split() for line in str(strategy).splitlines() if line.endswith("* |")]


def test_every_line_of_the_box_is_as_wide_as_paddles() -> None:
    strategy = DistributedStrategy()
    strategy.build_strategy.trainers_endpoints = [
        f"host-{i}.a-long-domain.example.com:{6170 + i}" for i in range(3)
    ]
    strategy.build_strategy.debug_graphviz_path = "/a/long/path" * 10
    *box, legend = str(strategy).splitlines()
    assert {len(line) for line in box} == {4 + 1 + 38 + 2 + 38 + 1}
    assert all(line[4] in "+|" and line[-1] in "+|" for line in box)
    assert "differs" in legend


def test_the_sections_stand_in_paddles_order() -> None:
    strategy = [line.strip(" |") for line in str(DistributedStrategy()).splitlines()]
    titles = ["DistributedStrategy Overview", "a_sync=True <-> a_sync_configs", *TITLES]
    assert [line for line in strategy if line in titles] == titles


def test_a_switch_that_is_on_has_a_section_with_its_configs() -> None:
    strategy = AllThere()
    strategy.amp = True
    strategy.amp_configs = {"decr_ratio": 0.5, "custom_white_list": ["conv2d", "matmul"]}
    text = str(strategy)
    assert "amp=True <-> amp_configs" in text
    assert "recompute" not in text
    assert marked(strategy) == [["decr_ratio", "0.5", "*"], ["custom_white_list", "conv2d", "*"]]


def test_marks_what_differs_from_the_default_and_nothing_else() -> None:
    strategy = DistributedStrategy()
    assert marked(strategy) == []
    strategy.sync_nccl_allreduce = True
    strategy.sync_batch_norm = True
    strategy.build_strategy.gradient_scale_strategy = BuildStrategy.GradientScaleStrategy.One
    assert marked(strategy) == [["sync_batch_norm", "True", "*"], ["gradient_scale_strategy", "One", "*"]]
    assert repr(strategy).startswith("DistributedStrategy(sync_batch_norm=True, build_strategy=")


def test_the_strategies_that_apply_are_named_in_their_order() -> None:
    strategy = DistributedStrategy()
    strategy.sharding = strategy.amp = strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 4}
    assert applied(strategy) == "amp, gradient_merge (k_steps 4), sharding"
    assert applied(DistributedStrategy()) == ""
