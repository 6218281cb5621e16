"""Messages between trainers and parameter servers over ZeroMQ: any kind of request, each one run once.

Client ── Link (DEALER, one per server) ──▶ ROUTER ── Listener ──▶ handlers in thread pools
   └───── Heart (DEALER, one per server) ─▶ ROUTER      └── Ledger: who asked what, and what was answered
"""

# SPDX-License-Identifier: Apache-2.0
