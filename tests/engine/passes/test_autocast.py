"""autocast: which ops run in 16 bits, how often values are cast, and that training is that of torch.autocast."""

# SPDX-License-Identifier: Apache-2.0
import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

import argosy as paddle
from argosy.distributed import fleet
from argosy.distributed.fleet.strategy_passes import training_passes
from argosy.engine.errors import ConfigError
from argosy.engine.ir import names
from argosy.engine.ir.build import Build
from argosy.engine.ir.program import Program, program_guard
from argosy.engine.ops.gradient_buckets import mm_into_bucket
from argosy.engine.passes.amp_lists import AmpLists
from argosy.engine.passes.autocast import Autocast
from argosy.engine.passes.base import rewrite, run_passes
from argosy.engine.runtime.scope import Scope, scope_guard

Net = Callable[[], nn.Module]
BF16 = torch.bfloat16


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


def attention() -> nn.Module:
    encoder = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    return nn.Sequential(nn.Linear(4, 16), encoder, nn.Flatten(), nn.Linear(16 * 5, 10))


NETS: list[tuple[Net, list[int]]] = [(convolutional, [3, 8, 8]), (attention, [5, 4])]


def built(net: nn.Module, shape: list[int], trains: bool = True) -> tuple[Program, Program, Any, Any]:
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup), names.guard():
        x = paddle.static.data("x", [None, *shape], "float32")
        y = paddle.static.data("y", [None], "int64")
        out = net(x)
        loss = nn.functional.cross_entropy(out, y)
        if trains:
            paddle.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return main, startup, out, loss


def rewritten(program: Program, autocast: Autocast) -> fx.Graph:
    graph = fx.Graph()
    graph.graph_copy(program.graph, {})
    run_passes(graph, [autocast])
    return graph


def dtypes(graph: fx.Graph, op: str) -> list[torch.dtype]:
    return [_first(n.meta["val"]).dtype for n in graph.nodes if op in str(n.target)]


def _first(value: Any) -> Tensor:
    return next(v for v in value if v is not None) if isinstance(value, tuple | list) else value


class Record(TorchDispatchMode):
    """The ops that eager mode runs, with the dtype of their first result."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        first = out[0] if isinstance(out, tuple | list) else out
        if isinstance(first, Tensor) and first.is_floating_point():
            self.ops.append((func._opname, first.dtype))
        return out


def _product(op: str) -> str:
    """The op, without the difference between mm and addmm: eager mode adds some biases in a second op."""
    return "mm" if op == "addmm" else op


@pytest.mark.parametrize(("make", "shape"), NETS)
def test_forward_ops_have_the_dtypes_of_torch_autocast(make: Net, shape: list[int]) -> None:
    torch.manual_seed(0)
    net = make()
    main, *_ = built(net, shape, trains=False)
    # Paddle's lists have softmax and mean in float32, torch's have not: compare with torch's.
    lists = AmpLists(black=AmpLists().black - {"mean"}, gray=AmpLists().gray | {"mean"})
    graph = rewritten(main, Autocast(lists=lists))
    ours = Counter(
        (_product(n.target._opname), _first(n.meta["val"]).dtype)
        for n in graph.nodes
        if isinstance(n.target, torch._ops.OpOverload)
        and n.meta["val"] is not None
        and "sym" not in n.target._opname
    )
    with Record() as record, torch.autocast("cpu", BF16), torch.no_grad():
        out = net(torch.rand(2, *shape))
        nn.functional.cross_entropy(out, torch.tensor([1, 2]))
    compared = (
        "convolution", "mm", "bmm", "native_layer_norm", "relu", "gelu", "_log_softmax",
        "max_pool2d_with_indices", "nll_loss_forward", "_scaled_dot_product_flash_attention_for_cpu",
    )  # fmt: skip
    theirs = Counter((_product(name), dtype) for name, dtype in record.ops if _product(name) in compared)
    assert theirs
    assert {op: n for op, n in ours.items() if op[0] in compared} == dict(theirs)


@pytest.mark.parametrize(("make", "shape"), [NETS[0], pytest.param(*NETS[1], marks=pytest.mark.slow)])
def test_training_is_that_of_torch_autocast(make: Net, shape: list[int]) -> None:
    torch.manual_seed(0)
    net = make()
    reference = copy.deepcopy(net)
    main, startup, out, loss = built(net, shape)
    main.build = Build(autocast=Autocast())
    optimizer = torch.optim.SGD(reference.parameters(), 0.05, momentum=0.9)
    rng = np.random.default_rng(0)
    with scope_guard(Scope()):
        exe = paddle.static.Executor()
        exe.run(startup)
        for _ in range(4):
            x, y = rng.standard_normal((6, *shape)).astype("float32"), rng.integers(0, 10, 6)
            ours, logits = exe.run(main, feed={"x": x, "y": y}, fetch_list=[loss, out])
            with torch.autocast("cpu", BF16):
                expected = nn.functional.cross_entropy(reference(torch.from_numpy(x)), torch.from_numpy(y))
            optimizer.zero_grad()
            expected.backward()
            optimizer.step()
            assert logits.dtype == np.float32, "a fetch has the dtype of its variable"
            np.testing.assert_allclose(ours, expected.item(), rtol=0.02)


def test_the_bias_of_a_linear_layer_is_rounded_as_torch_autocast_does() -> None:
    """F.linear casts weight and bias, whatever the dimensions of its input; `x @ w + b` adds the bias in float32."""
    torch.manual_seed(0)
    inputs = torch.randn(2, 3, 5), torch.randn(5, 4), torch.randn(4)
    x, w, b = (paddle.static.data(name, list(value.shape)) for name, value in zip("xwb", inputs, strict=True))
    outs = [paddle.nn.functional.linear(x, w, b), paddle.matmul(x, w) + b]
    main = paddle.static.default_main_program()
    graph = rewritten(main, Autocast())
    assert (dtypes(graph, "addmm"), dtypes(graph, "aten.add.")) == ([BF16], [torch.float32])
    main.build = Build(autocast=Autocast())
    ours = paddle.static.Executor().run(main, dict(zip("xwb", inputs, strict=True)), outs)
    with torch.autocast("cpu", BF16):
        theirs = nn.functional.linear(inputs[0], inputs[1].t(), inputs[2]), inputs[0] @ inputs[1] + inputs[2]
    assert [t.dtype for t in theirs] == [BF16, torch.float32]
    for mine, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torch.from_numpy(mine), wanted.float(), rtol=0, atol=0)


def test_products_are_16_bit_and_losses_are_not() -> None:
    main, *_ = built(convolutional(), [3, 8, 8])
    graph = rewritten(main, Autocast())
    for op in ("convolution", "native_batch_norm", "relu", "max_pool2d", "addmm", "mm.default", "gelu"):
        assert set(dtypes(graph, f"aten.{op}")) == {BF16}, op
    assert set(dtypes(graph, "_log_softmax")) == {torch.float32}
    assert {n.args[1].meta["val"].dtype for n in graph.nodes if "momentum" in str(n.target)} == {
        BF16, torch.float32,
    }, "updates widen 16-bit gradients themselves"  # fmt: skip


def test_every_value_is_cast_once() -> None:
    main, *_ = built(convolutional(), [3, 8, 8])
    graph = rewritten(main, Autocast(keeps_copies=False))
    casts = Counter((n.args[0], n.kwargs["dtype"]) for n in graph.nodes if "_to_copy" in str(n.target))
    assert set(casts.values()) == {1}
    weights = [source for (source, dtype) in casts if dtype is BF16 and source.op == "placeholder"]
    assert len(weights) == 6, (
        "the feed, three weights and two biases: none for forward and again for backward"
    )


def test_weight_gradients_of_two_ranks_are_16_bit_products() -> None:
    """insert_all_reduce and fuse_all_reduce have recorded them as float32 products in a bucket."""
    main = Program("main")
    with program_guard(main, Program("startup")), names.guard():
        loss = paddle.static.nn.fc(paddle.static.data("x", [None, 4]), 8).mean()
        _, pairs = paddle.optimizer.SGD(0.1).minimize(loss)
        rewrite(main, training_passes(fleet.DistributedStrategy(), main, pairs, ranks=2))
    assert [n for n in main.graph.nodes if n.target is mm_into_bucket]
    graph = rewritten(main, Autocast())
    assert set(dtypes(graph, "aten.mm.default")) == {BF16}
    assert not [n for n in graph.nodes if n.target is mm_into_bucket]
    assert set(dtypes(graph, "copy_into_bucket")) == {torch.float32}


def test_a_second_run_changes_nothing() -> None:
    main, *_ = built(convolutional(), [3, 8, 8])
    graph = rewritten(main, Autocast())
    before = len(graph.nodes)
    run_passes(graph, [Autocast()])
    assert len(graph.nodes) == before


def test_a_value_that_is_mutated_is_cast_again() -> None:
    main = Program("main")
    with program_guard(main, Program("startup")), names.guard():
        x = paddle.static.data("x", [4, 4], "float32")
        first = torch.mm(x, x)
        y = x * 1.0
        a = torch.mm(y, y)
        y.add_(1.0)
        b = torch.mm(y, y)
    main.build = Build(autocast=Autocast())
    value = np.eye(4, dtype="float32")
    results = paddle.static.Executor().run(main, feed={"x": value}, fetch_list=[first, a, b])
    np.testing.assert_array_equal(results[1], value)
    np.testing.assert_array_equal(results[2], (value + 1) @ (value + 1))


def test_custom_lists_move_ops() -> None:
    main, *_ = built(convolutional(), [3, 8, 8], trains=False)
    lists = AmpLists().with_custom(white=["softmax_with_cross_entropy"], black=["conv2d"])
    graph = rewritten(main, Autocast(lists=lists))
    assert set(dtypes(graph, "aten.convolution")) == {torch.float32}
    assert set(dtypes(graph, "_log_softmax")) == {BF16}


@pytest.mark.parametrize(
    ("white", "black", "message"),
    [
        (["conv3"], [], "custom_white_list: no op is called 'conv3' (did you mean"),
        (["conv2d"], ["convolution"], "in the custom white list and in the custom black list"),
        ("conv2d", [], "use a list of names"),
    ],
)
def test_invalid_lists_are_rejected(white: Any, black: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AmpLists().with_custom(white, black)
    assert message in str(caught.value)


def test_no_op_is_in_two_lists() -> None:
    lists = AmpLists()
    assert not lists.white & lists.black
    assert not lists.white & lists.gray
    assert not lists.black & lists.gray


def test_attention_stays_in_16_bits_between_its_products() -> None:
    """The input of its first product is transposed: in eager mode the bias is added in a second op, in 16 bits, too."""
    layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True)
    x = paddle.static.data("x", [None, 4, 16])
    paddle.optimizer.SGD(0.1).minimize((layer(x) ** 2).mean())
    graph = rewritten(paddle.static.default_main_program(), Autocast())
    attention = next(n for n in graph.nodes if "scaled_dot_product" in n.name)
    sources = [attention.args[0]]
    while sources[-1].target is not torch.ops.aten.addmm.default:
        sources.append(sources[-1].args[0])
    assert {n.meta["val"].dtype for n in sources} == {BF16}
    sums = [
        n for n in graph.nodes if n.target is torch.ops.aten.sum.dim_IntList and n.meta["role"] == "backward"
    ]
    narrow = [n for n in sums if n.args[0].meta["val"].dtype is BF16]
    assert narrow
    assert all(n.meta["val"].dtype is n.args[0].meta["val"].dtype for n in sums), "no cast before the sum"
    black_sums = Autocast(lists=AmpLists().with_custom(black=["reduce_sum"]))
    graph = rewritten(paddle.static.default_main_program(), black_sums)
    assert all(
        n.meta["val"].dtype is torch.float32
        for n in graph.nodes
        if n.target is torch.ops.aten.sum.dim_IntList
    )
