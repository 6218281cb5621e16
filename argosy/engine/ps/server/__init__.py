"""A parameter server.

service       assembles a server; start, registration of trainers, end
sync          pushes, and the steps that all trainers do together
handlers      pulls, initial values, saves
state         blocks and tables, and their updates
snapshots     snapshots of the state, and recovery
wal           write-ahead log with group commit
collectives   all-gathers and all-to-alls of the trainers, norms over the servers
membership    live, left, excluded and unresponsive trainers; agreement of the servers on a step
"""

# SPDX-License-Identifier: Apache-2.0
