"""Messages between trainers and parameter servers over ZeroMQ: requests of any kind, each executed exactly once.

Client ── ServerLink (DEALER, one per server) ──────▶ ROUTER ── RpcServer ──▶ handlers in thread pools
   └───── Heartbeat (DEALER, one per server) ───────▶ ROUTER      └── DedupTable: requests by number, and their replies
"""

# SPDX-License-Identifier: Apache-2.0
