"""fluid.incubate.fleet.base: role makers, and the base classes of fleets."""

# SPDX-License-Identifier: Apache-2.0
from argosy.fluid.incubate.fleet.base import fleet_base, role_maker
from argosy.framework.missing import missing

__all__ = ["fleet_base", "role_maker"]
__getattr__ = missing(__name__, globals())
