"""The collectives of 1.x: _c_allreduce, _c_allgather, _c_broadcast, _c_reducescatter, and _c_sync_…, which do nothing.

They return new Variables. ring_id and use_calc_stream have no effect: a collective blocks until it is complete.
"""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy.distributed import collective
from argosy.engine.errors import ConfigError
from argosy.engine.ir.variable import Variable
from argosy.framework.missing import missing
from argosy.tensor.creation import assign
from argosy.tensor.manipulation import concat

__all__ = [
    "_c_allgather",
    "_c_allreduce",
    "_c_broadcast",
    "_c_reducescatter",
    "_c_sync_calc_stream",
    "_c_sync_comm_stream",
]
_REDUCTIONS = {
    "sum": collective.ReduceOp.SUM,
    "max": collective.ReduceOp.MAX,
    "min": collective.ReduceOp.MIN,
    "prod": collective.ReduceOp.PROD,
}


def _c_allreduce(
    x: Variable,
    out: Variable | None = None,
    reduce_type: str = "sum",
    ring_id: int = 0,
    use_calc_stream: bool = False,
) -> Any:
    """x reduced over all ranks: sum, max, min or prod; written to `out`, if given."""
    if reduce_type not in _REDUCTIONS:
        raise ConfigError(f"_c_allreduce: reduce_type={reduce_type!r}; use {', '.join(_REDUCTIONS)}")
    result = collective.all_reduce(assign(x), _REDUCTIONS[reduce_type])
    return result if out is None else assign(result, out)


def _c_broadcast(x: Variable, root: int = 0, ring_id: int = 0, use_calc_stream: bool = False) -> Any:
    """The x of rank `root`, which is written to x."""
    return collective.broadcast(x, root)


def _c_allgather(x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False) -> Any:
    """The x of all ranks, concatenated along axis 0."""
    parts: list[Any] = []
    collective.all_gather(parts, x)
    _check_ranks("_c_allgather", nranks, len(parts))
    return concat(parts, 0)


def _c_reducescatter(x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False) -> Any:
    """This rank's part, along axis 0, of the sum over all ranks."""
    result = collective.reduce_scatter(x)
    _check_ranks("_c_reducescatter", nranks, x.shape[0] // result.shape[0])
    return result


def _check_ranks(kind: str, given: int, actual: int) -> None:
    if given != actual:
        raise ConfigError(f"{kind}: nranks={given}, but the job has {actual} ranks; give the number of ranks")


def _c_sync_calc_stream(x: Variable) -> Any:
    """x: there are no streams on the CPU."""
    return x


def _c_sync_comm_stream(x: Variable, ring_id: int) -> Any:
    """x: a collective blocks until it is complete."""
    return x


__getattr__ = missing(__name__, globals())
