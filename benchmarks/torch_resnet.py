"""The yardstick: the same ResNet as examples/resnet/resnet.py, written for eager torch."""

# SPDX-License-Identifier: Apache-2.0
import torch.nn.functional as F
from torch import Tensor, nn

BLOCKS = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 6, 3], 101: [3, 4, 23, 3], 152: [3, 8, 36, 3]}


class ConvBN(nn.Module):
    """Convolution without bias, then batch normalisation."""

    def __init__(self, channels: int, filters: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, size, stride, (size - 1) // 2, bias=False)
        self.bn = nn.BatchNorm2d(filters)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn(self.conv(x))
        return out


class Block(nn.Module):
    """A bottleneck (sizes 1, 3, 1) or a basic block (3, 3)."""

    def __init__(self, channels: int, filters: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        out = filters * 4 if bottleneck else filters
        self.branch2a = ConvBN(channels, filters, 1 if bottleneck else 3, 1 if bottleneck else stride)
        self.branch2b = ConvBN(filters, filters, 3, stride if bottleneck else 1)
        self.branch2c = ConvBN(filters, out, 1) if bottleneck else None
        self.branch1 = ConvBN(channels, out, 1, stride) if channels != out or stride != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch2b(F.relu(self.branch2a(x)))
        if self.branch2c is not None:
            y = self.branch2c(F.relu(y))
        return F.relu((x if self.branch1 is None else self.branch1(x)) + y)


class TorchResNet(nn.Module):
    """ResNet 18 to 152."""

    def __init__(self, layers: int = 50, class_dim: int = 1000) -> None:
        super().__init__()
        bottleneck = layers >= 50
        self.conv1 = ConvBN(3, 64, 7, 2)
        self.blocks = nn.ModuleList()
        channels = 64
        for stage, count in enumerate(BLOCKS[layers]):
            for i in range(count):
                filters = 64 * 2**stage
                self.blocks.append(Block(channels, filters, 2 if i == 0 and stage > 0 else 1, bottleneck))
                channels = filters * 4 if bottleneck else filters
        self.fc = nn.Linear(channels, class_dim)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return out


def paddle_names(layers: int) -> dict[str, str]:
    """The names of examples/resnet/resnet.py for the names of TorchResNet's parameters and buffers."""
    names = {"fc.weight": "fc_0.w_0", "fc.bias": "fc_0.b_0"}
    names |= _conv_bn("conv1", "conv1", "bn_conv1")
    index = 0
    for stage, count in enumerate(BLOCKS[layers]):
        for i in range(count):
            long = layers in (101, 152) and stage == 2
            block = f"{stage + 2}{'a' if i == 0 else f'b{i}'}" if long else f"{stage + 2}{chr(97 + i)}"
            for branch in ("branch2a", "branch2b", "branch2c", "branch1"):
                names |= _conv_bn(f"blocks.{index}.{branch}", f"res{block}_{branch}", f"bn{block}_{branch}")
            index += 1
    return names


def _conv_bn(torch_name: str, conv: str, bn: str) -> dict[str, str]:
    return {
        f"{torch_name}.conv.weight": f"{conv}_weights",
        f"{torch_name}.bn.weight": f"{bn}_scale",
        f"{torch_name}.bn.bias": f"{bn}_offset",
        f"{torch_name}.bn.running_mean": f"{bn}_mean",
        f"{torch_name}.bn.running_var": f"{bn}_variance",
    }


def as_paddle(name: str, value: Tensor) -> Tensor:
    """Paddle's fully connected weight is [in, out], torch's [out, in]."""
    return value.t().contiguous() if name == "fc.weight" else value
