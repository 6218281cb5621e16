"""gathers: where a compiled step waits for the all-gathers of its parameters."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any, cast

import argosy as paddle
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Variable
from argosy.engine.ops.sharding import all_gather_shards, await_gathers
from argosy.engine.runtime.compile import compile_program
from tests.engine.passes.test_shard_optimizer import on_rank


def net() -> Any:
    """Three layers, with one bucket for each variable."""
    x = paddle.static.data("x", [None, 64], "float32")
    for _ in range(3):
        x = paddle.static.nn.fc(x, 64, bias_attr=False)
    return x.mean()


def events(program: Program, fetches: list[Variable]) -> list[str]:
    """The products, all-gathers and awaits of the compiled step, with their parameters."""
    texts = []
    for node in compile_program(program, fetches).step.nodes:
        inputs = [n.name for n in node.all_input_nodes if n.op == "placeholder"]
        if node.target in (await_gathers, all_gather_shards):
            names = [n.name for n in cast("list[Any]", node.args[0])]
            texts.append(f"{'await' if node.target is await_gathers else 'gather'} {', '.join(names)}")
        elif node.meta["role"] == "forward" and any("w_0" in name for name in inputs):
            texts.append(f"read {next(name for name in inputs if 'w_0' in name)}")
    return texts


def test_a_step_waits_where_it_first_reads_and_gathers_in_the_order_of_forward() -> None:
    main, _ = on_rank(0, build=net, segment_broadcast_MB=1e-6)
    first, second, third = "fc_0_w_0", "fc_1_w_0", "fc_2_w_0"
    forward = [text for w in (first, second, third) for text in (f"await {w}", f"read {w}")]
    gathers = [f"gather {w}" for w in (first, second, third)]
    assert events(main, []) == [*forward, *gathers]
    fetched = [*forward, *gathers, f"await {second}"]
    assert events(main, [main.vars["fc_1.w_0"]]) == fetched, "a fetch is the value after the update"
    assert compile_program(main, []).awaited == {"fc_0.w_0", "fc_1.w_0", "fc_2.w_0"}


def test_a_reader_after_the_update_waits_for_the_gather_of_its_own_step() -> None:
    main, startup = on_rank(0, build=net, segment_broadcast_MB=1e-6)
    with paddle.static.program_guard(main, startup):
        total = main.var("fc_0.w_0").sum()
    texts = events(main, [total])
    assert texts[-3:] == ["gather fc_2_w_0", "await fc_0_w_0", "read fc_0_w_0"]


def test_a_step_without_updates_waits_where_it_reads() -> None:
    main, _ = on_rank(0, build=net, segment_broadcast_MB=1e-6)
    compiled = compile_program(main, [main.vars["fc_0.tmp_0"]], with_updates=False)
    assert [node.target for node in compiled.step.nodes].count(await_gathers) == 1
    assert compiled.awaited == {"fc_0.w_0"}


def test_programs_without_updates_await_nothing_themselves() -> None:
    main, _ = on_rank(0, build=net)
    test = main.clone(for_test=True)
    assert compile_program(test, [test.vars["fc_2.tmp_0"]]).awaited == frozenset()
