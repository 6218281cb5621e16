"""The planner: predicts the step of a job from one rank's trace and a description of the cluster; runs nothing.

    step_trace      what a rank does in a step: nodes, the collectives and requests that they start and wait for
    topology        the cluster: hosts, links, switches, shared memory, interference (cluster.toml)
    probe_fit       the topology of measured hosts, from the measurements of a probe
    ps_setup        parameter servers: mode, number, threads, service times
    groups          which ranks are the members of a process group
    lowering        collectives of a program to those that the runtime executes: intra-host, inter-host, in chunks
    patterns        which rank sends how many bytes to which in a collective; rounds and messages
    symmetry        classes of ranks that behave alike: one of each is simulated
    fluid           time, activities, and resources that they share (max-min)
    schedule        the operations of a rank's main thread: compute, start, wait
    simulate        runs the schedule of all classes: queues of communicators, barriers
    servers         requests to parameter servers: flows, thread pools, synchronous rounds
    critical_path   what a simulated step waited for, backwards from its end
    prediction      the result, and what bounds it in a sentence
    predict_step    all of them: traces and a topology to a prediction
    timeline_file   a predicted step in the format of the timeline

Data in, data out: nothing here imports torch or the runtime.
"""

# SPDX-License-Identifier: Apache-2.0
