"""fluid.param_attr: the 1.x location of ParamAttr."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.param_attr import ParamAttr

__all__ = ["ParamAttr"]
