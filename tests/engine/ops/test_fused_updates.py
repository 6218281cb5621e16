"""The fused updates: each tensor as its own op updates it, with our kernel and without, in any order and dtype."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from argosy.engine.kernels import unavailable
from argosy.engine.ops.op_spec import OpSpec
from argosy.engine.ops.updates import FUSED, update_op

SHAPES = [(64, 3, 7, 7), (5,), (0, 4), (40, 200), (1,), (17, 3), (3, 2, 3, 3, 3)]
FACTORS = [1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 3.0]
DECAYS = [0.0, 0.1, 0.0, 0.1, 0.0, 0.2, 0.0]
RATE = 0.1


@dataclass(frozen=True)
class Case:
    """An update: how many states it has, if it counts steps, what is common to all, and if it has a decay."""

    op: OpOverload
    states: int
    counts: bool
    common: tuple[Any, ...]
    decays: bool = True


CASES = {
    "sgd": Case(update_op("sgd"), 0, False, ()),
    "momentum": Case(update_op("momentum"), 1, False, (0.9, False)),
    "nesterov": Case(update_op("momentum"), 1, False, (0.9, True)),
    "no momentum": Case(update_op("momentum"), 1, False, (0.0, False)),
    "adam": Case(update_op("adam"), 2, True, (0.9, 0.99, 1e-8), decays=False),
    "adam, short memory": Case(update_op("adam"), 2, True, (0.3, 0.99, 1e-3), decays=False),
    "adamw": Case(update_op("adamw"), 2, True, (0.9, 0.99, 1e-8)),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


class Model:
    """Parameters with their states, and the same again."""

    def __init__(
        self, case: Case, shapes: list[tuple[int, ...]] = SHAPES, dtype: torch.dtype = torch.float32
    ):
        torch.manual_seed(1)
        self.case, self.rate = case, torch.tensor([RATE])
        self.params = [torch.randn(shape).to(dtype) for shape in shapes]
        self.states = [[torch.rand(shape).to(dtype) for shape in shapes] for _ in range(case.states)]
        if case.counts:
            self.states.append([torch.full((1,), 2.0) for _ in shapes])
        self.masters: list[Tensor] = []

    def with_masters(self) -> "Model":
        self.masters = [p.float() for p in self.params]
        self.states[: self.case.states] = [
            [s.float() for s in states] for states in self.states[: self.case.states]
        ]
        return self

    def tensors(self) -> list[Tensor]:
        return [t for tensors in (self.params, *self.states, self.masters) for t in tensors]

    def gradients(self, seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return [torch.randn(p.shape).to(p.dtype) for p in self.params]

    def step(self, grads: list[Tensor]) -> None:
        """The fused update."""
        decays = [DECAYS[: len(grads)]] if self.case.decays else []
        fused = OpSpec.known[FUSED[self.case.op]].kernel
        numbers = FACTORS[: len(grads)], *self.case.common, *decays, self.masters
        fused(self.params, grads, *self.states, self.rate, *numbers)

    def step_one_by_one(self, grads: list[Tensor]) -> None:
        kernel = OpSpec.known[self.case.op].kernel
        for i, grad in enumerate(grads):
            decay = [DECAYS[i]] if self.case.decays else []
            states = (states[i] for states in self.states)
            master = [self.masters[i]] if self.masters else []
            numbers = FACTORS[i], *self.case.common, *decay, *master
            kernel(self.params[i], grad, *states, self.rate, *numbers)


def assert_close(actual: Model, wanted: Model) -> None:
    """Within a rounding or two of each other in each step."""
    for a, b in zip(actual.tensors(), wanted.tensors(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-7, atol=5e-7)


@each_case
def test_three_steps_are_those_of_each_parameters_own_update(case: Case, kernels: str) -> None:
    fused, single = Model(case), Model(case)
    for seed in range(3):
        fused.step(fused.gradients(seed))
        single.step_one_by_one(single.gradients(seed))
    assert_close(fused, single)


@each_case
def test_tensors_of_whole_vectors_are_bit_equal(case: Case, kernels: str) -> None:
    """The ends of others too, but for what torch's kernels round otherwise there."""
    shapes = [(64, 48), (16,), (20000, 4)]
    fused, single = Model(case, shapes), Model(case, shapes)
    for seed in range(3):
        fused.step(fused.gradients(seed))
        single.step_one_by_one(single.gradients(seed))
    for a, b in zip(fused.tensors(), single.tensors(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", [name for name in CASES if name != "no momentum"])
def test_the_rounding_of_an_element_does_not_depend_on_where_a_tensor_begins_and_ends(name: str) -> None:
    """With Argosy's kernels. torch's own kernels round the last elements, which fill no vector, differently."""
    if why := unavailable():
        pytest.skip(why)
    case, size = CASES[name], 140

    def model() -> Model:
        return Model(case, [(size,)])

    grad = model().gradients(0)[0]
    whole = model()
    whole.step([grad])
    for first in (0, 1, 3, 16, 61):
        for length in range(1, 71):
            part, last = model(), first + length
            part.params = [part.params[0][first:last]]
            part.states[: case.states] = [[s[0][first:last]] for s in part.states[: case.states]]
            part.step([grad[first:last]])
            tensors = zip((part.params, *part.states), (whole.params, *whole.states), strict=True)
            for (mine,), (theirs,) in tensors:
                wanted = theirs[first:last] if theirs.numel() == size else theirs
                assert torch.equal(mine, wanted), f"elements {first} to {last}"


@each_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_are_bit_equal(case: Case, dtype: torch.dtype) -> None:
    fused, single = Model(case, dtype=dtype), Model(case, dtype=dtype)
    for seed in range(2):
        fused.step(fused.gradients(seed))
        single.step_one_by_one(single.gradients(seed))
    for a, b in zip(fused.tensors(), single.tensors(), strict=True):
        assert torch.equal(a, b)


@each_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_numbers_are_those_of_float32_rounded(case: Case, dtype: torch.dtype) -> None:
    """torch's own fused SGD gives wrong numbers for them on the CPU, so it is not asked."""
    shapes = [(64, 48), (17,)]
    narrow, wide = Model(case, shapes, dtype), Model(case, shapes, dtype)
    wide.params, wide.states[: case.states] = (
        [p.float() for p in wide.params],
        [[s.float() for s in states] for states in wide.states[: case.states]],
    )
    grads = narrow.gradients(0)
    narrow.step(grads)
    wide.step([g.float() for g in grads])
    for a, b in zip(narrow.tensors(), wide.tensors(), strict=True):
        torch.testing.assert_close(a.float(), b, rtol=0.01, atol=0.03)


@each_case
@pytest.mark.parametrize("last", ["param", "grad", "state", "all"])
def test_any_mixture_of_memory_orders_is_updated_alike(case: Case, last: str, kernels: str) -> None:
    fused, single = Model(case), Model(case)
    grads = fused.gradients(0)
    turned = {"param": [fused.params], "grad": [grads], "state": fused.states[: case.states]}
    turned["all"] = [tensors for lists in list(turned.values()) for tensors in lists]
    for tensors in turned[last]:
        tensors[0] = tensors[0].contiguous(memory_format=torch.channels_last)
    fused.step(grads)
    single.step_one_by_one(single.gradients(0))
    assert_close(fused, single)


@each_case
def test_the_tensors_stay_where_they_are_and_gradients_are_only_read(case: Case, kernels: str) -> None:
    model = Model(case)
    flat = torch.cat([g.flatten() for g in model.gradients(0)])
    slices = flat.split([p.numel() for p in model.params])
    grads = [part.view(p.shape) for part, p in zip(slices, model.params, strict=True)]
    before, places = flat.clone(), [t.data_ptr() for t in model.tensors()]
    model.step(grads)
    assert torch.equal(flat, before)
    assert [t.data_ptr() for t in model.tensors()] == places


@each_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_with_masters_are_what_these_round_to(
    case: Case, dtype: torch.dtype, kernels: str
) -> None:
    fused, single = Model(case, dtype=dtype).with_masters(), Model(case, dtype=dtype).with_masters()
    first = [m.clone() for m in fused.masters]
    for seed in range(2):
        fused.step(fused.gradients(seed))
        single.step_one_by_one(single.gradients(seed))
    assert_close(fused, single)
    for param, master, old in zip(fused.params, fused.masters, first, strict=True):
        assert torch.equal(param, master.to(dtype))
        assert not old.numel() or not torch.equal(old, master)


@each_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_gradient_updates_a_float32_parameter_as_its_widened_value_does(
    case: Case, dtype: torch.dtype, kernels: str
) -> None:
    shapes = [(64, 48), (16,), (20000, 4)]
    narrow, wide, single = Model(case, shapes), Model(case, shapes), Model(case, shapes)
    for seed in range(2):
        grads = [g.to(dtype) for g in narrow.gradients(seed)]
        narrow.step(grads)
        wide.step([g.float() for g in grads])
        single.step_one_by_one(grads)
    for a, b, c in zip(narrow.tensors(), wide.tensors(), single.tensors(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@each_case
def test_a_gradient_of_another_shape_is_refused(case: Case, kernels: str) -> None:
    model = Model(case)
    grads = model.gradients(0)
    grads[3] = torch.randn(200, 40)
    with pytest.raises(ValueError, match=r"shape \[40, 200\] has a gradient or state of shape \[200, 40\]"):
        model.step(grads)


@each_case
def test_nan_and_infinity_reach_the_parameter(case: Case, kernels: str) -> None:
    model = Model(case, [(40,)])
    grads = [torch.zeros(40)]
    grads[0][3], grads[0][5] = torch.nan, torch.inf
    model.step(grads)
    assert model.params[0].isnan()[3]
    assert not model.params[0].isfinite()[5]
    assert model.params[0].isfinite().sum() == 38


@each_case
def test_the_op_returns_nothing_fake_or_real_and_takes_no_tensor_at_all(case: Case) -> None:
    op, model = FUSED[case.op], Model(case, [(4, 4)])
    decays: list[list[float]] = [[0.1]] if case.decays else []
    masters: list[Tensor] = []
    numbers = [1.0], *case.common, *decays, masters
    assert op(model.params, model.gradients(0), *model.states, model.rate, *numbers) is None
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [
            [mode.from_tensor(t) for t in ts] for ts in (model.params, model.gradients(0), *model.states)
        ]
        assert op(*fakes, mode.from_tensor(model.rate), *numbers) is None
    nothing: list[list[Tensor]] = [[] for _ in range(2 + len(model.states))]
    OpSpec.known[op].kernel(*nothing, model.rate, [], *case.common, *([[]] * (len(decays) + 1)))


@each_case
def test_each_argument_of_an_update_has_the_same_position_in_the_fused_one(case: Case) -> None:
    own, fused = case.op._schema.arguments, FUSED[case.op]._schema.arguments
    assert len(own) == len(fused)
    for one, many in zip(own, fused, strict=True):
        is_list = "List" in str(many.type)
        assert is_list or (one.name, str(one.type)) == (many.name, str(many.type))
        written = [a.alias_info is not None and a.alias_info.is_write for a in (one, many)]
        assert written[0] == written[1]
