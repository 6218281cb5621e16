"""Paddle's key-value server for rendezvous: any use raises."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.missing import unsupported_module

__getattr__ = unsupported_module(
    __name__,
    "ranks rendezvous by the endpoints of fleetrun, and workers exchange values by fleet.util.all_gather",
)
