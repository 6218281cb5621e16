"""Predict how fast a job will be on a cluster, from the trace of one rank.

python -m argosy.plan simulate timeline --hosts cluster.toml

The simulation is in argosy/engine/planner; this package reads what jobs record, and prints. Neither needs torch.
"""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.planner.predict_step import predict, simulate_step
from argosy.engine.planner.prediction import Prediction
from argosy.engine.planner.ps_setup import PsSetup, read_ps_setup
from argosy.engine.planner.step_trace import StepTrace
from argosy.engine.planner.timeline_file import write_timeline
from argosy.engine.planner.topology import Topology, read_topology
from argosy.plan.recorded import read_trace

__all__ = [
    "Prediction",
    "PsSetup",
    "StepTrace",
    "Topology",
    "predict",
    "read_ps_setup",
    "read_topology",
    "read_trace",
    "simulate_step",
    "write_timeline",
]
