"""FleetUtil of 1.x, for the fleet of `distribute_transpiler`: output on worker 0, metrics over all workers."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any, NoReturn

from argosy.distributed.fleet.api import fleet
from argosy.distributed.fleet.metrics import metric
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.engine.log import logger
from argosy.engine.runtime.scope import Scope, global_scope
from argosy.framework.missing import missing

__all__ = ["FleetUtil"]


class FleetUtil:
    """What of Paddle's class does not need pslib; every worker must make the same calls of `…_global_auc`."""

    def __init__(self, mode: str = "pslib") -> None:
        if mode != "transpiler":
            raise ConfigError(
                f"FleetUtil(mode={mode!r}): pslib is not supported; use FleetUtil(mode='transpiler')"
            )

    def rank0_print(self, s: Any) -> None:
        """Print on worker 0."""
        fleet.util.print_on_rank(s, 0)

    def rank0_info(self, s: Any) -> None:
        """Log on worker 0."""
        if fleet.is_first_worker():
            logger.info("%s", s)

    def rank0_error(self, s: Any) -> None:
        """Log an error on worker 0."""
        if fleet.is_first_worker():
            logger.error("%s", s)

    def set_zero(
        self, var_name: str, scope: Scope | None = None, place: Any = None, param_type: str = "int64"
    ) -> None:
        """Set a variable to zeros, such as a counter of `layers.auc` before the next epoch."""
        (global_scope() if scope is None else scope).get(var_name).zero_()

    def get_global_auc(
        self,
        scope: Scope | None = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
    ) -> float:
        """The area under the ROC curve over all workers, from the counters of `layers.auc`."""
        return metric.auc(stat_pos, stat_neg, scope, fleet.util)

    def print_global_auc(
        self,
        scope: Scope | None = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
        print_prefix: str = "",
    ) -> None:
        """Print the area under the ROC curve over all workers, on worker 0."""
        self.rank0_print(f"{print_prefix} global auc = {self.get_global_auc(scope, stat_pos, stat_neg)}")

    def __getattr__(self, name: str) -> NoReturn:
        raise UnknownNameError(
            f"FleetUtil.{name} is not in Argosy: it is for pslib; use paddle.distributed.fleet.metrics for metrics, "
            "fleet.save_persistables and fleet.init_server(model_dir) for models"
        )


__getattr__ = missing(__name__, globals())
