"""The yardstick: the same MobileNetV1 as mobilenet.py, written for eager torch."""

# SPDX-License-Identifier: Apache-2.0
import torch.nn.functional as F
from mobilenet import BLOCKS
from torch import Tensor, nn


class ConvBNReLU(nn.Module):
    """Convolution without bias, batch normalisation, relu."""

    def __init__(self, channels: int, filters: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, size, stride, (size - 1) // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(filters)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


class TorchMobileNetV1(nn.Module):
    """MobileNetV1; `scale` multiplies all numbers of filters."""

    def __init__(self, class_dim: int = 1000, scale: float = 1.0) -> None:
        super().__init__()
        self.conv1 = ConvBNReLU(3, int(32 * scale), 3, 2)
        self.blocks = nn.ModuleList()
        for _, filters, out, stride in BLOCKS:
            channels, outputs = int(filters * scale), int(out * scale)
            self.blocks.append(ConvBNReLU(channels, channels, 3, stride, groups=channels))
            self.blocks.append(ConvBNReLU(channels, outputs, 1))
        self.fc = nn.Linear(int(BLOCKS[-1][2] * scale), class_dim)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return out


def paddle_names() -> dict[str, str]:
    """The names of mobilenet.py for the names of TorchMobileNetV1's parameters and buffers."""
    layers = {"conv1": "conv1"}
    for number, (name, *_) in enumerate(BLOCKS):
        layers |= {f"blocks.{2 * number}": f"{name}_dw", f"blocks.{2 * number + 1}": f"{name}_sep"}
    names = {"fc.weight": "fc7_weights", "fc.bias": "fc7_offset"}
    for torch_name, name in layers.items():
        names |= {
            f"{torch_name}.conv.weight": f"{name}_weights",
            f"{torch_name}.bn.weight": f"{name}_bn_scale",
            f"{torch_name}.bn.bias": f"{name}_bn_offset",
            f"{torch_name}.bn.running_mean": f"{name}_bn_mean",
            f"{torch_name}.bn.running_var": f"{name}_bn_variance",
        }
    return names
