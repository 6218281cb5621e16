"""Random small nets against eager mode: steps of training, evaluation, and the clone for testing.

    eager      net(seed) ─▶ SGD on batches of 7, 7, 2, 2, 1, 1 ─▶ net.eval() on 7, 2, 1
    program    net(seed) on a batch of None, built once:  the same batches      ─▶ clone(for_test=True) on 7, 2, 1

Nets with an even seed have dropouts with p=0: every value is compared. Those with an odd seed draw other numbers than
eager mode does; of their training, shapes and finiteness are compared, and the trained values are written back into the
module before it is compared with the clone.
"""

# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import argosy as paddle
from argosy import static
from argosy.engine.errors import FeedError
from argosy.engine.ir.torch_module import values_for
from tests.torch_db.compare import first_difference, fresh, snapshot
from tests.torch_db.net_pieces import Choices, Shape, dropout, is_small, piece
from tests.torch_db.outcome import (
    EAGER_FAILS,
    EQUAL,
    RAW,
    REJECTED,
    SHAPE_ONLY,
    SKIPPED,
    WRONG,
    Outcome,
    classify,
)

COUNT = 500
"""Nets of a whole run."""
BATCHES = (7, 2, 1)
STEPS = 2
"""Steps of training on each batch."""
RATE = 0.05
LOOSE = 5.0
"""Factor on the tolerances of float32 for the differences that up to 6 steps through up to 8 pieces add up to.

Measured over 160 nets that are equal: below 0.1 for all but one, where batch norm over two rows makes it 1.6.
"""
WORDS = 9
FITTED_BATCH = 13
"""Rows to try a piece with: no other size, so that a piece which confuses the two does not fit."""
_PIECES = " [net: "


class Net(nn.Module):
    """Pieces one after the other, some with a skip connection; an embedding before them if the input is words."""

    def __init__(self, choices: Choices) -> None:
        super().__init__()
        kind = choices.choice(("flat", "sequence", "sequence", "image", "image", "words", "words"))
        self.shape: Shape = {
            "flat": (8,),
            "sequence": (choices.choice((3, 4)), choices.choice((4, 6))),
            "image": (choices.choice((2, 4)), 4, 5),
            "words": (4,),
        }[kind]
        self.embedding = (
            nn.Embedding(WORDS, 6, padding_idx=choices.choice((None, 2))) if kind == "words" else None
        )
        self.pieces = nn.ModuleList()
        self.skips: dict[int, int] = {}
        """Place of a piece -> place of the earlier piece whose input is added to its result."""
        self.shapes: list[Shape] = [(*self.shape, 6) if kind == "words" else self.shape]
        """Sizes of the inputs of the pieces, and of the result of the last."""
        count = choices.randint(3, 8)
        dropped = choices.randrange(count) if choices.p else -1
        for place in range(count):
            self._append(choices, is_dropout=place == dropped)
        width = self.shapes[-1][-1]
        self.head = nn.Linear(width, 6 if self.embedding else 3)
        self.out = nn.Linear(6, WORDS) if self.embedding and choices.chance() else None
        if self.out is not None:
            self.out.weight = self.embedding.weight
        self.result = choices.choice(("tensor", "tensor", "tuple", "dict"))
        self.is_called_by_pieces = choices.chance(0.2)
        """The script calls every piece on Variables, instead of the net."""
        self.is_cloned_before = choices.chance()
        """Whether the clone for testing is made before `minimize`."""

    def _append(self, choices: Choices, is_dropout: bool) -> None:
        shape = self.shapes[-1]
        for _ in range(100):
            layer = fitting(choices, shape, dropout if is_dropout else None)
            if layer is not None:
                break
        else:
            raise AssertionError(f"no piece fits {shape}")
        module, after = layer
        place = len(self.pieces)
        self.pieces.append(module)
        self.shapes.append(after)
        equal = [earlier for earlier in range(place) if self.shapes[earlier] == after]
        if equal and choices.chance(0.3):
            self.skips[place] = choices.choice(equal)

    def forward(self, x: Tensor) -> Any:
        x = x if self.embedding is None else self.embedding(x)
        inputs = []
        for place, module in enumerate(self.pieces):
            inputs.append(x)
            x = module(x)
            if place in self.skips:
                x = x + inputs[self.skips[place]]
        out = self.head(x)
        if self.out is not None:
            out = self.out(torch.tanh(out))
        if self.result == "tuple":
            return out, x
        return {"out": out, "hidden": x.mean(0)} if self.result == "dict" else out

    def call(self, x: Any) -> Any:
        """The result, by a call of the net or of each of its modules."""
        return self.forward(x) if self.is_called_by_pieces else self(x)

    def rows(self, batch: int, number: int) -> Tensor:
        """An input; the same for the same arguments."""
        generator = torch.Generator().manual_seed(100 * batch + number)
        if self.embedding is not None:
            return torch.randint(0, WORDS, (batch, *self.shape), generator=generator)
        return torch.randn((batch, *self.shape), generator=generator)

    def __str__(self) -> str:
        return " > ".join(map(described, self.pieces))


def described(module: nn.Module) -> str:
    """`Residual(Sequential(Linear, ReLU))`."""
    kind = getattr(module, "kind", None) or getattr(module, "result", None)
    inner = [described(child) for child in module.children()]
    if type(module).__name__ == "Function":
        return module.function.__name__
    inside = ", ".join([*([kind] if isinstance(kind, str) else []), *inner])
    return f"{type(module).__name__}({inside})" if inside else type(module).__name__


def fitting(choices: Choices, shape: Shape, maker: Any) -> tuple[nn.Module, Shape] | None:
    """A random piece and the sizes of its result; None if that one does not fit the input."""
    x = torch.randn(FITTED_BATCH, *shape)
    try:
        module = maker(choices, shape) if maker else piece(choices, shape)
        with torch.no_grad():
            out = module.eval()(x)
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, KeyError):
        return None
    after = tuple(out.shape[1:])
    if out.shape[0] != FITTED_BATCH or not is_small(after) or not bool(out.isfinite().all()):
        return None
    return module.train(), after


def name_of(seed: int) -> str:
    """The name of a task."""
    return f"net {seed:04}"


def seed_of(name: str) -> int:
    return int(name.split()[1])


def net(seed: int) -> Net:
    """The net of this seed in training mode: the same pieces and the same values in every call."""
    choices = Choices(seed, 0.3 if seed % 2 else 0.0)
    torch.manual_seed(seed)
    net = Net(choices)
    with torch.no_grad():
        for name, value in (*net.named_parameters(), *net.named_buffers()):
            leaf = name.rsplit(".", 1)[-1]
            if leaf in ("running_var",) or (leaf == "weight" and value.ndim == 1):
                value.add_(0.2 * torch.rand_like(value))
            elif leaf in ("bias", "running_mean", "mean"):
                value.add_(0.2 * torch.randn_like(value))
    return net


# --- eager mode ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A run, and what eager mode has after it."""

    what: str
    x: Tensor
    outputs: list[Tensor]
    state: dict[str, Tensor]


def loss_of(outputs: Any) -> Any:
    """The sum of mean squares of all outputs, each less fixed irregular numbers; of Variables, or of tensors."""
    return sum((out - _targets(out.detach())).square().mean() for out in tree_leaves(outputs))


def _targets(out: Any) -> Any:
    ones = torch.ones_like(out)
    return torch.cos(torch.cumsum(ones, 0) * 2.3 + torch.cumsum(ones, -1) * 1.7)


def state_of(module: nn.Module) -> dict[str, Tensor]:
    named = (*module.named_parameters(), *module.named_buffers())
    return {key: snapshot(value) for key, value in named}


def restore(module: nn.Module, state: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for key, value in (*module.named_parameters(), *module.named_buffers()):
            value.copy_(state[key])


def trained(module: Net) -> list[Step]:
    """Trains the net; raises if eager mode rejects it, unless only for a batch of 1."""
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], RATE)
    steps = list[Step]()
    for batch in BATCHES:
        before = state_of(module)
        for number in range(STEPS):
            x = module.rows(batch, number)
            optimizer.zero_grad()
            try:
                outputs = module.call(x)
            except (ValueError, RuntimeError):  # statistics of one value, in batch norm
                if batch > 1:
                    raise
                restore(module, before)
                return steps
            loss_of(outputs).backward()
            optimizer.step()
            values = list(map(snapshot, tree_leaves(outputs)))
            steps.append(Step(f"batch {batch}, step {number}", x, values, state_of(module)))
    return steps


def evaluated(module: Net) -> list[Step]:
    """Calls the net in evaluation mode; raises if eager mode rejects it, unless only for a batch of 1."""
    module.eval()
    steps = list[Step]()
    for batch in BATCHES:
        x = module.rows(batch, STEPS)
        try:
            outputs = list(map(snapshot, tree_leaves(module.call(x))))
        except (ValueError, RuntimeError):
            if batch > 1:
                raise
            return steps
        steps.append(Step(f"batch {batch}", x, outputs, state_of(module)))
    return steps


def is_random(seed: int) -> bool:
    """True if eager mode gives other values from another generator state."""
    runs = []
    for other in (1, 2):
        module = net(seed)
        torch.manual_seed(other)
        runs.append(tree_leaves(module.call(module.rows(BATCHES[0], 0))))
    return bool(first_difference(runs[0], runs[1], "output"))


# --- the program --------------------------------------------------------------------------------------


def feed_of(module: Net) -> static.Variable:
    return static.data("x", [None, *module.shape], "float32" if module.embedding is None else "int64")


@dataclass(frozen=True)
class Run:
    """Runs the program of a net, or its clone."""

    executor: static.Executor
    module: Net
    out: Any
    program: static.Program | None = None
    """None: the default main program."""

    def __call__(self, x: Tensor) -> list[Tensor]:
        """The outputs of one run."""
        return self.executor.run(
            self.program, feed={"x": x}, fetch_list=tree_leaves(self.out), return_numpy=False
        )

    def state(self) -> dict[str, Tensor]:
        """The values in the scope, by the names of the module."""
        scope, variables = static.global_scope(), values_for(static.default_main_program(), self.module)
        return {key: scope.get(variable.name) for key, variable in variables.items()}


def check_training(seed: int) -> Iterator[tuple[str, Outcome]]:
    """Outcomes of train and clone."""
    with fresh():
        reference = net(seed)
        try:
            steps = trained(reference)
            random = bool(seed % 2) and is_random(seed)
        except Exception as e:  # a mistake of the generator
            yield "train", Outcome(EAGER_FAILS, _first_line(e))
            return
        module = net(seed)
        try:
            out = module.call(feed_of(module))
            loss = loss_of(out)
            test = static.default_main_program().clone(for_test=True) if module.is_cloned_before else None
            paddle.optimizer.SGD(RATE).minimize(loss)
            executor = static.Executor()
            executor.run(static.default_startup_program())
        except Exception as e:
            yield "train", _explained(classify(e, name_of(seed)), module)
            yield "clone", Outcome(SKIPPED, "train cannot be built")
            return
        run = Run(executor, module, out)
        outcome = _run_training(seed, run, steps, random)
        yield "train", outcome
        try:
            test = test or static.default_main_program().clone(for_test=True)
            if outcome != Outcome(EQUAL):  # the values of the program are not those of eager mode
                reference = static.write_back(module)
        except Exception as e:
            yield "clone", _explained(classify(e, name_of(seed)), module)
            return
        yield "clone", _run_evaluation(seed, replace(run, program=test), reference)


def check_evaluation(seed: int) -> Iterator[tuple[str, Outcome]]:
    """The outcome of a net that is called on Variables in evaluation mode."""
    with fresh():
        module = net(seed).eval()
        try:
            out = module.call(feed_of(module))
            executor = static.Executor()
            executor.run(static.default_startup_program())
        except Exception as e:
            yield "eval", _explained(classify(e, name_of(seed)), module)
            return
        yield "eval", _run_evaluation(seed, Run(executor, module, out), net(seed))


def _run_training(seed: int, run: Run, steps: list[Step], random: bool) -> Outcome:
    try:
        if random:
            difference = _is_constant(run, steps[0]) or _first_wrong(run, steps, _same_shapes)
        else:
            difference = _first_wrong(run, steps, _same_values)
    except Exception as e:
        return _failed_run(seed, run.module, e)
    return _judged(difference, run.module, SHAPE_ONLY if random else "")


def _run_evaluation(seed: int, run: Run, reference: Net) -> Outcome:
    try:
        steps = evaluated(reference)
    except Exception as e:
        return Outcome(EAGER_FAILS, _first_line(e))
    try:
        difference = _first_wrong(run, steps, _same_values)
    except Exception as e:
        return _failed_run(seed, run.module, e)
    return _judged(difference, run.module)


def _failed_run(seed: int, module: Net, error: Exception) -> Outcome:
    """A program that was built rejects feeds that do not fit; all else that eager mode computes must run."""
    outcome = classify(error, name_of(seed))
    if outcome.kind == REJECTED and not isinstance(error, FeedError):
        outcome = Outcome(RAW, f"{outcome.detail} [eager mode runs it]")
    return _explained(outcome, module)


Judge = Callable[[list[Tensor], list[Tensor], str], str]


def _first_wrong(run: Run, steps: list[Step], judge: Judge) -> str:
    """Runs the steps and says what differs first."""
    for step in steps:
        difference = judge(run(step.x), step.outputs, "output")
        state = run.state()
        if not difference and state.keys() != step.state.keys():
            difference = f"the net has {sorted(state)} where eager has {sorted(step.state)}"
        for key, value in state.items():
            difference = difference or judge([value], [step.state[key]], f"value of {key}")
        if difference:
            return f"{step.what}: {difference}"
    return ""


def _same_values(actual: list[Tensor], wanted: list[Tensor], what: str) -> str:
    return first_difference(actual, wanted, what, LOOSE)


def _same_shapes(actual: list[Tensor], wanted: list[Tensor], what: str) -> str:
    for have, want in zip(actual, wanted, strict=True):
        if (have.shape, have.dtype) != (want.shape, want.dtype):
            return f"{what}: {have.dtype}{list(have.shape)} where eager has {want.dtype}{list(want.shape)}"
        if bool(want.isfinite().all()) and not bool(have.isfinite().all()):
            return f"{what} is not finite"
    return ""


def _is_constant(run: Run, step: Step) -> str:
    """A sentence if two runs with the same values in the scope draw the same numbers."""
    before = {key: snapshot(value) for key, value in run.state().items()}
    runs = []
    for _ in range(2):
        runs.append(list(map(snapshot, run(step.x))))
        for key, value in run.state().items():
            value.detach().copy_(before[key])
    return "" if first_difference(runs[0], runs[1], "output") else "two runs draw the same random numbers"


def _judged(difference: str, module: Net, detail: str = "") -> Outcome:
    return _explained(Outcome(WRONG, difference), module) if difference else Outcome(EQUAL, detail)


def _explained(outcome: Outcome, module: Net) -> Outcome:
    return Outcome(outcome.kind, f"{outcome.detail}{_PIECES}{module}]")


def without_pieces(detail: str) -> str:
    """The detail of an outcome without the list of the net's pieces."""
    return detail.partition(_PIECES)[0]


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
