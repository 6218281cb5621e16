"""What trainers and servers agree on: requests and replies, the plan of the job, and the placement of variables."""

# SPDX-License-Identifier: Apache-2.0
