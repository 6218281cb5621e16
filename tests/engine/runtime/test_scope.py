"""Scope: values by name, to read and to set."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch

from argosy.engine.errors import ConfigError, ScopeError
from argosy.engine.runtime.scope import Scope, global_scope, scope_guard


def test_set_and_read_a_variable() -> None:
    scope = Scope()
    scope.var("w").get_tensor().set(np.arange(3, dtype="float32"), None)
    variable = scope.find_var("w")
    assert variable is not None
    assert np.asarray(variable.get_tensor()).tolist() == [0.0, 1.0, 2.0]
    assert variable.get_tensor()._get_dims() == [3]
    assert variable.is_initialized()


def test_setting_keeps_the_tensor_so_that_programs_see_it() -> None:
    scope = Scope()
    scope.put("w", torch.zeros(2))
    tensor = scope.get("w")
    scope.var("w").get_tensor().set(np.ones(2, "float32"))
    assert tensor.tolist() == [1.0, 1.0]


def test_another_shape_or_dtype_is_refused() -> None:
    scope = Scope()
    scope.put("w", torch.zeros(2))
    tensor = scope.var("w").get_tensor()
    with pytest.raises(ScopeError, match=r"'w' is float32\[2\] and cannot be set to float32\[3\]"):
        tensor.set(np.ones(3, "float32"))
    with pytest.raises(ScopeError, match=r"float64\[2\]"):
        tensor.set(np.ones(2))


def test_reading_an_array_gives_a_copy() -> None:
    scope = Scope()
    scope.put("w", torch.zeros(2))
    array = scope.var("w").get_tensor().numpy()
    array[:] = 5
    assert scope.get("w").tolist() == [0.0, 0.0]


def test_a_variable_without_value_says_so() -> None:
    scope = Scope()
    assert scope.find_var("w") is None
    scope.var("weight")
    with pytest.raises(ScopeError, match=r"'weigth' has no value in this scope \(did you mean 'weight'\?\)"):
        scope.get("weigth")


def test_scope_guard_changes_the_global_scope_and_puts_it_back() -> None:
    before, scope = global_scope(), Scope()
    with scope_guard(scope):
        assert global_scope() is scope
    assert global_scope() is before
    with pytest.raises(ConfigError, match="give a static.Scope"), scope_guard(None):  # type: ignore[arg-type]
        pass


def test_erased_variables_are_gone() -> None:
    scope = Scope()
    scope.put("a", torch.zeros(1))
    scope.erase(["a"])
    assert scope.names() == []
