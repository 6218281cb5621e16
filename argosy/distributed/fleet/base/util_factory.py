"""fleet.util: collectives between the workers on NumPy arrays and plain values, outside of programs."""

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
from argosy.engine.ps.trainer.trainer import TrainerGroup
from argosy.engine.runtime.fetching import printable
from argosy.framework import checks

__all__ = ["UtilBase"]

_MODES = ("sum", "max", "min")
_WORLDS = ("worker", "server", "all")


class UtilBase:
    """The functions of `fleet.util`. Every worker must make the same calls in the same order."""

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
        _check_same_on_all_workers(group, f"{array.dtype} of shape {list(array.shape)}, mode {mode}")
        reduced = group.all_reduce(torch.from_numpy(wide), mode, what="fleet.util.all_reduce").numpy()
        result = reduced.astype(array.dtype)
        if array.dtype.kind in "iu" and not np.array_equal(result, reduced):
            raise ConfigError(
                f"all_reduce: the {mode} over {group.size} workers does not fit {array.dtype} "
                f"(largest {reduced.max()}); give an array of int64"
            )
        return printable(result)

    def all_gather(self, input: Any, comm_world: str = "worker") -> list[Any]:
        """The values of all workers by rank: numbers, strings, lists of them, or arrays of any shapes."""
        packed = _packed(input)
        gathered = self._group(comm_world).all_gather_bytes(packed, "fleet.util.all_gather")
        return [_unpacked(part) for part in gathered]

    def barrier(self, comm_world: str = "worker") -> None:
        """Wait until every worker has called it."""
        self._group(comm_world).barrier("fleet.util.barrier")

    def get_file_shard(self, files: list[str]) -> list[str]:
        """This worker's contiguous shard of the files; the first `len(files) % workers` shards have one file more."""
        if not isinstance(files, list):
            raise ConfigError(f"files is {files!r}; use a list of file names")
        index, num = self._worker_index_and_num()
        size, more = divmod(len(files), num)
        begin = index * size + min(index, more)
        return files[begin : begin + size + (index < more)]

    def get_heter_file_shard(self, files: list[str]) -> list[str]:
        """Raises a ConfigError: heter workers are not supported."""
        raise ConfigError("heter workers are not supported; use get_file_shard")

    def print_on_rank(self, message: Any, rank_id: int) -> None:
        """Print the message on worker `rank_id` only."""
        index, num = self._worker_index_and_num()
        if not 0 <= checks.integer("rank_id", rank_id) < num:
            raise ConfigError(f"rank_id is {rank_id}, and there are {num} workers; use 0 to {num - 1}")
        if index == rank_id:
            print(message, flush=True)

    def _all_to_all_records(self, parts: list[bytes]) -> list[bytes]:
        """Send part i to worker i; returns the part from each worker. For global_shuffle of datasets."""
        group = self._group("worker")
        received: list[bytes] = []
        if len(parts) != group.size:
            raise ConfigError(f"{len(parts)} parts for {group.size} workers; give one for each")
        if isinstance(group, TrainerGroup):
            return group.all_to_all(parts)
        for target, part in enumerate(parts):  # one target at a time, to bound the memory of a worker
            gathered = group.all_gather_bytes(part, "global_shuffle")
            received = gathered if target == collective.world().rank else received
        return received

    def _worker_index_and_num(self) -> tuple[int, int]:
        if self.role_maker is None:
            return env.rank_and_size()
        return self.role_maker.worker_index(), self.role_maker.worker_num()

    def _group(self, comm_world: str) -> collective.Group | TrainerGroup:
        """The process group of the workers; raises if there are several workers and no group yet."""
        if checks.one_of("comm_world", comm_world, *_WORLDS) != "worker":
            raise ConfigError(f"comm_world={comm_world!r}: servers take no part in collectives; use 'worker'")
        if trainer.is_connected():
            return trainer.current().group
        rank, size = self._worker_index_and_num()
        if size > 1 and self._has_servers():
            raise ConfigError(
                "the workers' collectives run through the servers; call fleet.init_worker() first, stop_worker() last"
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
    """A copy in int64, float32 or float64: dtypes that every backend can reduce, wide enough for a sum."""
    kind = array.dtype.kind
    if kind not in "iufb" or (kind == "b" and mode == "sum"):
        raise ConfigError(f"all_reduce cannot take the {mode} of {array.dtype}; give an array of numbers")
    if kind == "f":
        return array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32, order="C")
    wide = array.astype(np.int64, order="C")
    if kind == "u" and (wide < 0).any():
        raise ConfigError(f"all_reduce: {array.max()} does not fit int64; give smaller numbers or float64")
    return wide


def _check_same_on_all_workers(group: collective.Group | TrainerGroup, description: str) -> None:
    """Raise if the arrays differ in dtype or shape: the backend would compute garbage or abort the process."""
    if group.size == 1:
        return
    descriptions = [
        part.decode() for part in group.all_gather_bytes(description.encode(), "fleet.util.all_reduce")
    ]
    for rank, other in enumerate(descriptions):
        if other != descriptions[0]:
            raise ConfigError(
                f"all_reduce: rank 0 gives {descriptions[0]} and rank {rank} gives {other}; give the same on all ranks"
            )


def _packed(value: Any) -> bytes:
    """Serialize a value behind a type byte: A, an array in NumPy's format; J, anything else as JSON."""
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
    """The value, if JSON can represent it; tuples become lists."""
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
