"""Roles of the processes of a job: `paddle.distributed.fleet.base.role_maker`."""

# SPDX-License-Identifier: Apache-2.0
from argosy.distributed.fleet.base import role_maker
from argosy.framework.missing import missing

__all__ = ["role_maker"]
__getattr__ = missing(__name__, globals())
