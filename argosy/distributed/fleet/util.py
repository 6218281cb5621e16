"""fleet.util: small exchanges between the workers, on NumPy arrays and plain values, outside of programs."""

# SPDX-License-Identifier: Apache-2.0
import io
import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from argosy.distributed.fleet.base.role_maker import RoleMakerBase
from argosy.engine import collective, env
from argosy.engine.errors import ConfigError
from argosy.engine.ps.trainer import trainer
from argosy.engine.ps.trainer.group import TrainerGroup
from argosy.engine.runtime.executor import printable
from argosy.framework import checks

__all__ = ["UtilBase"]

_MODES = ("sum", "max", "min")
_WORLDS = ("worker", "server", "all")


class UtilBase:
    """What `fleet.util` offers. Every worker must make the same calls in the same order."""

    def __init__(self, role_maker: RoleMakerBase | None = None) -> None:
        self.role_maker = role_maker

    def _set_role_maker(self, role_maker: RoleMakerBase) -> None:
        self.role_maker = role_maker

    def all_reduce(self, input: Any, mode: str = "sum", comm_world: str = "worker") -> NDArray[Any]:
        """The sum, max or min over the workers of arrays of one shape; in the shape and dtype of `input`."""
        mode = checks.one_of("mode", mode, *_MODES)
        group = self._group(comm_world)
        array = np.asarray(input)
        wide = _widened(array, mode)
        _same_everywhere(group, f"{array.dtype} of shape {list(array.shape)}, mode {mode}")
        made = group.all_reduce(torch.from_numpy(wide), mode, what="fleet.util.all_reduce").numpy()
        result = made.astype(array.dtype)
        if array.dtype.kind in "iu" and not np.array_equal(result, made):
            raise ConfigError(
                f"all_reduce: the {mode} over {group.size} workers does not fit {array.dtype} "
                f"(largest {made.max()}); give an array of int64"
            )
        return printable(result)

    def all_gather(self, input: Any, comm_world: str = "worker") -> list[Any]:
        """The values of all workers by rank: numbers, strings, lists of them, or arrays of any shapes."""
        packed = _packed(input)
        found = self._group(comm_world).all_gather_bytes(packed, "fleet.util.all_gather")
        return [_unpacked(part) for part in found]

    def barrier(self, comm_world: str = "worker") -> None:
        """Return when every worker has come."""
        self._group(comm_world).barrier("fleet.util.barrier")

    def get_file_shard(self, files: list[str]) -> list[str]:
        """This worker's files: blocks in order, of which the first `len(files) % workers` have one more."""
        if not isinstance(files, list):
            raise ConfigError(f"files is {files!r}; use a list of file names")
        index, num = self._worker_of()
        size, more = divmod(len(files), num)
        begin = index * size + min(index, more)
        return files[begin : begin + size + (index < more)]

    def get_heter_file_shard(self, files: list[str]) -> list[str]:
        """Raises: there are no heter workers."""
        raise ConfigError("this process is no heter worker; use get_file_shard")

    def print_on_rank(self, message: Any, rank_id: int) -> None:
        """Print the message on the worker of this number, and nowhere else."""
        index, num = self._worker_of()
        if not 0 <= checks.integer("rank_id", rank_id) < num:
            raise ConfigError(f"rank_id is {rank_id}, and there are {num} workers; use 0 to {num - 1}")
        if index == rank_id:
            print(message, flush=True)

    def _exchange_records(self, parts: list[bytes]) -> list[bytes]:
        """Part i goes to worker i; gives what each worker had for this one. For global_shuffle of datasets."""
        group = self._group("worker")
        mine: list[bytes] = []
        if len(parts) != group.size:
            raise ConfigError(f"{len(parts)} parts for {group.size} workers; give one for each")
        if isinstance(group, TrainerGroup):
            return group.exchange(parts)
        for target, part in enumerate(parts):  # one at a time: a worker never holds what all have for all
            found = group.all_gather_bytes(part, "global_shuffle")
            mine = found if target == collective.world().rank else mine
        return mine

    def _worker_of(self) -> tuple[int, int]:
        if self.role_maker is None:
            return env.rank_and_size()
        return self.role_maker.worker_index(), self.role_maker.worker_num()

    def _group(self, comm_world: str) -> collective.Group | TrainerGroup:
        """The group of the workers; an error while there is none although there are several."""
        if checks.one_of("comm_world", comm_world, *_WORLDS) != "worker":
            raise ConfigError(
                f"comm_world={comm_world!r}: servers serve, and take part in nothing else; use 'worker'"
            )
        if trainer.is_connected():
            return trainer.current().group
        rank, size = self._worker_of()
        if size > 1 and self._has_servers():
            raise ConfigError(
                "the workers meet on the servers; call fleet.init_worker() first, and stop_worker() last"
            )
        if size > 1 and not collective.is_connected():
            raise ConfigError(
                f"this is rank {rank} of {size}, not connected to the others yet; "
                "call fleet.init(is_collective=True) first"
            )
        return collective.world().group("util")

    def _has_servers(self) -> bool:
        if self.role_maker is None:
            return bool(env.variables().get("PADDLE_PSERVERS_IP_PORT_LIST"))
        return self.role_maker.server_num() > 0


def _widened(array: NDArray[Any], mode: str) -> NDArray[Any]:
    """A copy in int64, float32 or float64: what every backend can reduce, and wide enough for a sum."""
    kind = array.dtype.kind
    if kind not in "iufb" or (kind == "b" and mode == "sum"):
        raise ConfigError(f"all_reduce cannot take the {mode} of {array.dtype}; give an array of numbers")
    if kind == "f":
        return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, order="C")
    wide = array.astype(np.int64, order="C")
    if kind == "u" and (wide < 0).any():
        raise ConfigError(f"all_reduce: {array.max()} does not fit int64; give smaller numbers or float64")
    return wide


def _same_everywhere(group: collective.Group | TrainerGroup, mine: str) -> None:
    """Refuse arrays that differ: the backend would mix them up or end the process."""
    if group.size == 1:
        return
    found = [part.decode() for part in group.all_gather_bytes(mine.encode(), "fleet.util.all_reduce")]
    for rank, other in enumerate(found):
        if other != found[0]:
            raise ConfigError(
                f"all_reduce: rank 0 gives {found[0]} and rank {rank} gives {other}; give the same on all ranks"
            )


def _packed(value: Any) -> bytes:
    """A letter and the value: A, an array in NumPy's own format; J, anything else as JSON."""
    if not isinstance(value, np.ndarray | np.generic | torch.Tensor):
        return b"J" + json.dumps(_plain(value)).encode()
    array, file = np.asarray(value), io.BytesIO()
    if array.dtype.hasobject:
        raise ConfigError(f"all_gather cannot send an array of {array.dtype}; give numbers, strings or lists")
    np.save(file, array, allow_pickle=False)
    return b"A" + file.getvalue()


def _unpacked(data: bytes) -> Any:
    if data[:1] == b"J":
        return json.loads(data[1:])
    array = np.load(io.BytesIO(data[1:]), allow_pickle=False)
    return array if array.ndim else array[()]


def _plain(value: Any) -> Any:
    """The value if JSON keeps it as it is; tuples become lists."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(part) for key, part in value.items()}
    raise ConfigError(
        f"all_gather cannot send a {type(value).__name__}; give numbers, strings, lists of them, or an array"
    )
