"""fluid.param_attr: the 1.x location of ParamAttr."""

# SPDX-License-Identifier: Apache-2.0
from argosy.framework.layer import ParamAttr

__all__ = ["ParamAttr"]
