"""fluid.incubate.fleet.base: role makers."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.incubate.fleet.base import role_maker
from argosy.framework.missing import missing

__all__ = ["role_maker"]
__getattr__ = missing(__name__, globals())
