"""Jobs on clusters: `fleetrun --on slurm|mpi|ray|torchx|k8s|ssh`.

    fleetrun --on NAME …  ──▶  cli ──▶ profiles (clusters.toml) ──▶ ClusterJob ──▶ Engine.submit
                                                                                      │ one task per node
    python -m argosy.engine.launch --nodes=N --node_rank=I --master=HOST:PORT …   ◀───┘

An engine starts one launcher per node and knows nothing of ranks; `launch/nodes.py` connects the launchers, which
choose ports, supervise their ranks and explain failures as on one host.
"""

# SPDX-License-Identifier: Apache-2.0
