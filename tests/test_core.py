"""fluid.core: dtypes, flags, and what is compiled in."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from argosy import core, fluid
from argosy.core import VarDesc
from argosy.engine.errors import ProgramError


def test_dtypes_are_accepted_wherever_a_dtype_is() -> None:
    x = fluid.data("x", [2], VarDesc.VarType.INT64)
    assert x.dtype == VarDesc.VarType.INT64
    assert fluid.layers.cast(x, VarDesc.VarType.FP64).dtype == torch.float64
    assert VarDesc.VarType.LOD_TENSOR == 7
    assert VarDesc.VarType.SELECTED_ROWS != VarDesc.VarType.LOD_TENSOR


def test_flags_are_a_mapping() -> None:
    flags = core.globals()
    assert "FLAGS_check_nan_inf" in flags
    assert flags["FLAGS_check_nan_inf"] is False
    flags["FLAGS_check_nan_inf"] = True
    try:
        assert fluid.get_flags("FLAGS_check_nan_inf") == {"FLAGS_check_nan_inf": True}
    finally:
        flags["FLAGS_check_nan_inf"] = False
    with pytest.raises(TypeError, match="cannot be deleted"):
        del flags["FLAGS_check_nan_inf"]


def test_errors_of_programs_are_enforce_not_met() -> None:
    with pytest.raises(core.EnforceNotMet):
        raise ProgramError("wrong")


def test_what_is_compiled_in() -> None:
    assert core.is_compiled_with_dist()
    assert not core.is_compiled_with_brpc()
    assert not core.is_compiled_with_xpu()
    assert core.is_compiled_with_mkldnn() == torch.backends.mkldnn.is_available()
    assert core.get_cuda_device_count() == torch.cuda.device_count()
    assert str(core.CUDAPinnedPlace()) == "CUDAPinnedPlace"
    assert core.CUDAPinnedPlace().device().type == "cpu"
