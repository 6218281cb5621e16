"""A program from a file calls only listed operators, with arguments that their kernels can be trusted with."""

# SPDX-License-Identifier: Apache-2.0
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import argosy as paddle
from argosy import static
from argosy.engine.errors import CorruptFileError, FeedError, ProgramError
from argosy.engine.ir import allowed_ops
from argosy.engine.ir.program import default_main_program
from argosy.engine.ir.serialize import from_dict, to_dict
from argosy.engine.runtime import atomic_files
from argosy.engine.runtime.executor import Executor
from tests.ranks import ForkServer

Tree = dict[str, Any]


def pooled() -> Tree:
    """max_pool2d and its gradient."""
    x = static.data("x", [2, 3, 4, 4])
    x.stop_gradient = False
    static.gradients([F.max_pool2d(x, 2).sum()], [x])
    return json.loads(json.dumps(to_dict(default_main_program())))


def node(tree: Tree, op: str) -> Tree:
    return next(n for n in tree["nodes"] if n["target"].split(".")[1:2] == [op])


def relu_as(target: str, *args: Any, **kwargs: Any) -> Tree:
    """x and one call, with these arguments behind x."""
    torch.relu(static.data("x", [4]))
    tree = json.loads(json.dumps(to_dict(default_main_program())))
    node(tree, "relu").update(target=target, args=[{"node": "x"}, *args], kwargs=kwargs)
    tree["variables"] = tree["variables"][:1]
    return tree


REJECTED: dict[str, tuple[Callable[[], Tree], str]] = {
    "an op that is not listed": (lambda: relu_as("aten._cufft_clear_plan_cache.default"), "not in the list"),
    "an op of quantized tensors": (
        lambda: relu_as("aten.fbgemm_pack_gemm_matrix_fp16.default"),
        "not in the list",
    ),
    "a resize": (lambda: relu_as("aten.resize_.default", [1 << 20]), "exposes uninitialised memory"),
    "another storage": (
        lambda: relu_as("aten.set_.source_Tensor", {"node": "x"}),
        "refer to other memory",
    ),
    "a server": (
        lambda: relu_as("argosy.listen_and_serv.default", 1, "sync", [], []),
        "talks to parameter servers",
    ),
    "unsafe=True": (
        lambda: relu_as("aten.segment_reduce.default", "sum", lengths={"node": "x"}, unsafe=True),
        "unsafe=True lets aten.segment_reduce.default trust its arguments",
    ),
    "another device": (
        lambda: relu_as("aten.empty_like.default", device={"device": "meta"}),
        "is invalid in a saved program",
    ),
    "pinned memory": (lambda: relu_as("aten.empty_like.default", pin_memory=True), "pin_memory=True"),
    "a sparse layout": (
        lambda: relu_as("aten.empty_like.default", layout={"layout": "torch.sparse_coo"}),
        "is not a dense layout",
    ),
    "more than the machine's memory": (
        lambda: relu_as("aten.repeat.default", [1 << 40]),
        r"needs 17,592 GB of memory, and this machine has \d+ GB",
    ),
    "a number without end": (
        lambda: relu_as("operator.pow") | {"nodes": [_size("operator.pow", 10, 10**9)]},
        "exponent of a size must be 0 to 64",
    ),
    "a number of many bits": (
        lambda: relu_as("operator.mul") | {"nodes": [_size("operator.mul", 2**62, 2**62)]},
        "more than 63 bits",
    ),
    "a tensor in the place of a size": (lambda: relu_as("operator.add", 1), "it takes nodes and numbers"),
    "an item of a tensor": (lambda: relu_as("operator.getitem", 1), "it takes nodes and numbers"),
    "an int in the place of a dtype": (
        lambda: relu_as("aten.empty_like.default", dtype=1000),
        "dtype=1000 of aten.empty_like.default is not a .*dtype",
    ),
    "an unknown mark": (lambda: _with_mark("takes_list", True), "marks are train_only"),
    "a mark of another type": (lambda: _with_mark("memory_format", "x"), "'memory_format': 'x'"),
}


def _size(target: str, *args: int) -> Tree:
    record = {"name": "n", "op": "call_function", "target": target, "args": list(args), "kwargs": {}}
    return {**record, "role": "forward", "source": None, "marks": {}}


def _with_mark(key: str, value: Any) -> Tree:
    tree = relu_as("aten.relu.default")
    node(tree, "relu")["marks"] = {key: value}
    return tree


@pytest.mark.parametrize("what", REJECTED)
def test_is_rejected_and_the_node_is_named(what: str) -> None:
    build, message = REJECTED[what]
    tree = build()
    if what.startswith("a number"):
        tree["variables"] = []
    name = tree["nodes"][-1]["name"]
    with pytest.raises(ProgramError, match=message) as caught:
        from_dict(tree)
    assert f"node {name!r}" in str(caught.value)


def test_the_error_names_the_file_the_node_and_the_op(tmp_path: Path) -> None:
    x = static.data("x", [4])
    y = torch.relu(x)
    static.save_inference_model(str(tmp_path / "model"), [x], [y], Executor())
    path = tmp_path / "model.pdmodel"
    content = atomic_files.unseal(path.read_bytes(), "")
    node(content["program"], "relu").update(target="aten.resize_.default", args=[{"node": "x"}, [9]])
    path.write_bytes(atomic_files.seal(content))
    with pytest.raises(
        CorruptFileError, match=r"model\.pdmodel .*node 'relu': aten\.resize_\.default may not be"
    ):
        static.load_inference_model(str(tmp_path / "model"), Executor())


def test_what_may_not_be_loaded_cannot_be_saved() -> None:
    x = static.data("x", [2, 2])
    x.program.call(torch.ops.aten.linalg_lu_solve.default, (x, torch.ones(2, dtype=torch.int32), x), {})
    with pytest.raises(
        ProgramError, match=r"cannot be saved: aten.linalg_lu_solve.default may not be called"
    ):
        to_dict(x.program)


# --- what a kernel trusts -----------------------------------------------------------------------------


def test_indices_that_forward_returned_are_taken() -> None:
    loaded = from_dict(pooled())
    assert "max_pool2d_with_indices_backward" in str(loaded)


def test_indices_from_elsewhere_are_rejected() -> None:
    tree = pooled()
    backward = node(tree, "max_pool2d_with_indices_backward")
    indices = backward["args"][-1]
    added = {**backward, "name": "moved", "target": "aten.add.Tensor", "args": [indices, indices]}
    tree["nodes"].insert(tree["nodes"].index(backward), added)
    backward["args"][-1] = {"node": "moved"}
    with pytest.raises(
        ProgramError, match="must be output 1 of a call of aten.max_pool2d_with_indices.default"
    ):
        from_dict(tree)


def test_indices_of_another_image_are_rejected() -> None:
    tree = pooled()
    backward = node(tree, "max_pool2d_with_indices_backward")
    other = {**backward, "name": "other", "target": "aten.relu.default", "args": [{"node": "x"}]}
    tree["nodes"].insert(tree["nodes"].index(backward), other)
    backward["args"][1] = {"node": "other"}
    with pytest.raises(ProgramError, match="with the same tensors, because the kernel trusts it"):
        from_dict(tree)


def test_indices_that_were_written_since_are_rejected() -> None:
    tree = pooled()
    backward = node(tree, "max_pool2d_with_indices_backward")
    written = {
        **backward,
        "name": "written",
        "target": "aten.mul_.Tensor",
        "args": [backward["args"][-1]] * 2,
    }
    tree["nodes"].insert(tree["nodes"].index(backward), written)
    with pytest.raises(ProgramError, match="node 'written' writes into getitem"):
        from_dict(tree)


def test_two_readers_of_one_output_come_back() -> None:
    q = static.data("q", [2, 1, 4, 8])
    q.stop_gradient = False
    loss = F.scaled_dot_product_attention(q, q, q).square().mean()
    (gradient,) = static.gradients([loss], [q])
    loaded = from_dict(json.loads(json.dumps(to_dict(q.program))))
    feed = {"q": np.random.default_rng(1).standard_normal((2, 1, 4, 8), dtype=np.float32)}
    ours, theirs = (Executor().run(p, feed, [gradient.name]) for p in (q.program, loaded))
    np.testing.assert_array_equal(ours[0], theirs[0])


# --- the list -----------------------------------------------------------------------------------------


def test_the_list_names_registered_operators_once_and_in_order() -> None:
    names = allowed_ops.LIST.read_text().split()
    assert names == sorted(set(names))
    for name in names:
        namespace, op, overload = name.split(".")
        assert namespace in ("aten", "prims")
        assert torch._C._dispatch_has_kernel(
            getattr(getattr(getattr(torch.ops, namespace), op), overload)._name
        )


def test_no_listed_operator_opens_files_or_takes_code() -> None:
    for name in allowed_ops.LIST.read_text().split():
        namespace, op, overload = name.split(".")
        schema = getattr(getattr(getattr(torch.ops, namespace), op), overload)._schema
        kinds = " ".join(str(a.type) for a in schema.arguments)
        assert "Storage" not in kinds, name
        assert "Stream" not in kinds, name
        assert not any(a.name in ("filename", "callback") or a.is_out for a in schema.arguments), name


UNINITIALISED = """
import torch
from argosy import static
from argosy.engine.runtime.executor import Executor
x = static.data("x", [400, 400])
empty = x.program.call(lambda t: torch.empty_like(t), (x,), {})
dirty = [torch.full((400, 400), 7.0) for _ in range(20)]
del dirty
(fetched,) = Executor().run(x.program, {"x": torch.ones(400, 400)}, [empty.name])
print(abs(fetched).max())
"""


def test_uninitialised_memory_is_no_result(ranks: ForkServer) -> None:
    done = ranks.python("-c", UNINITIALISED)
    assert float(done.stdout) == 0, done.stderr


def test_a_label_outside_of_the_alphabet_is_rejected() -> None:
    x, y = static.data("x", [5, 1, 4]), static.data("y", [1, 2], "int64")
    lengths = torch.tensor([5]), torch.tensor([2])
    loss = F.ctc_loss(x.log_softmax(-1), y, *lengths)
    feed = {"x": np.zeros((5, 1, 4), np.float32), "y": np.array([[1, 10**6]])}
    with pytest.raises(ProgramError, match="the targets are 1 to 1000000; they must be labels, 0 to 3"):
        Executor().run(x.program, feed, [loss.name])


@pytest.mark.parametrize("place", [1, 2])
def test_a_batch_norm_checks_its_vectors(place: int) -> None:
    x = static.data("x", [4, 3, 5, 5])
    paddle.static.nn.batch_norm(x)
    tree = json.loads(json.dumps(to_dict(default_main_program())))
    batch_norm = node(tree, "native_batch_norm")
    state = next(v for v in tree["variables"] if v["placeholder"] == batch_norm["args"][place]["node"])
    state["shape"] = [1]
    program = from_dict(tree)
    for name, variable in program.persistables().items():
        static.global_scope().put(name, torch.ones(variable.shape))
    wanted = [v for v in program.vars if v.startswith("batch_norm") and "tmp" in v][:1]
    with pytest.raises(ProgramError, match=r"(weight|bias) is float32\[1\] .* it must be .* \[C\]"):
        Executor().run(program, {"x": np.ones((4, 3, 5, 5), np.float32)}, wanted)


def test_a_result_that_is_too_large_for_what_is_fed_is_rejected_before_it_is_computed() -> None:
    x = static.data("x", [None, 4])
    y = torch.relu(x).repeat(1 << 20, 1)
    loaded = from_dict(json.loads(json.dumps(to_dict(x.program))))
    with pytest.raises(FeedError, match=r"repeat .* needs 17,\d+ GB of memory for the sizes that are fed"):
        Executor().run(loaded, {"x": np.ones((1 << 20, 4), np.float32)}, [y.name])
