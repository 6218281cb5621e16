"""variant, row, FunctionLayer: real signatures, the right arguments, errors that name the function."""

# SPDX-License-Identifier: Apache-2.0
import inspect
from typing import Any

import pytest

from argosy import nn, static
from argosy.framework.variant import row, variant
from argosy.nn import functional


def _pool(spatial: int, x: Any, size: int, step: int = 1, form: str = "NCHW", *, inner: str = "-") -> Any:
    return spatial, x, size, step, form, inner


@variant(_pool, 1, parameters="x size step", form="NCL", step=2)
def pool1d() -> Any:
    """Pool one axis."""


@variant(_pool, 3, form="NCDHW", inner="+")
def pool3d() -> Any:
    """Pool three axes."""


def parameters(function: Any) -> str:
    """The names of the parameters, with defaults."""
    listed = inspect.signature(function).parameters.values()
    return " ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in listed)


def test_a_variant_has_its_own_signature_name_and_docstring() -> None:
    assert parameters(pool1d) == "x size step=2"
    assert parameters(pool3d) == "x size step=1 form=NCDHW"
    assert (pool1d.__name__, pool1d.__module__, pool1d.__doc__) == ("pool1d", __name__, "Pool one axis.")


def test_a_variant_calls_the_implementation_with_its_defaults() -> None:
    assert pool1d("x", 3) == (1, "x", 3, 2, "NCL", "-")
    assert pool1d("x", step=5, size=4) == (1, "x", 4, 5, "NCL", "-")
    assert pool3d("x", 3, form="NDHWC") == (3, "x", 3, 1, "NDHWC", "+")


def test_wrong_arguments_raise_a_type_error_with_the_name() -> None:
    with pytest.raises(TypeError, match=r"pool1d\(\) missing a required argument: 'size'"):
        pool1d("x")
    with pytest.raises(TypeError, match=r"pool1d\(\) got an unexpected keyword argument 'form'"):
        pool1d("x", 3, form="NCL")
    with pytest.raises(TypeError, match=r"MaxPool2D\(\) got an unexpected keyword argument 'kernel'"):
        nn.MaxPool2D(3, kernel=3)
    with pytest.raises(TypeError, match=r"Conv1D.__init__\(\) missing a required argument: 'kernel_size'"):
        nn.Conv1D(3, 4)  # type: ignore[call-arg]


def test_a_row_of_a_table_is_a_variant() -> None:
    pool2d = row("pool2d", "Pool two axes.", _pool, 2)
    assert parameters(pool2d) == "x size step=1 form=NCHW"
    assert (pool2d.__name__, pool2d.__module__, pool2d.__doc__) == ("pool2d", __name__, "Pool two axes.")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (functional.avg_pool1d, "x kernel_size stride=None padding=0 exclusive=True ceil_mode=False name=None"),
        (nn.AvgPool1D, "kernel_size stride=None padding=0 exclusive=True ceil_mode=False name=None"),
        (nn.Softmax, "axis=-1 name=None"),
        (nn.Softmax.__init__, "self axis=-1 name=None"),
        (nn.Softmax.forward, "self x"),
        (nn.MarginRankingLoss.forward, "self input other label"),
        (nn.UpsamplingBilinear2D, "size=None scale_factor=None data_format=NCHW name=None"),
        (
            nn.Conv1DTranspose,
            "in_channels out_channels kernel_size stride=1 padding=0 output_padding=0 groups=1 dilation=1 "
            "weight_attr=None bias_attr=None data_format=NCL",
        ),
        (nn.InstanceNorm3D.__init__, "self num_features epsilon=1e-05 momentum=0.9 weight_attr=None bias_attr=None "
         "data_format=NCDHW name=None"),
    ],
)  # fmt: skip
def test_signatures_are_those_that_paddle_documents(function: Any, expected: str) -> None:
    assert parameters(function) == expected


def test_a_user_may_subclass_a_layer_of_a_function() -> None:
    class Steep(nn.LeakyReLU):
        def __init__(self) -> None:
            super().__init__(0.5, name="steep")

    layer = Steep()
    out = layer(x=static.data("x", [2]))
    assert (repr(layer), out.name) == ("Steep(negative_slope=0.5, name=steep)", "steep.tmp_0")


def test_help_shows_the_signature_and_the_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    help(nn.Conv3D)
    help(functional.conv3d)
    shown = capsys.readouterr().out
    assert "Conv3D(in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1" in shown
    assert "Convolution over three axes; NCDHW or NDHWC." in shown
