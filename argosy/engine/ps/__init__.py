"""Parameter servers; independent of Programs.

protocol   what trainers and servers agree on: messages, the plan of the job, placement
rpc        requests over ZeroMQ, each executed exactly once
table      sparse tables
server     a server
trainer    a trainer
"""

# SPDX-License-Identifier: Apache-2.0
