"""Learning-rate schedules with the names, arguments and formulas of `paddle.optimizer.lr`.

A schedule counts epochs (or batches: whatever the user's `step()` counts) from 0:

    lr = StepDecay(0.1, step_size=30)      # epoch 0
    exe.run(main, ...)                     # the Executor calls lr() before each run
    lr.step()                              # epoch 1

All but `ReduceOnPlateau` are closed forms of the epoch, so `step(epoch)` jumps anywhere, and a state
of two numbers is enough to resume bit for bit. In the docstrings t is the epoch and lr0 the first rate.
"""

# SPDX-License-Identifier: Apache-2.0

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from argosy.engine.errors import ConfigError
from argosy.engine.log import logger
from argosy.framework.checks import function, integer, listed, number, one_of, plain, rising

__all__ = [
    "CosineAnnealingDecay",
    "CyclicLR",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LRScheduler",
    "LambdaDecay",
    "LinearWarmup",
    "MultiStepDecay",
    "MultiplicativeDecay",
    "NaturalExpDecay",
    "NoamDecay",
    "OneCycleLR",
    "PiecewiseDecay",
    "PolynomialDecay",
    "ReduceOnPlateau",
    "StepDecay",
]


class LRScheduler:
    """The base class: counts epochs, stores the current rate, saves and restores both.

    A subclass sets its own fields, then calls `super().__init__`, and defines `get_lr()`: the rate
    of `self.last_epoch`. If that needs more fields than the two saved ones, it redefines `state_keys()`.
    """

    steps_by_itself: bool = False
    """True: the Executor calls `step()` after each run, as 1.x schedules need (see fluid_decay.py)."""

    keys: list[str]

    def __init__(self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False) -> None:
        name = type(self).__name__
        self.base_lr = number(f"{name} learning_rate", learning_rate, least=0)
        self.last_lr = self.base_lr
        self.last_epoch = integer(f"{name} last_epoch", last_epoch, least=-1)
        self.verbose = verbose
        self._start()

    def _start(self) -> None:
        self.step()

    def __call__(self) -> float:
        """The current learning rate."""
        return self.last_lr

    def step(self, epoch: int | None = None) -> None:
        """Advance to the next epoch, or to the given one, and compute its rate; if that raises, nothing changes."""
        name, before = type(self).__name__, self.last_epoch
        self.last_epoch = before + 1 if epoch is None else integer(f"{name} epoch", epoch, least=0)
        try:
            self.last_lr = number(f"{name} rate of epoch {self.last_epoch}", self.get_lr())
        except Exception:
            self.last_epoch = before
            raise
        self._print_rate()

    def _print_rate(self) -> None:
        if self.verbose:  # Paddle documents that this is printed to stdout, so it is not logged
            print(f"Epoch {self.last_epoch}: {type(self).__name__} set learning rate to {self.last_lr}.")

    def get_lr(self) -> float:
        """The rate of `self.last_epoch`; every subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr(); define it to return a float")

    def state_keys(self) -> None:
        """Set `self.keys`, the names of the fields that are saved."""
        self.keys = ["last_epoch", "last_lr"]

    def state_dict(self) -> dict[str, Any]:
        """The saved fields, as plain numbers that survive JSON."""
        self.state_keys()
        return {key: plain(getattr(self, key)) for key in self.keys}

    def set_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume from `state_dict()`; the constructor's arguments are not part of it."""
        self.state_keys()
        name = type(self).__name__
        if missing := [key for key in self.keys if key not in state_dict]:
            raise ConfigError(
                f"the state has no {', '.join(missing)} (found: {', '.join(state_dict) or 'nothing'}); "
                f"load one that was saved by {name}"
            )
        fields = {key: plain(state_dict[key]) for key in self.keys}
        for key, check in (("last_epoch", integer), ("last_lr", number)):
            if key in fields:
                fields[key] = check(f"{key} in the state of {name}", fields[key])
        if extra := [key for key in state_dict if key not in self.keys]:
            logger.warning("%s ignores %s of the loaded state", name, ", ".join(extra))
        for key, value in fields.items():
            setattr(self, key, value)

    def set_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The older name of `set_state_dict`."""
        self.set_state_dict(state_dict)


class NoamDecay(LRScheduler):
    """lr0 · d_model^-0.5 · min(t^-0.5, t · warmup_steps^-1.5), and 0 at t = 0."""

    def __init__(
        self,
        d_model: float,
        warmup_steps: float,
        learning_rate: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.d_model = number("NoamDecay d_model", d_model, above=0)
        self.warmup_steps = number("NoamDecay warmup_steps", warmup_steps, above=0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        t = self.last_epoch
        after = math.pow(t, -0.5) if t else 1.0
        before = math.pow(self.warmup_steps, -1.5) * t
        return self.base_lr * math.pow(self.d_model, -0.5) * min(after, before)


class PiecewiseDecay(LRScheduler):
    """values[i], where i is the number of boundaries that t has reached."""

    def __init__(
        self, boundaries: list[int], values: list[float], last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.boundaries = rising("PiecewiseDecay boundaries", boundaries, strictly=False)
        self.values = listed("PiecewiseDecay values", values, least=0)
        if len(self.values) != len(self.boundaries) + 1:
            raise ConfigError(
                f"PiecewiseDecay has {len(self.values)} values for {len(self.boundaries)} boundaries; "
                f"use {len(self.boundaries) + 1} values, one for each segment"
            )
        super().__init__(last_epoch=last_epoch, verbose=verbose)

    def get_lr(self) -> float:
        return self.values[bisect_right(self.boundaries, self.last_epoch)]


class NaturalExpDecay(LRScheduler):
    """lr0 · e^(-gamma · t)"""

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.gamma = number("NaturalExpDecay gamma", gamma, least=0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        return self.base_lr * math.exp(-self.gamma * self.last_epoch)


class InverseTimeDecay(LRScheduler):
    """lr0 / (1 + gamma · t)"""

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.gamma = number("InverseTimeDecay gamma", gamma, least=0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        return self.base_lr / (1 + self.gamma * self.last_epoch)


class PolynomialDecay(LRScheduler):
    """(lr0 - end_lr) · (1 - t/n)^power + end_lr

    n is decay_steps and t stops there; with `cycle`, t continues and n is its next multiple of decay_steps.
    """

    def __init__(
        self,
        learning_rate: float,
        decay_steps: float,
        end_lr: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.decay_steps = number("PolynomialDecay decay_steps", decay_steps, above=0)
        self.end_lr = number("PolynomialDecay end_lr", end_lr, least=0)
        self.power = number("PolynomialDecay power", power, above=0)
        self.cycle = cycle
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        t, n = float(self.last_epoch), self.decay_steps
        if self.cycle:
            n *= max(1, math.ceil(t / n))
        return (self.base_lr - self.end_lr) * math.pow(1 - min(t, n) / n, self.power) + self.end_lr


class LinearWarmup(LRScheduler):
    """(end_lr - start_lr) · t/warmup_steps + start_lr, and from t = warmup_steps on `learning_rate`.

    That is a number, or a schedule whose own epochs count from the end of the warm-up.
    """

    def __init__(
        self,
        learning_rate: float | LRScheduler,
        warmup_steps: int,
        start_lr: float,
        end_lr: float,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if isinstance(learning_rate, ReduceOnPlateau):
            raise ConfigError(
                "LinearWarmup learning_rate is a ReduceOnPlateau, which steps by a metric and not by "
                "epochs; use a number or another schedule"
            )
        self.learning_rate = learning_rate
        if not isinstance(learning_rate, LRScheduler):
            self.learning_rate = number("LinearWarmup learning_rate", learning_rate, least=0)
        self.warmup_steps = integer("LinearWarmup warmup_steps", warmup_steps, least=1)
        self.start_lr = number("LinearWarmup start_lr", start_lr, least=0)
        self.end_lr = number("LinearWarmup end_lr", end_lr, above=self.start_lr)
        super().__init__(start_lr, last_epoch, verbose)

    def get_lr(self) -> float:
        if self.last_epoch < self.warmup_steps:
            return (self.end_lr - self.start_lr) * self.last_epoch / self.warmup_steps + self.start_lr
        if not isinstance(self.learning_rate, LRScheduler):
            return self.learning_rate
        self.learning_rate.step(self.last_epoch - self.warmup_steps)
        return self.learning_rate()

    def state_dict(self) -> dict[str, Any]:
        """The base's fields and, under Paddle's name, the state of the schedule after the warm-up."""
        state = super().state_dict()
        if isinstance(self.learning_rate, LRScheduler):
            state["LinearWarmup_LR"] = self.learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume from `state_dict()`, including the schedule after the warm-up."""
        state = dict(state_dict)
        if isinstance(self.learning_rate, LRScheduler):
            if not isinstance(following := state.pop("LinearWarmup_LR", None), Mapping):
                raise ConfigError(
                    f"LinearWarmup_LR in the state of LinearWarmup is {following!r}; use a state that was "
                    f"saved with a {type(self.learning_rate).__name__} after the warm-up"
                )
            self.learning_rate.set_state_dict(following)
        super().set_state_dict(state)


class ExponentialDecay(LRScheduler):
    """lr0 · gamma^t"""

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.gamma = number("ExponentialDecay gamma", gamma, above=0, below=1)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        return self.base_lr * math.pow(self.gamma, self.last_epoch)


class MultiStepDecay(LRScheduler):
    """lr0 · gamma^i, where i is the number of milestones that t has reached."""

    def __init__(
        self,
        learning_rate: float,
        milestones: list[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.milestones = rising("MultiStepDecay milestones", milestones)
        self.gamma = number("MultiStepDecay gamma", gamma, above=0, below=1)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        return self.base_lr * math.pow(self.gamma, bisect_right(self.milestones, self.last_epoch))


class StepDecay(LRScheduler):
    """lr0 · gamma^floor(t / step_size)"""

    def __init__(
        self,
        learning_rate: float,
        step_size: int,
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.step_size = integer("StepDecay step_size", step_size, least=1)
        self.gamma = number("StepDecay gamma", gamma, above=0, below=1)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        return self.base_lr * math.pow(self.gamma, self.last_epoch // self.step_size)


class LambdaDecay(LRScheduler):
    """lr0 · lr_lambda(t)"""

    def __init__(
        self,
        learning_rate: float,
        lr_lambda: Callable[[int], float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.lr_lambda = function("LambdaDecay lr_lambda", lr_lambda)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        factor = self.lr_lambda(self.last_epoch)
        return self.base_lr * number(f"LambdaDecay lr_lambda({self.last_epoch})", factor)


class MultiplicativeDecay(LRScheduler):
    """lr0 · lr_lambda(1) · lr_lambda(2) · … · lr_lambda(t)"""

    def __init__(
        self,
        learning_rate: float,
        lr_lambda: Callable[[int], float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.lr_lambda = function("MultiplicativeDecay lr_lambda", lr_lambda)
        self._reached = (math.inf, 0.0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        # Continue from the cached product, so that a step costs one call and not t calls.
        since, rate = self._reached if self._reached[0] <= self.last_epoch else (0, self.base_lr)
        for epoch in range(int(since) + 1, self.last_epoch + 1):
            rate *= number(f"MultiplicativeDecay lr_lambda({epoch})", self.lr_lambda(epoch))
        self._reached = (self.last_epoch, rate)
        return rate


class ReduceOnPlateau(LRScheduler):
    """Multiply the rate by `factor` when a metric has not improved for more than `patience` steps.

    Better means lower (mode "min") or higher ("max") than the best so far by more than `threshold`:
    that fraction of the best ("rel") or that amount ("abs"). After a reduction, `cooldown` steps are ignored;
    a reduction of at most `epsilon` is skipped. A metric that is not finite is never better.
    """

    def __init__(
        self,
        learning_rate: float,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0,
        epsilon: float = 1e-8,
        verbose: bool = False,
    ) -> None:
        self.mode = one_of("ReduceOnPlateau mode", mode, "min", "max")
        self.factor = number("ReduceOnPlateau factor", factor, above=0, below=1)
        self.patience = integer("ReduceOnPlateau patience", patience, least=0)
        self.threshold = number("ReduceOnPlateau threshold", threshold, least=0)
        self.threshold_mode = one_of("ReduceOnPlateau threshold_mode", threshold_mode, "rel", "abs")
        self.cooldown = integer("ReduceOnPlateau cooldown", cooldown, least=0)
        self.min_lr = number("ReduceOnPlateau min_lr", min_lr, least=0)
        self.epsilon = number("ReduceOnPlateau epsilon", epsilon, least=0)
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self.best: float | None = None
        super().__init__(learning_rate, 0, verbose)

    def _start(self) -> None:
        """Do not step: there is no metric yet, and epoch 0 has the initial rate."""

    def state_keys(self) -> None:
        """The base's two fields, the best metric and the two counters."""
        self.keys = ["cooldown_counter", "best", "num_bad_epochs", "last_epoch", "last_lr"]

    def get_lr(self) -> float:
        return self.last_lr

    # Paddle puts the metric first, where the base has the epoch.
    def step(self, metrics: object, epoch: int | None = None) -> None:  # type: ignore[override]
        """Advance by an epoch. `metrics` is a number, or an array or tensor of one element, as `exe.run` returns it."""
        value = number("ReduceOnPlateau metrics", metrics, finite=False)
        following = self.last_epoch + 1
        self.last_epoch = following if epoch is None else integer("ReduceOnPlateau epoch", epoch, least=0)
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            return
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            lower = max(self.last_lr * self.factor, self.min_lr)
            if self.last_lr - lower > self.epsilon:
                self.last_lr = lower
                self._print_rate()

    def _is_better(self, value: float) -> bool:
        if self.best is None or not math.isfinite(value):
            return math.isfinite(value)
        margin = self.threshold * (self.best if self.threshold_mode == "rel" else 1.0)
        return value < self.best - margin if self.mode == "min" else value > self.best + margin


class CosineAnnealingDecay(LRScheduler):
    """eta_min + (lr0 - eta_min) · (1 + cos(π · t/T_max)) / 2

    Paddle computes each rate from the previous one; this closed form differs by rounding only, and is also
    right if `last_epoch` starts in the middle.
    """

    def __init__(
        self,
        learning_rate: float,
        T_max: int,
        eta_min: float = 0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.T_max = integer("CosineAnnealingDecay T_max", T_max, least=1)
        self.eta_min = number("CosineAnnealingDecay eta_min", eta_min, least=0)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        wave = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return self.eta_min + (self.base_lr - self.eta_min) * wave / 2


class OneCycleLR(LRScheduler):
    """Up from max/divide_factor to max in phase_pct of the steps, then down to end_learning_rate.

    With three_phase it decreases to the initial rate in as many steps as it increased, and to
    end_learning_rate in the rest. "cos" makes each phase half a cosine wave, "linear" a line.
    """

    def __init__(
        self,
        max_learning_rate: float,
        total_steps: int,
        divide_factor: float = 25.0,
        end_learning_rate: float = 0.0001,
        phase_pct: float = 0.3,
        anneal_strategy: str = "cos",
        three_phase: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        top = number("OneCycleLR max_learning_rate", max_learning_rate, least=0)
        first = top / number("OneCycleLR divide_factor", divide_factor, above=0)
        end = number("OneCycleLR end_learning_rate", end_learning_rate, least=0)
        self.total_steps = integer("OneCycleLR total_steps", total_steps, least=2)
        # A phase of no steps would divide by zero.
        most = 0.5 if three_phase else 1
        fraction = number("OneCycleLR phase_pct", phase_pct, above=1 / self.total_steps, below=most)
        self.anneal_strategy = one_of("OneCycleLR anneal_strategy", anneal_strategy, "cos", "linear")
        up, last = fraction * self.total_steps - 1, float(self.total_steps - 1)
        self._corners = [(0.0, first), (up, top), (last, end)]
        if three_phase:
            self._corners.insert(2, (2 * fraction * self.total_steps - 2, first))
        super().__init__(first, last_epoch, verbose)

    def get_lr(self) -> float:
        if self.last_epoch > self.total_steps:
            raise ConfigError(
                f"OneCycleLR is at step {self.last_epoch} of total_steps={self.total_steps}; "
                "call step() no more often than that, or raise total_steps"
            )
        ends = [t for t, _ in self._corners[1:]]
        phase = min(bisect_left(ends, self.last_epoch), len(ends) - 1)
        (t0, from_lr), (t1, to_lr) = self._corners[phase : phase + 2]
        fraction = (self.last_epoch - t0) / (t1 - t0)
        if self.anneal_strategy == "linear":
            return (to_lr - from_lr) * fraction + from_lr
        return to_lr + (from_lr - to_lr) / 2.0 * (math.cos(math.pi * fraction) + 1)


class CyclicLR(LRScheduler):
    """lr0 + (max - lr0) · height · scale: up in step_size_up steps, down in step_size_down, periodically.

    scale is 1 in mode "triangular", 0.5^(cycle - 1) in "triangular2", exp_gamma^t in "exp_range", or
    scale_fn of the cycle (counted from 1) or of t, as scale_mode "cycle" or "iterations" says.
    """

    def __init__(
        self,
        base_learning_rate: float,
        max_learning_rate: float,
        step_size_up: int,
        step_size_down: int | None = None,
        mode: str = "triangular",
        exp_gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        low = number("CyclicLR base_learning_rate", base_learning_rate, least=0)
        self.amplitude = number("CyclicLR max_learning_rate", max_learning_rate, least=low) - low
        up = integer("CyclicLR step_size_up", step_size_up, least=1)
        down = up if step_size_down is None else integer("CyclicLR step_size_down", step_size_down, least=1)
        self.cycle_size = up + down
        self.step_up_pct = up / self.cycle_size
        self.gamma = number("CyclicLR exp_gamma", exp_gamma, above=0)
        self.scale_mode = one_of("CyclicLR scale_mode", scale_mode, "cycle", "iterations")
        self.mode = mode
        if scale_fn is None:
            self.mode = one_of("CyclicLR mode", mode, "triangular", "triangular2", "exp_range")
            self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"
        self.scale_fn = self._scale if scale_fn is None else function("CyclicLR scale_fn", scale_fn)
        super().__init__(base_learning_rate, last_epoch, verbose)

    def _scale(self, x: float) -> float:
        if self.mode == "triangular":
            return 1.0
        return math.pow(2.0, 1 - x) if self.mode == "triangular2" else math.pow(self.gamma, x)

    def get_lr(self) -> float:
        cycle = 1 + self.last_epoch // self.cycle_size
        fraction = 1.0 + self.last_epoch / self.cycle_size - cycle
        rises = fraction <= self.step_up_pct
        height = fraction / self.step_up_pct if rises else (1 - fraction) / (1 - self.step_up_pct)
        x = cycle if self.scale_mode == "cycle" else self.last_epoch
        return self.base_lr + self.amplitude * height * number(f"CyclicLR scale_fn({x})", self.scale_fn(x))
