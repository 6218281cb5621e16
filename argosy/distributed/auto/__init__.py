"""strategy.auto: choose the switches of a strategy by simulation, and verify the choice in the running job.

setting      one combination of switches that the planner may choose
template     a program before its gradients are all-reduced; builds the program of any setting
node_times   measured times of nodes, and the step trace of a program that was never run
search       all settings of a cluster, simulated and ranked
autotune     the alternatives of a running program: switches between settings
tuner        decides what each step runs; pure, the same on all ranks
comparison   the sequential test of two settings
proposals    what to try, in which order, predicted from a sketch of the step
"""

# SPDX-License-Identifier: Apache-2.0
