"""Torch modules called on Variables: outputs, gradients and buffers of a run, and of the clone for testing."""

# SPDX-License-Identifier: Apache-2.0
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map_only

from argosy import static
from argosy.engine.ir.torch_module import values_for
from tests.torch_db.compare import (
    SEED,
    Copies,
    Feeds,
    Results,
    differentiable,
    eager,
    first_difference,
    fresh,
    run,
    weights,
)
from tests.torch_db.outcome import EAGER_FAILS, EQUAL, PROPERTIES_ONLY, SKIPPED, WRONG, Outcome, classify
from tests.torch_db.random_modules import broken_property

MODULES = {info.name: info for info in module_db}


@dataclass(frozen=True)
class ModuleSample:
    """A module and what it is called with."""

    name: str
    make: Callable[[], nn.Module]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    constants: Mapping[str, Any] | None = None
    """Keyword arguments that stay tensors: constants of the program."""
    has_batch: bool = True
    """False: dimension 0 of the inputs is no batch, but channels or features."""

    def call(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return module(*args, **kwargs, **(self.constants or {}))

    @property
    def tree(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What is fed."""
        return self.args, dict(self.kwargs or {})

    def module(self, training: bool) -> nn.Module:
        """A module with the same weights in every call."""
        torch.manual_seed(SEED)
        return self.make().train(training)


def samples(name: str, training: bool, limit: int) -> list[ModuleSample]:
    """The first samples of a module; the same ones in every run."""
    info = MODULES[name]
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
        )
    return [_sample(name, info.module_cls, given) for given in list(inputs)[:limit]]


def _sample(name: str, module_class: Callable[..., nn.Module], given: Any) -> ModuleSample:
    constructor, forward = given.constructor_input, given.forward_input
    # The random samples of a FractionalMaxPool are float64, which it rejects besides float32 images.
    args, kwargs = tree_map_only(Tensor, lambda t: t.float(), (constructor.args, constructor.kwargs))
    return ModuleSample(
        name,
        lambda: module_class(*args, **kwargs),
        tuple(forward.args),
        dict(forward.kwargs),
        has_batch="no_batch_dim" not in given.desc,
    )


def check(sample: ModuleSample, training: bool, unknown: bool) -> Iterator[tuple[str, Outcome]]:
    """(train, clone or eval; outcome) of one sample."""
    mode = "train" if training else "eval"
    with fresh():
        module, reference = sample.module(training), sample.module(training)
        try:
            wanted = _eager(sample, reference)
        except Exception as e:  # whatever eager mode raises, the case says nothing about Argosy
            yield mode, Outcome(EAGER_FAILS, str(e).split("\n", 1)[0])
            return
        feeds = Feeds(unknown)
        try:
            torch.manual_seed(SEED)  # a lazy module draws its weights now
            args, kwargs = feeds.of(sample.tree)
            out = sample.call(module, args, kwargs)
            results = _run(module, out, feeds, wanted)
        except Exception as e:
            yield mode, classify(e, sample.name)
            if training:
                yield "clone", Outcome(SKIPPED, "train did not run")
            return
        yield mode, _judged(sample, reference, results, wanted, feeds)
        if training:
            yield "clone", _cloned(sample, module, out, feeds)


def _eager(sample: ModuleSample, module: nn.Module) -> Results:
    copies = Copies()
    args, kwargs = copies.of(sample.tree)
    return eager(
        lambda: sample.call(module, args, kwargs),
        lambda: [*copies.leaves, *(p for p in module.parameters() if p.requires_grad)],
    )


@dataclass(frozen=True)
class _Found:
    """What a run of the program gives."""

    outputs: list[Any]
    gradients: list[Any]
    state: dict[str, Tensor]
    """Parameters and buffers after the run."""


def _run(module: nn.Module, out: Any, feeds: Feeds, wanted: Results) -> _Found:
    variables = values_for(static.default_main_program(), module)
    gradients: list[Any] = []
    if wanted.gradients is not None:
        trained = [variables[key] for key, p in module.named_parameters() if p.requires_grad]
        inputs, targets = [*feeds.leaves, *trained], differentiable(out)
        seeds = [weights(target.detach()) for target in targets]
        gradients = static.gradients(targets, inputs, seeds) if targets else [None] * len(inputs)
    static.Executor().run(static.default_startup_program())
    values = run(out, feeds, gradients)
    count = len(tree_leaves(out))
    scope = static.global_scope()
    state = {key: scope.get(variable.name) for key, variable in variables.items()}
    return _Found(values[:count], values[count:], state)


def _judged(
    sample: ModuleSample, reference: nn.Module, actual: _Found, wanted: Results, feeds: Feeds
) -> Outcome:
    after = {**dict(reference.named_parameters()), **dict(reference.named_buffers())}
    difference = first_difference(actual.outputs, wanted.outputs, "output")
    if difference and is_random(sample, reference.training):
        values = list(feeds.values.values())
        broken = broken_property(reference, values, actual.outputs, actual.gradients, wanted.outputs)
        return Outcome(WRONG, broken) if broken else Outcome(EQUAL, PROPERTIES_ONLY)
    difference = difference or first_difference(actual.gradients, wanted.gradients or [], "gradient")
    if not difference and actual.state.keys() != after.keys():
        difference = f"the module has {sorted(actual.state)} where eager has {sorted(after)}"
    for key, value in actual.state.items():
        difference = difference or first_difference([value], [after[key]], f"value of {key} after the run")
    return Outcome(WRONG, difference) if difference else Outcome(EQUAL)


def _cloned(sample: ModuleSample, module: nn.Module, out: Any, feeds: Feeds) -> Outcome:
    """After the training run: the clone for testing against the module with the trained values in eval mode."""
    try:
        test = static.default_main_program().clone(for_test=True)
        static.write_back(module)
        reference = deepcopy(module).eval()
    except Exception as e:
        return classify(e, sample.name)
    try:
        wanted = _eager(sample, reference)
    except Exception as e:
        return Outcome(EAGER_FAILS, str(e).split("\n", 1)[0])
    try:
        actual = run(out, feeds, program=test)
    except Exception as e:
        return classify(e, sample.name)
    difference = first_difference(actual, wanted.outputs, "output")
    return Outcome(WRONG, difference) if difference else Outcome(EQUAL)


def is_random(sample: ModuleSample, training: bool) -> bool:
    """True if eager mode gives other values from another seed."""
    runs = []
    for seed in (1, 2):
        module = sample.module(training)
        args, kwargs = Copies().of(sample.tree)
        torch.manual_seed(seed)
        runs.append(tree_leaves(sample.call(module, args, kwargs)))
    return bool(first_difference(runs[0], runs[1], "output"))
