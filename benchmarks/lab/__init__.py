"""Hosts on one machine: network namespaces with shaped links between them; see docs/how-to/lab.md."""

# SPDX-License-Identifier: Apache-2.0
from lab.namespaces import inside, setns
from lab.network import Lab

__all__ = ["Lab", "inside", "setns"]
