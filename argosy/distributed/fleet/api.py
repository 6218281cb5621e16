"""The public names of `argosy.distributed.fleet`: module-level functions of the one `Fleet` of this process."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet import base, data_generator, dataset, metrics
from argosy.distributed.fleet.base.distributed_optimizer import DistributedOptimizer
from argosy.distributed.fleet.base.fleet_base import Fleet
from argosy.distributed.fleet.base.role_maker import PaddleCloudRoleMaker, Role, UserDefinedRoleMaker
from argosy.distributed.fleet.base.util_factory import UtilBase
from argosy.distributed.fleet.data_generator import (
    DataGenerator,
    MultiSlotDataGenerator,
    MultiSlotStringDataGenerator,
)
from argosy.distributed.fleet.dataset import DatasetBase, InMemoryDataset, QueueDataset
from argosy.distributed.fleet.distributed_strategy import DistributedStrategy
from argosy.engine.errors import ConfigError as _ConfigError
from argosy.engine.runtime.checkpoint import Checkpoint
from argosy.framework.missing import missing as _missing

fleet = Fleet()
init = fleet.init
distributed_optimizer = fleet.distributed_optimizer
minimize = fleet.minimize
is_first_worker, is_worker, is_server = fleet.is_first_worker, fleet.is_worker, fleet.is_server
worker_index, worker_num, worker_endpoints = fleet.worker_index, fleet.worker_num, fleet.worker_endpoints
server_index, server_num, server_endpoints = fleet.server_index, fleet.server_num, fleet.server_endpoints
rank, nranks, world_size, local_rank = fleet.rank, fleet.nranks, fleet.world_size, fleet.local_rank
node_num, barrier_worker = fleet.node_num, fleet.barrier_worker
util = fleet.util
get_lr, set_lr = fleet.get_lr, fleet.set_lr
save_persistables, save_inference_model = fleet.save_persistables, fleet.save_inference_model
init_worker, stop_worker = fleet.init_worker, fleet.stop_worker
init_server, run_server = fleet.init_server, fleet.run_server
shutdown = fleet.shutdown
state_dict, set_state_dict = fleet.state_dict, fleet.set_state_dict

__all__ = [
    "Checkpoint",
    "DataGenerator",
    "DatasetBase",
    "DistributedOptimizer",
    "DistributedStrategy",
    "Fleet",
    "InMemoryDataset",
    "MultiSlotDataGenerator",
    "MultiSlotStringDataGenerator",
    "PaddleCloudRoleMaker",
    "QueueDataset",
    "Role",
    "UserDefinedRoleMaker",
    "UtilBase",
    "barrier_worker",
    "base",
    "data_generator",
    "dataset",
    "distributed_model",
    "distributed_optimizer",
    "fleet",
    "get_lr",
    "init",
    "init_server",
    "init_worker",
    "is_first_worker",
    "is_server",
    "is_worker",
    "local_rank",
    "metrics",
    "minimize",
    "node_num",
    "nranks",
    "rank",
    "run_server",
    "save_inference_model",
    "save_persistables",
    "server_endpoints",
    "server_index",
    "server_num",
    "set_lr",
    "set_state_dict",
    "shutdown",
    "state_dict",
    "stop_worker",
    "util",
    "worker_endpoints",
    "worker_index",
    "worker_num",
    "world_size",
]


def distributed_model(model: object) -> object:
    """Raises a ConfigError: it belongs to eager mode."""
    raise _ConfigError(
        "fleet.distributed_model is for eager mode, which Argosy does not have; build a static program and use "
        "fleet.distributed_optimizer"
    )


__getattr__ = _missing("argosy.distributed.fleet", globals())
