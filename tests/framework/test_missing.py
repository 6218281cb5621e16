"""The error for a missing name: its full name, a near one if there is one, what to use instead if we know it."""

# SPDX-License-Identifier: Apache-2.0
import pytest

import argosy as paddle
from argosy import fluid
from argosy.engine.errors import ConfigError, UnknownNameError
from argosy.framework.missing import Raises, missing, raises, unknown

KNOWN = ["conv3d", "fc", "scope_guard", "sin", "static"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fcc", " (did you mean 'fc'?)"),
        ("FC", " (did you mean 'fc'?)"),
        ("statik", " (did you mean 'static'?)"),
        ("isn", " (did you mean 'sin'?)"),
        ("sope_gaurd", " (did you mean 'scope_guard'?)"),
        ("cond", "; there is argosy.static.nn.cond"),
        ("device_gard", ""),
        ("versionn", ""),
    ],
)
def test_only_a_near_name_is_suggested(name: str, hint: str) -> None:
    assert unknown(f"argosy.part.{name}", KNOWN) == f"argosy.part.{name} is not in Argosy{hint}"


def test_a_name_of_another_module_is_named_with_its_module() -> None:
    _ = paddle.static
    message = unknown("argosy.optimizer.InputSpec", [])
    assert message == "argosy.optimizer.InputSpec is not in Argosy; there is argosy.static.InputSpec"


def test_an_unsupported_name_is_a_stand_in_that_raises_the_reason() -> None:
    stand_in = fluid.layers.prior_box
    assert isinstance(stand_in, Raises)
    assert "object detection" in (stand_in.__doc__ or "")

    def derive() -> None:
        class Mine(stand_in):  # type: ignore[misc, valid-type]  # a stand-in is not a class
            pass

    for use in (lambda: stand_in(1), lambda: stand_in.attribute, derive):
        with pytest.raises(
            ConfigError, match=r"argosy.fluid.layers.prior_box is not supported: there are no"
        ):
            use()
    assert repr(raises("argosy.x", "why")) == "<argosy.x: not supported>"


def test_an_unsupported_module_raises_at_once() -> None:
    with pytest.raises(UnknownNameError, match="argosy.fluid.dygraph is not supported: it is for eager mode"):
        _ = fluid.dygraph
    with pytest.raises(ImportError, match="argosy.fluid.dygraph is not supported"):
        from argosy.fluid import dygraph  # noqa: F401


def test_dunder_names_are_left_to_python() -> None:
    with pytest.raises(AttributeError, match="^__path__$"):
        missing("argosy.part", {})("__path__")
