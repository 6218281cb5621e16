"""static.save and friends: what goes where, what comes back, here and in a new process; what is refused."""

# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from argosy import fluid, static
from argosy.engine.data.lod_tensor import LoDTensor
from argosy.engine.errors import ConfigError, CorruptFileError, ProgramError, ScopeError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program, default_main_program, default_startup_program, program_guard
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.framework.layer import LayerBuilder
from argosy.optimizer import Adam, Momentum
from argosy.static import io
from tests.ranks import ForkServer


def net(classes: int = 5, width: int = 4) -> tuple[Any, Any]:
    """(logits, loss) of conv, batch_norm, dropout, linear, with an unknown batch."""
    program = default_main_program()
    x: Any = program.data("x", [None, 3, 6, 6])
    y: Any = program.data("y", [None, 1], "int64")
    layer = LayerBuilder("net")
    mean, var = (
        layer.statistic("mean", [width], "float32", 0.0),
        layer.statistic("var", [width], "float32", 1.0),
    )
    h = F.conv2d(x, layer.parameter("filter", [width, 3, 3, 3], "float32"), padding=1)
    h = layer.run(F.batch_norm, h, mean, var, layer.parameter("scale", [width], "float32"), None, True)
    h = F.dropout(torch.relu(h), 0.2)
    logits = layer.run(torch.matmul, h.mean((2, 3)), layer.parameter("head", [width, classes], "float32"))
    return logits, F.cross_entropy(logits, y.squeeze(1))


def training(optimizer: Any = None) -> tuple[Any, Any]:
    logits, loss = net()
    loss.program.random_seed = 3
    (optimizer or Momentum(0.1, 0.9, weight_decay=1e-4)).minimize(loss)
    Executor().run(default_startup_program())
    return logits, loss


def batch(size: int) -> dict[str, Any]:
    draw = np.random.default_rng(size)
    x = draw.standard_normal((size, 3, 6, 6), dtype=np.float32)
    return {"x": x, "y": draw.integers(0, 5, (size, 1))}


def values() -> dict[str, torch.Tensor]:
    return {name: global_scope().get(name).clone() for name in sorted(global_scope().names())}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- save and load ------------------------------------------------------------------------------------


def test_parameters_and_statistics_go_into_pdparams_and_the_rest_into_pdopt(tmp_path: Path) -> None:
    _, loss = training()
    io.save(loss.program, str(tmp_path / "m"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.pdmodel", "m.pdopt", "m.pdparams"]
    first, _ = atomic_files.read_tensors(tmp_path / "m.pdparams")
    second, _ = atomic_files.read_tensors(tmp_path / "m.pdopt")
    assert first.keys() == {"filter", "scale", "head", "mean", "var"}
    assert {name.split("_")[0] for name in second} >= {"filter", "scale", "head", "learning"}
    assert first.keys() | second.keys() == loss.program.persistables().keys()


def test_what_was_saved_is_loaded_back(tmp_path: Path) -> None:
    _, loss = training()
    exe = Executor()
    exe.run(loss.program, batch(4))
    io.save(loss.program, str(tmp_path / "deep" / "er" / "m.v1"))
    saved = values()
    exe.run(loss.program, batch(4))
    assert not same(values(), saved)
    io.load(loss.program, str(tmp_path / "deep" / "er" / "m.v1"), exe)
    assert same(values(), saved)
    with scope_guard(Scope()):
        io.load(loss.program, str(tmp_path / "deep" / "er" / "m.v1.pdparams"))
        assert same(values(), saved)


IN_A_NEW_PROCESS = """
import hashlib, sys
import numpy as np
from argosy.engine.runtime.executor import Executor
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard
from argosy.static import io

def batch(size):
    draw = np.random.default_rng(size)
    x = draw.standard_normal((size, 3, 6, 6), dtype=np.float32)
    return {"x": x, "y": draw.integers(0, 5, (size, 1))}

folder, fetch = sys.argv[1:]
for name in ("momentum", "adam"):
    with scope_guard(Scope()):
        exe, program = Executor(), io.deserialize_program(open(f"{folder}/{name}.pdmodel", "rb").read())
        io.load(program, f"{folder}/{name}", exe)
        losses = [exe.run(program, batch(size), [fetch])[0].tobytes().hex() for size in (4, 7, 2)]
        total = hashlib.sha256()
        for variable in sorted(global_scope().names()):
            total.update(variable.encode() + global_scope().get(variable).contiguous().numpy().tobytes())
        print(*losses, total.hexdigest())
        exe = Executor()
        program, feeds, fetches = io.load_inference_model(f"{folder}/{name}_inference", exe)
        for size in (4, 11):
            print(*(a.tobytes().hex() for a in exe.run(program, {feeds[0]: batch(size)["x"]}, fetches)))
"""


def trained(optimizer: Any, prefix: Path) -> tuple[str, list[str]]:
    """Train, save, train on, infer: what was fetched and computed, in the words of the script above."""
    logits, loss = training(optimizer)
    program, exe = loss.program, Executor()
    probabilities = torch.softmax(logits, -1)
    exe.run(program, batch(5))
    io.save(program, str(prefix))
    io.save_inference_model(f"{prefix}_inference", [program.vars["x"]], [probabilities, logits], exe)
    test, lines = program.clone(for_test=True), []
    for size in (4, 11):
        outputs = exe.run(test, batch(size), [probabilities.name, logits.name])
        lines.append(" ".join(a.tobytes().hex() for a in outputs))
    exe = Executor()  # a new one: it restarts the program's random numbers, as the new process does
    losses = [exe.run(program, batch(size), [loss])[0].tobytes().hex() for size in (4, 7, 2)]
    total = hashlib.sha256()
    for name, value in values().items():
        total.update(name.encode() + value.contiguous().numpy().tobytes())
    return loss.name, [" ".join([*losses, total.hexdigest()]), *lines]


def test_a_new_process_trains_on_and_infers_bit_equal_without_the_models_code(
    tmp_path: Path, ranks: ForkServer
) -> None:
    here = []
    for name, optimizer in (("momentum", Momentum(0.1, 0.9, use_nesterov=True)), ("adam", Adam(0.01))):
        with names.guard(), program_guard(Program(), Program()), scope_guard(Scope()):
            loss, lines = trained(optimizer, tmp_path / name)
            here += lines
    done = ranks.python("-c", IN_A_NEW_PROCESS, str(tmp_path), loss)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == here


def test_loading_keeps_the_tensors_of_the_scope_and_their_memory_format(tmp_path: Path) -> None:
    _, loss = training()
    io.save(loss.program, str(tmp_path / "m"))
    filter_value = global_scope().get("filter").contiguous(memory_format=torch.channels_last)
    want = filter_value.clone()
    global_scope().put("filter", filter_value)
    io.save(loss.program, str(tmp_path / "m"))
    filter_value.zero_()
    io.load(loss.program, str(tmp_path / "m"))
    assert global_scope().get("filter") is filter_value
    assert torch.equal(filter_value, want)
    assert filter_value.is_contiguous(memory_format=torch.channels_last)


def test_bfloat16_variables_are_saved(tmp_path: Path) -> None:
    program = default_main_program()
    program.state("w", [3], "bfloat16", trainable=True)
    global_scope().put("w", torch.tensor([0.1, float("nan"), -0.0], dtype=torch.bfloat16))
    io.save(program, str(tmp_path / "m"))
    state = io.load_program_state(str(tmp_path / "m"))
    bits = global_scope().get("w").view(torch.int16).tolist()
    assert state["w"].view(torch.int16).tolist() == bits
    with scope_guard(Scope()):
        io.set_program_state(program, state)
        assert global_scope().get("w").view(torch.int16).tolist() == bits


def test_a_program_for_testing_loads_without_the_optimizers_file(tmp_path: Path) -> None:
    logits, loss = training()
    test = loss.program.clone(for_test=True)
    exe = Executor()
    exe.run(loss.program, batch(9))
    [want] = exe.run(test, batch(4), [logits.name])
    io.save(loss.program, str(tmp_path / "m"))
    (tmp_path / "m.pdopt").unlink()
    with names.guard(), program_guard(Program(), Program()), scope_guard(Scope()):
        other, _ = net()
        program = other.program.clone(for_test=True)
        io.load(program, str(tmp_path / "m"))
        [actual] = exe.run(program, batch(4), [other.name])
    assert actual.tobytes() == want.tobytes()


def test_a_killed_save_is_finished_and_two_different_saves_are_not_mixed(tmp_path: Path) -> None:
    _, loss = training()
    for folder in ("old", "new"):
        Executor().run(loss.program, batch(4))
        io.save(loss.program, str(tmp_path / folder / "m"))
    saved = values()
    (tmp_path / "new" / "m.pdparams").rename(tmp_path / "old" / "m.pdparams")
    with pytest.raises(
        CorruptFileError, match=r"m\.pdparams and m\.pdopt are from different saves; save again"
    ):
        io.load(loss.program, str(tmp_path / "old" / "m"))
    left = tmp_path / "old" / ".m.pdopt.0.tmp"  # as a kill between the two renames leaves it
    left.mkdir()
    (tmp_path / "new" / "m.pdopt").rename(left / "data")
    with scope_guard(Scope()):
        io.load(loss.program, str(tmp_path / "old" / "m"))
        assert same(values(), saved)


def refused(program: Program, prefix: Path, match: str) -> None:
    """An error of this kind, and nothing of the scope has changed."""
    before = values()
    with pytest.raises(ConfigError, match=match):
        io.load(program, str(prefix))
    assert same(values(), before)


def test_loading_is_strict_about_names_shapes_and_dtypes(tmp_path: Path) -> None:
    _, loss = net()
    program = loss.program
    Executor().run(default_startup_program())
    io.save(program, str(tmp_path / "m"))
    program.state("centre", [2], "float32", trainable=True)
    global_scope().put("centre", torch.zeros(2))
    refused(
        program, tmp_path / "m", r"m\.pdparams has no variable 'centre' \(float32\[2\]\), which main needs"
    )
    io.save(program, str(tmp_path / "more"))
    del program.vars["centre"]
    refused(program, tmp_path / "more", r"the program has no variable 'centre' \(float32\[2\]\).*var_list")
    with names.guard(), program_guard(Program("wide"), Program()), scope_guard(Scope()):
        _, wide = net(classes=7)
        Executor().run(default_startup_program())
        refused(
            wide.program,
            tmp_path / "m",
            r"'head' is float32\[4, 5\] and wide needs float32\[4, 7\]; load what",
        )
        wide.program.vars.pop("head")
        wide.program.vars.pop("scale")
        wide.program.state("head", [4, 5], "float64", trainable=True)
        refused(wide.program, tmp_path / "m", r"'head' is float32\[4, 5\] and wide needs float64\[4, 5\]")


def test_var_list_loads_these_alone(tmp_path: Path) -> None:
    _, loss = training()
    io.save(loss.program, str(tmp_path / "m"))
    saved = values()
    for value in global_scope().values_of().values():
        assert value is not None
        value.add_(1)
    velocity = next(name for name in saved if name.startswith("head") and "velocity" in name)
    io.load(loss.program, str(tmp_path / "m"), var_list=[loss.program.vars["head"], velocity])
    changed = {name for name, value in values().items() if not torch.equal(value, saved[name])}
    assert changed == saved.keys() - {"head", velocity}
    with pytest.raises(ConfigError, match=r"var_list: 'heat' is not in main \(did you mean 'head'"):
        io.load(loss.program, str(tmp_path / "m"), var_list="heat")


def test_saving_needs_values_that_fit(tmp_path: Path) -> None:
    _, loss = net()
    with pytest.raises(ScopeError, match="'mean' has no value to save; run the startup program"):
        io.save(loss.program, str(tmp_path / "m"))
    Executor().run(default_startup_program())
    global_scope().put("head", torch.zeros(3))
    with pytest.raises(ScopeError, match=r"'head' is float32\[3\] in the scope and float32\[4, 5\] in main"):
        io.save(loss.program, str(tmp_path / "m"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["", "folder/"])
def test_a_path_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="is a folder; add a prefix"):
        io.save(Program(), path)


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a int; give a static.Program"):
        io.save(3, str(tmp_path / "m"))  # type: ignore[arg-type]  # on purpose


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file .*nothing\.pdparams"):
        io.load(net()[0].program, str(tmp_path / "nothing"))


# --- state as a dict ----------------------------------------------------------------------------------


def test_program_state_is_a_dict_of_arrays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, loss = training()
    io.save(loss.program, str(tmp_path / "m"))
    saved = values()
    state = io.load_program_state(str(tmp_path / "m"))
    assert state.keys() == saved.keys()
    assert all(np.array_equal(state[name], saved[name].numpy()) for name in state)
    assert io.load_program_state(str(tmp_path / "m.pdopt")).keys() < state.keys()
    assert list(io.load_program_state(str(tmp_path / "m"), ["head"])) == ["head"]
    with pytest.raises(ConfigError, match="has no variable 'heat'"):
        io.load_program_state(str(tmp_path / "m"), ["heat"])
    for value in global_scope().values_of().values():
        assert value is not None
        value.add_(1)
    io.set_program_state(loss.program, {**state, "stranger": np.zeros(3)})
    assert same(values(), saved)
    assert "set_program_state: skipped stranger: not in main" in caplog.text


def test_program_state_of_a_wrong_shape_or_dtype_is_refused() -> None:
    _, loss = training()
    before = values()
    for wrong in (np.zeros((4, 6), np.float32), np.zeros((4, 5), np.float64)):
        with pytest.raises(ConfigError, match="state_dict: 'head' is float"):
            io.set_program_state(loss.program, {"scale": np.zeros(4, np.float32), "head": wrong})
    assert same(values(), before)


def test_a_part_of_the_state_can_be_set() -> None:
    _, loss = training()
    before = values()
    given = np.arange(4, dtype=np.float32)
    io.set_program_state(loss.program, {"scale": given})
    given += 1
    assert global_scope().get("scale").tolist() == [0, 1, 2, 3]
    assert torch.equal(global_scope().get("head"), before["head"])


# --- for inference ------------------------------------------------------------------------------------


def test_an_inference_model_has_only_what_the_fetches_need(tmp_path: Path) -> None:
    logits, loss = training()
    io.save_inference_model(str(tmp_path / "m"), loss.program.vars["x"], logits, None)
    assert atomic_files.read_tensors(tmp_path / "m.pdiparams")[0].keys() == {
        "filter",
        "scale",
        "head",
        "mean",
        "var",
    }
    with scope_guard(Scope()):
        program, feeds, fetches = io.load_inference_model(str(tmp_path / "m"), None)
        assert feeds == ["x"]
        assert list(program.feeds()) == ["x"]
        assert [v.name for v in fetches] == [logits.name]
        assert fetches[0].program is program
        assert fetches[0].shape == (-1, 5)
        assert "native_dropout" not in str(program)
        assert {n.meta["role"] for n in program.graph.nodes} == {"forward"}
        assert len(program.graph.nodes) < len(loss.program.graph.nodes) / 2


def test_feeds_come_back_in_the_order_they_were_given_needed_or_not(tmp_path: Path) -> None:
    logits, loss = training()
    feeds = [loss.program.vars["y"], loss.program.vars["x"]]
    io.save_inference_model(str(tmp_path / "m"), feeds, [logits], None, program=loss.program)
    program, actual, fetches = io.load_inference_model(str(tmp_path / "m"), None)
    assert actual == ["y", "x"]
    assert Executor().run(program, batch(3), fetches)[0].shape == (3, 5)


def test_a_feed_that_the_fetches_need_must_be_given(tmp_path: Path) -> None:
    logits, loss = training()
    with pytest.raises(ConfigError, match="need the feed 'y' too; add it to feed_vars"):
        io.save_inference_model(str(tmp_path / "m"), [loss.program.vars["x"]], [loss], None)
    with pytest.raises(ConfigError, match="is computed, not fed"):
        io.save_inference_model(str(tmp_path / "m"), [logits], [loss], None)
    with pytest.raises(ConfigError, match="fetch_vars is empty"):
        io.save_inference_model(str(tmp_path / "m"), [loss.program.vars["x"]], [], None, loss.program)
    with pytest.raises(ConfigError, match="fetch_vars: 'head@GRAD' is not in"):
        io.save_inference_model(str(tmp_path / "m"), ["x", "y"], ["head@GRAD"], None)


def test_state_that_a_fetch_reads_after_a_change_keeps_the_change(tmp_path: Path) -> None:
    program = default_main_program()
    x: Any = program.data("x", [None])
    seen, unread = program.state("seen", [1], "float32"), program.state("unread", [1], "float32")
    total = program.call(lambda s, x: s.add_(x.sum()) * 2, (seen, x), {})
    program.call(lambda s: s.add_(1), (unread,), {})
    for name in ("seen", "unread"):
        global_scope().put(name, torch.ones(1))
    io.save_inference_model(str(tmp_path / "m"), [x], [total], None)
    loaded, _, fetches = io.load_inference_model(str(tmp_path / "m"), None)
    assert list(loaded.persistables()) == ["seen"]
    feed = {"x": np.ones(3, np.float32)}
    assert [Executor().run(loaded, feed, fetches)[0].item() for _ in range(2)] == [8.0, 14.0]


def test_a_normalized_program_is_serialized_and_read_back() -> None:
    logits, loss = training()
    normalized = io.normalize_program(loss.program, [loss.program.vars["x"]], [logits])
    read = io.deserialize_program(io.serialize_program(loss.program.vars["x"], logits))
    assert [n.name for n in read.graph.nodes] == [n.name for n in normalized.graph.nodes]
    assert read.vars.keys() == normalized.vars.keys()
    [one], [other] = (Executor().run(p, {"x": batch(3)["x"]}, [logits.name]) for p in (normalized, read))
    assert one.tobytes() == other.tobytes()
    with pytest.raises(ProgramError, match="loaded"):
        Momentum(0.1).minimize(read.vars[logits.name].mean())


def test_files_may_have_names_of_their_own(tmp_path: Path) -> None:
    logits, loss = training()
    io.save_inference_model(str(tmp_path / "m"), loss.program.vars["x"], logits, None)
    (tmp_path / "m.pdmodel").rename(tmp_path / "program")
    (tmp_path / "m.pdiparams").rename(tmp_path / "weights")
    _, feeds, _ = io.load_inference_model(str(tmp_path), None, "program", "weights")
    assert feeds == ["x"]
    with pytest.raises(ConfigError, match="only one of model_filename and params_filename"):
        io.load_inference_model(str(tmp_path), None, "program")


def test_a_model_and_values_of_two_saves_are_not_mixed(tmp_path: Path) -> None:
    logits, loss = training()
    for name in ("a", "b"):
        Executor().run(loss.program, batch(4))
        io.save_inference_model(str(tmp_path / name), loss.program.vars["x"], logits, None)
    (tmp_path / "a.pdiparams").write_bytes((tmp_path / "b.pdiparams").read_bytes())
    with pytest.raises(CorruptFileError, match="are from different saves; save the model again"):
        io.load_inference_model(str(tmp_path / "a"), None)


def test_a_training_program_is_no_inference_model(tmp_path: Path) -> None:
    _, loss = training()
    io.save(loss.program, str(tmp_path / "m"))
    (tmp_path / "m.pdparams").rename(tmp_path / "m.pdiparams")
    with pytest.raises(ConfigError, match=r"was written by static\.save"):
        io.load_inference_model(str(tmp_path / "m"), None)


# --- damaged and hostile files ------------------------------------------------------------------------


def test_damaged_files_are_refused_by_name_and_leave_the_scope_alone(tmp_path: Path) -> None:
    logits, loss = training()
    io.save_inference_model(str(tmp_path / "m"), loss.program.vars["x"], logits, None)
    before = values()
    for name in ("m.pdmodel", "m.pdiparams"):
        whole = (tmp_path / name).read_bytes()
        middle = len(whole) * 2 // 3
        for damaged in (whole[:middle], whole[:middle] + b"#" + whole[middle + 1 :], b"", b"\x80\x04}."):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(CorruptFileError, match=name.replace(".", r"\.")):
                io.load_inference_model(str(tmp_path / "m"), None)
        (tmp_path / name).write_bytes(whole)
    assert same(values(), before)
    io.load_inference_model(str(tmp_path / "m"), None)


@pytest.mark.parametrize("target", ["os.system", "posix.system", "aten.save.default", "aten.nothing.default"])
def test_a_well_sealed_program_that_names_anything_but_an_operator_is_refused(
    tmp_path: Path, target: str
) -> None:
    x: Any = default_main_program().data("x", [2])
    io.save_inference_model(str(tmp_path / "m"), x, torch.relu(x), None)
    content = json.loads((tmp_path / "m.pdmodel").read_bytes())["content"]
    marker = tmp_path / "marker"
    content["program"]["nodes"][-1].update(target=target, args=[f"touch {marker}"])
    (tmp_path / "m.pdmodel").write_bytes(atomic_files.seal(content))
    with pytest.raises(CorruptFileError, match=r"m\.pdmodel has no valid program: .*" + target):
        io.load_inference_model(str(tmp_path / "m"), None)
    assert not marker.exists()


@pytest.mark.parametrize("content", [None, 3, [], {}, {"program": None}, {"program": []}])
def test_sealed_content_that_is_no_program_is_refused(content: Any) -> None:
    with pytest.raises(CorruptFileError, match="the serialized program has no valid program"):
        io.deserialize_program(atomic_files.seal(content))


# --- chosen variables ---------------------------------------------------------------------------------


def test_chosen_variables_are_saved_and_loaded(tmp_path: Path) -> None:
    _, loss = training()
    saved = values()
    folder = str(tmp_path / "vars")
    io.save_vars(None, folder, loss.program, vars=["head", loss.program.vars["mean"]])
    io.save_vars(None, folder, loss.program, predicate=lambda v: v.ndim == 4, filename="filters")
    assert atomic_files.read_tensors(tmp_path / "vars" / "__vars__")[0].keys() == {"head", "mean"}
    assert all(v.ndim == 4 for v in atomic_files.read_tensors(tmp_path / "vars" / "filters")[0].values())
    for name in ("head", "mean"):
        global_scope().get(name).add_(1)
    io.load_vars(None, folder, loss.program, vars=["mean"])
    assert torch.equal(global_scope().get("mean"), saved["mean"])
    assert not torch.equal(global_scope().get("head"), saved["head"])
    with pytest.raises(ConfigError, match="has no variable 'scale'"):
        io.load_vars(None, folder, loss.program, vars=["scale"])
    with pytest.raises(ConfigError, match="is not persistable"):
        io.save_vars(None, folder, loss.program, vars=[loss])


# --- ragged models ------------------------------------------------------------------------------------


def test_a_ragged_model_is_saved_with_its_lengths_and_loaded(tmp_path: Path) -> None:
    x = static.data("x", [None, 3], lod_level=1)
    static.data("unused", [None, 1], lod_level=1)
    rows = static.nn.fc(x, 2)
    joined = static.nn.sequence_concat([rows, rows])
    padded, _ = static.nn.sequence_pad(joined, 0.0, maxlen=8)
    pooled = static.nn.sequence_pool(rows, "max")
    exe = Executor()
    exe.run(static.default_startup_program())
    static.save_inference_model(str(tmp_path / "model"), [x], [pooled, joined, padded], exe)
    batch = LoDTensor.of_lengths(np.random.default_rng(0).random((4, 3), "float32"), [[1, 3, 0]])
    expected = exe.run(feed={"x": batch}, fetch_list=[pooled, joined, padded], return_numpy=False)
    with scope_guard(Scope()):
        program, feeds, fetches = static.load_inference_model(str(tmp_path / "model"), exe)
        got = exe.run(program, {"x": batch}, fetches, return_numpy=False)
        for _ in range(2):  # other sizes
            exe.run(program, {"x": LoDTensor.of_lengths(batch.rows[:2], [[2]])}, fetches, return_numpy=False)
    assert (feeds, sorted(program.all_feeds())) == (["x"], ["x", "x@LENGTHS"])
    assert [v.lod_level for v in fetches] == [0, 1, 0]
    assert got[1].recursive_sequence_lengths() == expected[1].recursive_sequence_lengths() == [[2, 6, 0]]
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(*(np.asarray(getattr(v, "rows", v)) for v in (ours, theirs)))


def test_a_compiled_program_is_saved_like_its_program(tmp_path: Path) -> None:
    x = static.data("x", [None, 3])
    out = static.nn.fc(x, 2)
    compiled = static.CompiledProgram(default_main_program())
    exe = Executor()
    exe.run(default_startup_program())
    static.save(compiled, str(tmp_path / "model"))
    static.save_inference_model(str(tmp_path / "inference"), [x], [out], exe, program=compiled)
    fluid.io.save_inference_model(str(tmp_path / "fluid"), ["x"], [out], exe, main_program=compiled)
    fluid.io.save_params(exe, str(tmp_path / "params"), main_program=compiled)
    feed = {"x": np.ones((2, 3), "float32")}
    (wanted,) = exe.run(compiled, feed=feed, fetch_list=[out])
    for load in (
        lambda: static.load_inference_model(str(tmp_path / "inference"), exe),
        lambda: fluid.io.load_inference_model(str(tmp_path / "fluid"), exe),
    ):
        with scope_guard(Scope()):
            program, _, fetches = load()
            np.testing.assert_array_equal(exe.run(program, feed=feed, fetch_list=fetches)[0], wanted)
    with pytest.raises(TypeError, match="is a int; give a static.Program"):
        static.save(3, str(tmp_path / "model"))
