"""The learning-rate schedules of Paddle 1.x, such as `fluid.layers.exponential_decay`.

In 1.x a schedule is a part of the program and advances by one with every run, so these return
schedulers with `steps_by_itself` set: the Executor steps them after each run, not the user.
In the docstrings n is the number of runs so far.
"""

# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable

from argosy.engine.errors import ConfigError
from argosy.framework.checks import number
from argosy.optimizer.lr import LambdaDecay, LRScheduler, NoamDecay, PiecewiseDecay, PolynomialDecay

__all__ = [
    "cosine_decay",
    "exponential_decay",
    "inverse_time_decay",
    "linear_lr_warmup",
    "natural_exp_decay",
    "noam_decay",
    "piecewise_decay",
    "polynomial_decay",
]


def exponential_decay(
    learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> LRScheduler:
    """learning_rate · decay_rate^(n / decay_steps), the exponent rounded down if staircase."""
    rate = number("exponential_decay decay_rate", decay_rate, above=0)
    periods = _periods("exponential_decay", decay_steps, staircase)
    return _scaled("exponential_decay", learning_rate, lambda n: math.pow(rate, periods(n)))


def natural_exp_decay(
    learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> LRScheduler:
    """learning_rate · e^(-decay_rate · n / decay_steps), the quotient rounded down if staircase."""
    rate = number("natural_exp_decay decay_rate", decay_rate, least=0)
    periods = _periods("natural_exp_decay", decay_steps, staircase)
    return _scaled("natural_exp_decay", learning_rate, lambda n: math.exp(-rate * periods(n)))


def inverse_time_decay(
    learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> LRScheduler:
    """learning_rate / (1 + decay_rate · n / decay_steps), the quotient rounded down if staircase."""
    rate = number("inverse_time_decay decay_rate", decay_rate, least=0)
    periods = _periods("inverse_time_decay", decay_steps, staircase)
    return _scaled("inverse_time_decay", learning_rate, lambda n: 1 / (1 + rate * periods(n)))


def cosine_decay(learning_rate: float, step_each_epoch: float, epochs: float) -> LRScheduler:
    """learning_rate · (cos(π · epoch / epochs) + 1) / 2 with epoch = floor(n / step_each_epoch)."""
    total = number("cosine_decay epochs", epochs, above=0)
    steps = number("cosine_decay step_each_epoch", step_each_epoch, above=0)
    return _scaled(
        "cosine_decay", learning_rate, lambda n: 0.5 * (math.cos(math.floor(n / steps) * math.pi / total) + 1)
    )


def polynomial_decay(
    learning_rate: float,
    decay_steps: float,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> LRScheduler:
    """The formula of `PolynomialDecay`."""
    return _stepped_by_executor(PolynomialDecay(learning_rate, decay_steps, end_learning_rate, power, cycle))


def piecewise_decay(boundaries: list[int], values: list[float]) -> LRScheduler:
    """The formula of `PiecewiseDecay`."""
    return _stepped_by_executor(PiecewiseDecay(boundaries, values))


def noam_decay(d_model: float, warmup_steps: float, learning_rate: float = 1.0) -> LRScheduler:
    """The formula of `NoamDecay`, but 1.x counts this one from 1, so the first rate is not 0."""
    return _stepped_by_executor(NoamDecay(d_model, warmup_steps, learning_rate, last_epoch=0))


def linear_lr_warmup(
    learning_rate: float | LRScheduler, warmup_steps: float, start_lr: float, end_lr: float
) -> LRScheduler:
    """start_lr + (end_lr - start_lr) · n / warmup_steps, and from n = warmup_steps on `learning_rate`."""
    return _LinearLRWarmup(learning_rate, warmup_steps, start_lr, end_lr)


class _LinearLRWarmup(LRScheduler):
    """1.x has one step counter per program, which the schedule after the warm-up shares.

    n               0 1 2 3 4 5 6     warmup_steps = 4
    LinearWarmup    w w w w 0 1 2     2.0: the next schedule starts at 0
    this            w w w w 4 5 6     1.x: the next schedule continues at n
    """

    def __init__(
        self, learning_rate: float | LRScheduler, warmup_steps: float, start_lr: float, end_lr: float
    ) -> None:
        self.steps_by_itself = True
        self.warmup_steps = number("linear_lr_warmup warmup_steps", warmup_steps, above=0)
        self.start_lr = number("linear_lr_warmup start_lr", start_lr, least=0)
        self.end_lr = number("linear_lr_warmup end_lr", end_lr, least=0)
        self.learning_rate = learning_rate
        first = 0
        if not isinstance(learning_rate, LRScheduler):
            self.learning_rate = number("linear_lr_warmup learning_rate", learning_rate, least=0)
        elif learning_rate.steps_by_itself:
            first = learning_rate.last_epoch
        else:
            raise ConfigError(
                f"linear_lr_warmup learning_rate is a {type(learning_rate).__name__}, which the user steps; "
                "use a number or a 1.x schedule here, or LinearWarmup of paddle.optimizer.lr"
            )
        super().__init__(start_lr, last_epoch=first - 1)

    def get_lr(self) -> float:
        if self.last_epoch < self.warmup_steps:
            return self.start_lr + (self.end_lr - self.start_lr) * (self.last_epoch / self.warmup_steps)
        if not isinstance(self.learning_rate, LRScheduler):
            return self.learning_rate
        self.learning_rate.step(self.last_epoch)
        return self.learning_rate()


def _periods(what: str, decay_steps: float, staircase: bool) -> Callable[[int], float]:
    """The function from n to n / decay_steps, rounded down if staircase."""
    steps = number(f"{what} decay_steps", decay_steps, above=0)
    return lambda n: math.floor(n / steps) if staircase else n / steps


def _scaled(what: str, learning_rate: float, factor: Callable[[int], float]) -> LRScheduler:
    return _stepped_by_executor(LambdaDecay(number(f"{what} learning_rate", learning_rate, least=0), factor))


def _stepped_by_executor(scheduler: LRScheduler) -> LRScheduler:
    scheduler.steps_by_itself = True
    return scheduler
