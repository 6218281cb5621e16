"""A trainer of a job with parameter servers.

trainer      the trainer that this process is; collectives of the trainers
dense        gradients and values of dense variables
sparse       rows of tables: lookups, gradients
geo          Geo-SGD: local training, deltas every k steps
connection   the next step, and the requests in flight
"""

# SPDX-License-Identifier: Apache-2.0
