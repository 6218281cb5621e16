"""Decompositions that recording uses give eager mode's outputs and gradients; the others are switched off."""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch._decomp
import torch._refs
import torch.nn.functional as F
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn.utils.rnn import pad_sequence

from argosy.engine.errors import ProgramError
from argosy.engine.ir import decompositions
from argosy.engine.ir.backward import gradients
from argosy.engine.ir.program import default_main_program
from argosy.engine.runtime.executor import Executor

aten = torch.ops.aten
Function = Callable[..., Any]
Inputs = Callable[[int], tuple[Tensor, ...]]
Case = tuple[OpOverload, str, Function, Inputs]


def floats(*shape: int) -> Inputs:
    return lambda batch: (torch.randn(batch, *shape),)


# --- the table ----------------------------------------------------------------------------------------

RESIZED: list[tuple[OpOverload, str, int, bool]] = [
    (aten.upsample_nearest1d.vec, "nearest", 1, False),
    (aten.upsample_nearest2d.vec, "nearest", 2, False),
    (aten.upsample_nearest3d.vec, "nearest", 3, False),
    (aten._upsample_nearest_exact1d.vec, "nearest-exact", 1, False),
    (aten._upsample_nearest_exact2d.vec, "nearest-exact", 2, False),
    (aten._upsample_nearest_exact3d.vec, "nearest-exact", 3, False),
    (aten.upsample_linear1d.vec, "linear", 1, False),
    (aten.upsample_bilinear2d.vec, "bilinear", 2, False),
    (aten.upsample_trilinear3d.vec, "trilinear", 3, False),
    (aten.upsample_bicubic2d.vec, "bicubic", 2, False),
    (aten._upsample_bilinear2d_aa.vec, "bilinear", 2, True),
    (aten._upsample_bicubic2d_aa.vec, "bicubic", 2, True),
    (aten._upsample_lanczos2d_aa.vec, "lanczos", 2, True),
]
"""(op, mode of F.interpolate, dimensions, antialias)"""


def resized(op: OpOverload, mode: str, dims: int, antialias: bool) -> list[Case]:
    """By a factor, and to a size, with aligned corners where the mode has them."""
    corners = {} if "nearest" in mode or mode == "lanczos" else {"align_corners": True}
    sizes: list[dict[str, Any]] = [{"scale_factor": 1.7}, {"size": [5, 3, 6][:dims], **corners}]

    def function(size: dict[str, Any]) -> Function:
        return lambda x: F.interpolate(x, mode=mode, antialias=antialias, **size)

    return [(op, str(size), function(size), floats(2, *[4, 5, 3][:dims])) for size in sizes]


MATMULS = [
    "i i",
    "Ni i",
    "i Nij",
    "Nki ij",
    "ki Nij",
    "Nki Nij",
    "Nkli Nkij",
    "kN Nj",
]
"""The dimensions of both factors; N is unknown."""


def multiplied(text: str) -> Case:
    def inputs(batch: int) -> tuple[Tensor, ...]:
        sizes = {"N": batch, "i": 4, "j": 3, "k": 2, "l": 5}
        return tuple(torch.randn([sizes[c] for c in dims]) for dims in text.split())

    return (aten.matmul.default, text, torch.matmul, inputs)


def into_new_memory(a: Tensor, b: Tensor) -> Tensor:
    return default_main_program().call(
        lambda x, y: torch.matmul(x, y, out=torch.empty(x.shape[0], 3)), (a, b), {}
    )


def indices(batch: int) -> tuple[Tensor, ...]:
    return torch.randn(batch, 5), torch.tensor([1, 2])


WINDOW = torch.hann_window(16)

CASES: list[Case] = [
    *(case for row in RESIZED for case in resized(*row)),
    *map(multiplied, MATMULS),
    (
        aten.native_batch_norm.default,
        "training",
        lambda x, w, b: torch.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)[0],
        lambda batch: (torch.randn(batch, 3, 4), torch.randn(3), torch.randn(3)),
    ),
    (
        aten.native_batch_norm.default,
        "instance norm",
        F.instance_norm,
        floats(3, 4),
    ),
    (
        aten.broadcast_tensors.default,
        "two",
        torch.broadcast_tensors,
        lambda batch: (torch.randn(batch, 1, 4), torch.randn(3, 1)),
    ),
    (
        aten.one_hot.default,
        "seven classes",
        lambda x: F.one_hot(x, 7),
        lambda batch: (torch.randint(0, 7, (batch, 3)),),
    ),
    (aten.softshrink.default, "0.2", lambda x: F.softshrink(x, 0.2), floats(6)),
    (aten.hardshrink.default, "0.3", lambda x: F.hardshrink(x, 0.3), floats(6)),
    (
        aten.pad_sequence.default,
        "batch first",
        lambda a, b: pad_sequence([a, b], True, 2.0),
        lambda batch: (torch.randn(batch + 2, 3), torch.randn(batch, 3)),
    ),
    (
        aten.pad_sequence.default,
        "left",
        lambda a, b: pad_sequence([a, b], padding_side="left"),
        lambda batch: (torch.randn(batch + 2, 3), torch.randn(batch, 3)),
    ),
    (
        aten.stft.center,
        "with a window",
        lambda x: torch.view_as_real(torch.stft(x, 16, 4, window=WINDOW, return_complex=True)),
        floats(64),
    ),
    (
        aten.stft.center,
        "two-sided, not centered",
        lambda x: torch.view_as_real(
            torch.stft(
                x, 16, 4, window=WINDOW, center=False, normalized=True, onesided=False, return_complex=True
            )
        ),
        floats(64),
    ),
    (
        aten.istft.default,
        "60 samples",
        lambda x: torch.istft(torch.view_as_complex(x), 16, 4, window=WINDOW, length=60),
        floats(9, 17, 2),
    ),
    (
        aten.tensor_split.tensor_indices_or_sections,
        "constant indices",
        lambda x: torch.tensor_split(x, torch.tensor([1, 2]), 1),
        floats(5),
    ),
    (
        aten.tensor_split.tensor_indices_or_sections,
        "fed indices",
        lambda x, i: torch.tensor_split(x, i, 1),
        indices,
    ),
    (aten.unsafe_chunk.default, "three", lambda x: torch.unsafe_chunk(x, 3, 1), floats(7)),
    (aten.dropout.default, "in evaluation", lambda x: torch.dropout(x, 0.5, False), floats(7)),
    (aten.dropout.default, "p=1", lambda x: torch.dropout(x, 1.0, True), floats(7)),
]
OF_INDUCTOR = {aten.miopen_batch_norm.default}
"""Whose decompositions torch has if another test of this process has imported inductor."""
COMPARED_ELSEWHERE = {aten.matmul.out, aten.empty.out}
"""By the tests of `out=` below: eager mode differentiates neither."""


# --- comparing ----------------------------------------------------------------------------------------


@contextmanager
def counted(op: OpOverload) -> Iterator[list[str]]:
    """Counts how often torch calls the decomposition of an op."""
    kernels = {key: op.py_kernels[key] for key in decompositions.KEYS if key in op.py_kernels}
    calls: list[str] = []

    def counting(kernel: Function) -> Function:
        def called(*args: Any, **kwargs: Any) -> Any:
            calls.append(str(op))
            return kernel(*args, **kwargs)

        return called

    op.py_kernels.update({key: counting(kernel) for key, kernel in kernels.items()})
    op._dispatch_cache.clear()
    try:
        yield calls
    finally:
        op.py_kernels.update(kernels)
        op._dispatch_cache.clear()


def tensors(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple | list) else [out]


def eager(function: Function, given: Sequence[Tensor]) -> list[Tensor]:
    """The outputs, and the gradients of the sum of their squares for the inputs."""
    inputs = [x.clone().requires_grad_(x.is_floating_point()) for x in given]
    outputs = tensors(function(*inputs))
    differentiable = [y.pow(2).sum() for y in outputs if y.requires_grad]
    sources = [x for x in inputs if x.requires_grad]
    grads = torch.autograd.grad(differentiable, sources) if differentiable else ()
    return [y.detach() for y in (*outputs, *grads)]


def recorded(
    function: Function, inputs: Inputs, batches: Sequence[int]
) -> Iterator[tuple[int, list[Tensor]]]:
    """The same by a program whose batch is unknown, for each batch."""
    program = default_main_program()
    feeds = []
    for number, (a, b) in enumerate(zip(inputs(3), inputs(4), strict=True)):
        shape = [m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)]
        feed = program.data(f"x{number}", shape, a.dtype)
        feed.stop_gradient = not a.is_floating_point()
        feeds.append(feed)
    outputs = tensors(function(*feeds))
    differentiable = [y.pow(2).sum() for y in outputs if y.value.requires_grad]
    grads = gradients(differentiable, [x for x in feeds if not x.stop_gradient]) if differentiable else []
    exe = Executor()
    for batch in batches:
        torch.manual_seed(batch)
        fed = {x.name: value for x, value in zip(feeds, inputs(batch), strict=True)}
        yield batch, exe.run(feed=fed, fetch_list=[*outputs, *grads], return_numpy=False)


def assert_equals_eager(function: Function, inputs: Inputs, batches: Sequence[int]) -> None:
    for batch, actual in recorded(function, inputs, batches):
        torch.manual_seed(batch)
        for value, wanted in zip(actual, eager(function, inputs(batch)), strict=True):
            torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-5)


# --- the tests ----------------------------------------------------------------------------------------


def decomposed() -> set[OpOverload]:
    """Every op of ATen for which torch has a decomposition at one of the keys."""
    ops = set()
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if space == "aten" and hasattr(aten, packet):
            op = getattr(getattr(aten, packet), overload or "default")
            if any(key in op.py_kernels for key in decompositions.KEYS):
                ops.add(op)
    return ops


def test_every_decomposition_of_torch_is_compared_or_rejected() -> None:
    assert torch._decomp
    assert torch._refs
    assert decomposed() | OF_INDUCTOR == {*decompositions.COMPARED, *decompositions.REJECTED}


def test_no_decomposition_is_both_compared_and_rejected() -> None:
    assert not set(decompositions.COMPARED) & set(decompositions.REJECTED)


def test_the_table_has_every_compared_decomposition() -> None:
    assert {case[0] for case in CASES} | COMPARED_ELSEWHERE == set(decompositions.COMPARED)


@pytest.mark.parametrize(
    ("op", "function", "inputs"),
    [(op, function, inputs) for op, _, function, inputs in CASES],
    ids=[f"{op} {text}".removeprefix("aten.") for op, text, _, _ in CASES],
)
def test_outputs_and_gradients_equal_eager(op: OpOverload, function: Function, inputs: Inputs) -> None:
    with counted(op) as calls:
        assert_equals_eager(function, inputs, (4, 1))
    assert calls, f"{op} was not called"


def test_matmul_writes_into_a_tensor_that_the_program_made() -> None:
    a, b = default_main_program().data("a", [None, 4]), default_main_program().data("b", [4, 3])
    with counted(aten.matmul.out) as calls:
        out = into_new_memory(a, b)
    for batch in (1, 4):
        given = torch.randn(batch, 4), torch.randn(4, 3)
        (actual,) = Executor().run(
            feed=dict(zip("ab", given, strict=True)), fetch_list=[out], return_numpy=False
        )
        torch.testing.assert_close(actual, given[0] @ given[1])
    assert calls


def test_empty_gives_the_tensor_that_it_was_given() -> None:
    def ones(x: Tensor) -> Tensor:
        return torch.empty(x.shape, out=torch.empty(x.shape)).fill_(1) + x

    x = default_main_program().data("x", [None, 4])
    with counted(aten.empty.out) as calls:
        out = default_main_program().call(ones, (x,), {})
    given = torch.randn(3, 4)
    (actual,) = Executor().run(feed={"x": given}, fetch_list=[out], return_numpy=False)
    assert torch.equal(actual, given + 1)
    assert calls


def test_dropout_drops_its_share_and_scales_the_rest() -> None:
    x = default_main_program().data("x", [None, 100])
    x.stop_gradient = False
    with counted(aten.dropout.default) as calls:
        out = torch.dropout(x, 0.3, True)
    (grad,) = gradients(out.sum(), x)
    y, dx = Executor().run(feed={"x": torch.ones(200, 100)}, fetch_list=[out, grad], return_numpy=False)
    assert calls
    assert abs((y == 0).float().mean() - 0.3) < 0.02  # four standard deviations are 0.013
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / 0.7))
    torch.testing.assert_close(dx, y)


def test_batch_norm_by_given_statistics_equals_eager() -> None:
    program = default_main_program()
    x, mean, var = program.data("x", [None, 3, 4]), program.data("mean", [3]), program.data("var", [3])
    x.stop_gradient = False
    with counted(aten.native_batch_norm.default) as calls:
        out = torch.native_batch_norm(x, None, None, mean, var, False, 0.1, 1e-5)[0]
    (grad,) = gradients(out.pow(2).sum(), x)
    fed = {"x": torch.randn(4, 3, 4), "mean": torch.randn(3), "var": torch.rand(3) + 0.5}
    y, dx = Executor().run(feed=fed, fetch_list=[out, grad], return_numpy=False)
    wanted = eager(lambda x: F.batch_norm(x, fed["mean"], fed["var"]), [fed["x"]])
    torch.testing.assert_close([y, dx], wanted)
    assert calls


def test_one_hot_needs_the_number_of_classes() -> None:
    x = default_main_program().data("x", [None, 3], "int64")
    with pytest.raises(
        ProgramError, match=r"one_hot.*test_decompositions.py:\d+.*needs the value of a variable"
    ):
        F.one_hot(x)


def test_a_dimension_of_unknown_size_is_not_chunked() -> None:
    x = default_main_program().data("x", [None, 3])
    with pytest.raises(ProgramError, match=r"unsafe_chunk.*unknown while the program is built"):
        torch.unsafe_chunk(x, 3, 0)


def rejected() -> list[tuple[OpOverload, Any]]:
    """The decompositions of rejected ops that torch would use now."""
    return [
        (op, key) for op in decompositions.REJECTED for key in decompositions.KEYS if key in op.py_kernels
    ]


def test_rejected_decompositions_are_off_while_recording_and_on_afterwards() -> None:
    before = rejected()
    assert {op for op, _ in before} | OF_INDUCTOR == set(decompositions.REJECTED)
    with default_main_program().recording():
        assert not rejected()
        with default_main_program().recording("backward"):
            assert not rejected()
        assert not rejected()
    assert rejected() == before


def test_rejected_decompositions_are_on_again_after_an_error() -> None:
    before = rejected()
    with pytest.raises(ProgramError):
        torch.mm(default_main_program().data("x", [None, 3]), torch.zeros(4, 5))
    assert rejected() == before


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dims", [1, 2])
def test_multilabel_margin_loss_ignores_targets_behind_minus_one(dims: int, reduction: str) -> None:
    rows = torch.tensor([[3, 0, -1, 1], [-1, 2, 3, 0], [1, 2, 3, 0], [0, -1, -1, -1]])
    module = nn.MultiLabelMarginLoss(reduction=reduction)
    if dims == 2:
        assert_equals_eager(module, lambda n: (torch.randn(n, 4), rows.repeat(2, 1)[:n]), (4, 1, 7))
        return
    for row in rows:
        given = torch.randn(4), row
        x = default_main_program().data("x", [4])
        target = default_main_program().data("target", [4], "int64")
        x.stop_gradient = False
        out = module(x, target)
        assert out.shape == ()
        (grad,) = gradients(out, x)
        actual = Executor().run(
            feed={"x": given[0], "target": row}, fetch_list=[out, grad], return_numpy=False
        )
        leaf = given[0].clone().requires_grad_()
        wanted = module(leaf, row)
        torch.testing.assert_close(actual, [wanted.detach(), *torch.autograd.grad(wanted, leaf)])
