"""Programs as data: the same program comes back, rules between sizes included; nothing else is let in."""

# SPDX-License-Identifier: Apache-2.0
import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx

import argosy as paddle
from argosy.engine.errors import FeedError, ProgramError
from argosy.engine.ir.backward import append_backward, gradients
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.ir.serialize import PLAIN, decode, encode, find_target, from_dict, to_dict
from argosy.engine.ir.variable import Parameter, Variable
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, scope_guard
from argosy.framework.initializer import Constant, Normal
from argosy.framework.layer import LayerBuilder


def through_json(program: Program) -> Program:
    return from_dict(json.loads(json.dumps(to_dict(program), allow_nan=False)))


def data(name: str, shape: list[int | None], dtype: str = "float32") -> Any:
    return default_main_program().data(name, shape, dtype)


def run(program: Program, feed: dict[str, Any], *fetches: str, values: Scope | None = None) -> list[Any]:
    return Executor().run(program, feed, list(fetches), scope=values)


def filled(program: Program) -> Scope:
    """A scope with a value for every variable that the program keeps there; the same for the same program."""
    scope, draw = Scope(), torch.Generator().manual_seed(7)
    for name, v in program.persistables().items():
        scope.put(name, torch.rand(v.shape, generator=draw).add(0.1).to(v.dtype))
    return scope


def momentum(program: Program, loss: Variable) -> None:
    """A small optimizer out of torch's in-place ops."""
    pairs = append_backward(loss)
    rate = program.state("rate", [1], "float32")
    states = [program.state(f"{p.name}_velocity", p.shape, p.dtype) for p, _ in pairs]
    with program.recording("optimize"), torch.no_grad():
        for (p, g), v in zip(pairs, states, strict=True):
            v.value.mul_(0.9).add_(g.value)
            p.value.sub_(v.value * rate.value * p.learning_rate)


def conv_net(side: int | None = 6) -> Any:
    """conv, batch_norm, dropout, pool, linear, cross_entropy."""
    x, y = data("x", [None, 3, side, 8]), data("y", [None, 1], "int64")
    layer = LayerBuilder("net")
    w = layer.parameter(None, [4, 3, 3, 3], "float32", default_initializer=Normal())
    scale = layer.parameter(None, [4], "float32", default_initializer=Constant(1.0))
    mean, var = layer.statistic("mean", [4], "float32", 0.0), layer.statistic("var", [4], "float32", 1.0)
    h = F.conv2d(x, w, padding=1)
    h = layer.run(F.batch_norm, h, mean, var, scale, None, True)
    h = F.max_pool2d(torch.relu(h), 2)
    h = F.adaptive_avg_pool2d(F.dropout(h, 0.3), 2).flatten(1)
    out = layer.run(torch.matmul, h, layer.parameter("head", [16, 5], "float32"))
    return F.cross_entropy(out, y.squeeze(1))


def batch(size: int) -> dict[str, Any]:
    draw = np.random.default_rng(size)
    return {
        "x": draw.standard_normal((size, 3, 6, 8), dtype=np.float32),
        "y": draw.integers(0, 5, (size, 1)),
    }


# --- the same program ---------------------------------------------------------------------------------


def test_a_training_program_comes_back_node_by_node() -> None:
    loss = conv_net()
    momentum(loss.program, loss)
    loaded = through_json(loss.program)
    assert to_dict(loaded) == to_dict(loss.program)
    assert [n.name for n in loaded.graph.nodes] == [n.name for n in loss.program.graph.nodes]
    assert [n.target for n in loaded.graph.nodes] == [n.target for n in loss.program.graph.nodes]
    assert loaded.to_string(source=True) == loss.program.to_string(source=True)


def test_sizes_computed_from_several_unknown_ones_come_back() -> None:
    loss = conv_net(side=None)
    append_backward(loss)
    loaded = through_json(loss.program)
    assert to_dict(loaded) == to_dict(loss.program)
    assert loaded.vars["x"].shape == (-1, 3, -1, 8)
    assert all("val" in n.meta for n in loaded.graph.nodes)


def test_a_loaded_program_trains_on_bit_equal() -> None:
    loss = conv_net()
    program = loss.program
    program.random_seed = 5
    momentum(program, loss)
    loaded = through_json(program)
    ours, theirs = filled(program), filled(program)
    for step in (5, 3, 9):
        expected = run(program, batch(step), loss.name, values=ours)
        actual = run(loaded, batch(step), loss.name, values=theirs)
        assert expected[0].tobytes() == actual[0].tobytes()
    for name in program.persistables():
        assert torch.equal(ours.get(name), theirs.get(name)), name
    assert not torch.equal(ours.get("head"), filled(program).get("head"))


def test_a_startup_program_gives_the_same_values_for_the_same_seed() -> None:
    conv_net()
    startup = default_startup_program()
    startup.random_seed = 3
    loaded = through_json(startup)
    ours, theirs = Scope(), Scope()
    run(startup, {}, values=ours)
    run(loaded, {}, values=theirs)
    assert ours.names() == theirs.names() != []
    assert all(torch.equal(ours.get(name), theirs.get(name)) for name in ours.names())


def test_a_program_for_testing_comes_back_without_dropout_and_updates() -> None:
    loss = conv_net()
    test = loss.program.clone(for_test=True)
    loaded = through_json(test)
    scope = filled(test)
    [ours], [theirs] = (run(p, batch(4), loss.name, values=scope) for p in (test, loaded))
    assert ours.tobytes() == theirs.tobytes()


def test_variables_keep_what_they_are() -> None:
    program = default_main_program()
    program.data("ids", [None, 4], "int64", lod_level=1)
    program.state("count", [], "int64")
    program.state("frozen", [2, 3], "bfloat16", trainable=False, learning_rate=0.5, need_clip=False)
    x = data("x", [2, 3], "bfloat16")
    y = x + program.vars["frozen"]
    y.stop_gradient = True
    loaded = through_json(program)
    ids, frozen = loaded.vars["ids"], loaded.vars["frozen"]
    assert (ids.is_data, ids.lod_level, ids.shape, ids.dtype) == (True, 1, (-1, 4), torch.int64)
    assert loaded.vars["count"].persistable
    assert isinstance(frozen, Parameter)
    assert (frozen.trainable, frozen.learning_rate, frozen.need_clip) == (False, 0.5, False)
    assert loaded.vars[y.name].stop_gradient
    assert loaded.vars.keys() == program.vars.keys()
    assert loaded.random_seed == program.random_seed


def test_two_names_for_one_value_stay_two_variables() -> None:
    x = data("x", [None, 2])
    same = x.detach()
    loaded = through_json(x.program)
    assert loaded.vars["x"].value is not loaded.vars[same.name].value
    assert loaded.vars["x"].node is loaded.vars[same.name].node


def test_constants_come_back_with_their_dtype_and_values() -> None:
    x = data("x", [2])
    constants = [
        torch.tensor([0.1, math.nan]),
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.arange(12.0).reshape(2, 6)[:, ::3].t(),
    ]
    products = [x * c for c in constants]
    loaded = through_json(x.program)
    fetches = [v.name for v in products]
    feed = {"x": np.array([1.0, 3.0], np.float32)}
    for ours, theirs in zip(run(x.program, feed, *fetches), run(loaded, feed, *fetches), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_unused_constants_are_not_saved() -> None:
    x = data("x", [2])
    x * torch.ones(2)
    x.program.recorder.constants["left"] = torch.ones(1000)
    assert len(to_dict(x.program)["constants"]) < 500


def test_marks_of_nodes_and_source_lines_stay_without_folders() -> None:
    x = data("x", [None, 3, 4, 4])
    y = torch.relu(x)
    y.node.meta["train_only"] = True
    x.node.meta["memory_format"] = torch.channels_last
    tree = to_dict(x.program)
    assert "/" not in json.dumps(tree["nodes"])
    loaded = from_dict(tree)
    assert loaded.vars[y.name].node.meta["train_only"] is True
    assert loaded.vars["x"].node.meta["memory_format"] is torch.channels_last
    assert str(loaded.vars[y.name].node.meta["source"]) == str(y.node.meta["source"])


def test_layers_can_be_added_to_a_loaded_program_but_not_gradients() -> None:
    x = data("x", [None, 6])
    y = torch.relu(x)
    loaded = through_json(x.program)
    z = loaded.vars[y.name].reshape(-1, 2, 3).sum(0)
    feed = {"x": np.arange(-12, 12, dtype=np.float32).reshape(4, 6)}
    [actual] = run(loaded, feed, z.name)
    np.testing.assert_array_equal(actual, np.maximum(feed["x"], 0).reshape(4, 2, 3).sum(0))
    with pytest.raises(ProgramError, match="it was loaded"):
        gradients([z], [loaded.vars["x"]])


OPS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: (x + 1) * 2 / 3 - x**2,
    "compare": lambda x: torch.where(x > 0, x, float("-inf")).exp(),
    "clamp": lambda x: x.clamp(min=-0.5, max=math.inf),
    "masked_fill": lambda x: torch.softmax(x.masked_fill(x < 0, -math.inf).nan_to_num(), -1),
    "reshape": lambda x: x.reshape(x.size(0), -1).t().contiguous(),
    "flatten_all": lambda x: x.flatten(),
    "double": lambda x: torch.cat([x, x]).reshape(-1, 6),
    "split": lambda x: torch.stack(torch.split(x, 2, 2)[:2]).sum(0),
    "topk": lambda x: torch.topk(x, 2).values,
    "sort": lambda x: torch.sort(x, dim=-1, descending=True).values,
    "gather": lambda x: x.gather(-1, x.argmax(-1, keepdim=True)),
    "index": lambda x: x[:, 1:, ::2],
    "einsum": lambda x: torch.einsum("nij,nkj->nik", x, x),
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "round": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "cast": lambda x: x.to(torch.bfloat16).to(torch.float64).cumsum(0),
    "memory_format": lambda x: x.unsqueeze(1).to(memory_format=torch.channels_last) + 1,
    "pool": lambda x: F.avg_pool1d(x, 2),
    "interpolate": lambda x: F.interpolate(x.unsqueeze(1), scale_factor=2.0, mode="bilinear"),
    "like": lambda x: torch.ones_like(x, dtype=torch.float64) + torch.full_like(x, math.pi),
    "sizes": lambda x: x * x.size(0) + torch.zeros(x.size(0), 1, 1),
    "std": lambda x: x.std(1) + x.var(2).mean(),
    "item": lambda x: x * x.max().item(),
    "in_place": lambda x: (x * 1).mul_(3).clamp_(0),
    "pad": lambda x: F.pad(x, (1, 2), value=float("inf")).clamp(max=9),
}


@pytest.mark.parametrize("name", OPS)
def test_every_op_comes_back_with_its_gradient(name: str) -> None:
    program = default_main_program()
    x = data("x", [None, 4, 6])
    w = program.state("w", [4, 6], "float32", trainable=True)
    out = program.call(OPS[name], (x * w,), {})
    fetches = [out.name]
    if out.value.requires_grad:
        fetches.append(append_backward(out.double().square().sum())[0][1].name)
    loaded = through_json(program)
    assert to_dict(loaded) == to_dict(program)
    scope = filled(program)
    for size in (3, 8):
        feed = {"x": np.random.default_rng(size).standard_normal((size, 4, 6), dtype=np.float32)}
        ours, theirs = run(program, feed, *fetches, values=scope), run(loaded, feed, *fetches, values=scope)
        for one, other in zip(ours, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


STEPS = st.sampled_from(
    ["arithmetic", "clamp", "einsum", "layer_norm", "gelu", "sizes", "in_place", "double"]
)


@settings(max_examples=8, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=4))
def test_any_chain_of_ops_comes_back(names: list[str]) -> None:
    program = Program("chain")
    with program_guard(program, Program("startup")):
        x = program.data("x", [None, 6, 6])
        for name in names:
            x = program.call(lambda t, name=name: OPS[name](t).reshape(-1, 6, 6), (x,), {})
        loaded = through_json(program)
        assert to_dict(loaded) == to_dict(program)
        feed = {"x": np.random.default_rng(1).standard_normal((5, 6, 6), dtype=np.float32)}
        [ours], [theirs] = run(program, feed, x.name), run(loaded, feed, x.name)
        assert ours.tobytes() == theirs.tobytes()


# --- rules between sizes ------------------------------------------------------------------------------


def test_rules_that_only_the_layers_code_wrote_hold_after_loading() -> None:
    loss = conv_net()
    wrong = {"x": batch(6)["x"], "y": batch(4)["y"]}
    messages = []
    for program in (loss.program, through_json(loss.program)):
        with pytest.raises(FeedError, match=r"decided at test_serialize.py:\d+ in conv_net") as caught:
            run(program, wrong, loss.name, values=filled(loss.program))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_decision_of_the_script_by_a_size_holds_after_loading() -> None:
    x = data("x", [None, 2])
    y = x + 1 if x.size(0) * 2 > 9 else x - 1
    loaded = through_json(x.program)
    run(loaded, {"x": np.zeros((5, 2), np.float32)}, y.name)
    with pytest.raises(FeedError, match="size 4"):
        run(loaded, {"x": np.zeros((4, 2), np.float32)}, y.name)


def test_rules_about_feeds_that_are_not_in_the_program_are_left_out() -> None:
    loss = conv_net()
    program = loss.program.clone(for_test=True)
    del program.vars["y"]
    assert all("'y'" not in str(rule["holds"]) for rule in to_dict(program)["rules"])


# --- arguments ----------------------------------------------------------------------------------------

ARGUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.complex_numbers()
    | st.sampled_from(
        [torch.float32, torch.bfloat16, torch.bool, torch.strided, torch.sparse_coo, torch.channels_last]
    )
    | st.sampled_from([torch.device("cpu"), torch.device("cuda:1"), torch.preserve_format]),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple),
    max_leaves=12,
)


@given(ARGUMENTS)
def test_arguments_come_back_as_they_were(value: Any) -> None:
    back = decode(json.loads(json.dumps(encode(value), allow_nan=False)), {})
    assert repr(back) == repr(value)


def test_nodes_are_named_and_found() -> None:
    node = fx.Graph().placeholder("x")
    assert decode(encode([node, (1, node)]), {"x": node}) == [node, (1, node)]


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a"}, slice(1), np.int64(3), torch.ones(1), print])
def test_what_has_no_place_in_a_file_is_refused_when_saving(value: Any) -> None:
    x = data("x", [2])
    y = torch.relu(x)
    y.node.meta["mark"] = value
    with pytest.raises(
        ProgramError, match=r"relu \(test_serialize.py:\d+ in .*cannot be saved: .*not serializable"
    ):
        to_dict(x.program)


# --- what is refused ----------------------------------------------------------------------------------

BAD_TARGETS = [
    "os.system",
    "posix.system",
    "builtins.eval",
    "eval",
    "operator.attrgetter",
    "operator.methodcaller",
    "torch.load",
    "torch.ops.load_library",
    "aten.save.default",
    "aten.from_file.default",
    "aten.relu",
    "aten.relu.default.__class__",
    "aten.relu.__call__",
    "aten.relu._schema",
    "aten.__class__.mro",
    "aten.no_such_op.default",
    "aten.add.NoSuchOverload",
    "argosy.nothing.default",
    "prims..default",
    "quantized.add.default",
    "aten.relu.default\n",
    "ａten.relu.default",
    "",
]


@pytest.mark.parametrize("target", BAD_TARGETS)
def test_a_program_that_names_anything_but_an_operator_is_refused(target: str) -> None:
    x = data("x", [2])
    torch.relu(x)
    tree = to_dict(x.program)
    tree["nodes"][1]["target"] = target
    with pytest.raises(ProgramError):
        from_dict(tree)


@pytest.mark.parametrize("target", [7, None, ["aten.relu.default"], {"node": "x"}])
def test_a_target_that_is_no_string_is_refused(target: Any) -> None:
    x = data("x", [2])
    torch.relu(x)
    tree = to_dict(x.program)
    tree["nodes"][1]["target"] = target
    with pytest.raises(ProgramError):
        from_dict(tree)


def test_every_plain_function_is_found_by_its_name_and_is_one_on_numbers() -> None:
    for name, function in PLAIN.items():
        assert find_target(name) is function
    assert not any(
        word in name for name in PLAIN for word in ("attr", "call", "import", "eval", "exec", "load")
    )


def test_a_keyword_that_would_become_code_is_refused(tmp_path: Any) -> None:
    x = data("x", [2])
    torch.relu(x)
    tree = to_dict(x.program)
    tree["nodes"][1]["kwargs"] = {f"x=open({str(tmp_path / 'made')!r}, 'w')) #": 1}
    with pytest.raises(ProgramError, match="has no argument"):
        from_dict(tree)
    assert not (tmp_path / "made").exists()


BAD_RECORDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an unknown kind of node": lambda d: d["nodes"][2].update(op="call_method"),
    "an unknown role": lambda d: d["nodes"][2].update(role="boss"),
    "two nodes of one name": lambda d: d["nodes"][2].update(name="x"),
    "a name that is no identifier": lambda d: d["nodes"][2].update(name="a b"),
    "an argument from the future": lambda d: d["nodes"][2].update(args=[{"node": "mul"}]),
    "an argument of no node": lambda d: d["nodes"][2].update(args=[{"node": "missing"}]),
    "an unknown kind of argument": lambda d: d["nodes"][2].update(args=[{"pickle": "gASV"}]),
    "too many arguments": lambda d: d["nodes"][2].update(args=[{"node": "x"}] * 3),
    "a constant with arguments": lambda d: d["nodes"][1].update(args=[1]),
    "a missing constant": lambda d: d.update(constants=""),
    "a constant of another shape": lambda d: d["variables"][2].update(shape=[7]),
    "another dtype": lambda d: d["variables"][1].update(dtype="torch.int64"),
    "another shape": lambda d: d["variables"][1].update(shape=[None, 3]),
    "a variable of no node": lambda d: d["variables"][1].update(node="missing"),
    "a variable of another node": lambda d: d["variables"][0].update(placeholder=None, node="constant_0"),
    "a rule that cannot hold": lambda d: d.update(rules=[{"holds": False, "source": None}]),
    "a rule that calls": lambda d: d.update(
        rules=[{"holds": {"call": "aten.relu.default", "args": []}, "source": None}]
    ),
    "an item of something else": lambda d: d["nodes"][2].update(
        target="operator.getitem", args=[{"node": "x"}, "__class__"]
    ),
    "no nodes": lambda d: d.pop("nodes"),
    "no names": lambda d: d.pop("name"),
}


@pytest.mark.parametrize("what", BAD_RECORDS)
def test_a_program_with_a_flaw_is_refused(what: str) -> None:
    x = data("x", [None, 2])
    torch.relu(x) * torch.ones(2)
    tree = json.loads(json.dumps(to_dict(x.program)))
    BAD_RECORDS[what](tree)
    with pytest.raises(ProgramError):
        from_dict(tree)


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(leaf for key, inner in items for leaf in leaves(inner, (*path, key)))]


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, -1, 0, 10**30, "", "x", [], {}, [[]], {"node": "x"}, {"float": "nan"}, True, 1.5]
)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_change_of_the_data_gives_a_program_or_a_program_error(drawn: st.DataObject) -> None:
    program = Program("fuzzed")
    with program_guard(program, Program("startup")), scope_guard(Scope()):
        x = data("x", [None, 3, 4, 4])
        y = F.batch_norm(
            x, program.state("m", [3], "float32"), program.state("v", [3], "float32"), training=True
        )
        (y * torch.ones(4)).reshape(-1, 8)
        tree = json.loads(json.dumps(to_dict(program)))
        path = drawn.draw(st.sampled_from(leaves(tree)[1:]))
        place = tree
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = drawn.draw(JUNK)
        with suppress(ProgramError):
            from_dict(tree)


@pytest.mark.parametrize("tree", [None, 3, [], {}, "program"])
def test_data_that_is_no_program_at_all_is_refused(tree: Any) -> None:
    with pytest.raises(ProgramError, match="is not a valid program"):
        from_dict(tree)


def test_an_op_of_another_library_cannot_be_saved() -> None:
    library: Any = torch.library
    fragment = library.Library("argosy_test_serialize", "FRAGMENT")
    fragment.define("twice(Tensor x) -> Tensor")
    fragment.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    x = data("x", [2])
    x.program.call(torch.ops.argosy_test_serialize.twice, (x,), {})
    with pytest.raises(
        ProgramError, match=r"twice .* cannot be saved: 'argosy_test_serialize.twice.default'"
    ):
        to_dict(x.program)


def test_a_program_for_testing_with_a_batch_norm_comes_back() -> None:
    x = paddle.static.data("x", [4, 3, 6, 6], "float32")
    loss = paddle.mean(paddle.static.nn.batch_norm(paddle.static.nn.conv2d(x, 8, 3), act="relu"))
    paddle.optimizer.SGD(0.1).minimize(loss)
    test = default_main_program().clone(for_test=True)
    assert str(from_dict(to_dict(test))).splitlines()[1:] == str(test).splitlines()[1:]
