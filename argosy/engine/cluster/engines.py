"""The engines by name; each is imported when it is used."""

# SPDX-License-Identifier: Apache-2.0
from importlib import import_module

from argosy.engine.cluster.engine import Engine
from argosy.engine.errors import ConfigError, nearest

ENGINES = {
    "slurm": ("argosy.engine.cluster.slurm", "Slurm"),
    "mpi": ("argosy.engine.cluster.mpi", "Mpi"),
    "ssh": ("argosy.engine.cluster.ssh", "Ssh"),
    "ray": ("argosy.engine.cluster.ray", "Ray"),
    "torchx": ("argosy.engine.cluster.torchx", "TorchX"),
    "k8s": ("argosy.engine.cluster.kubernetes", "Kubernetes"),
}


def engine(name: str) -> Engine:
    """The engine of this name."""
    if name not in ENGINES:
        raise ConfigError(f"--on={name} is no engine{nearest(name, ENGINES, lists=True)}")
    module, attribute = ENGINES[name]
    adapter = getattr(import_module(module), attribute)()
    assert isinstance(adapter, Engine), name
    return adapter
