"""LeNet for images of 28 x 28 pixels."""

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from argosy import nn
from argosy.tensor import flatten


class LeNet(nn.Layer):
    """Two convolutions and three linear layers; without the latter if `num_classes` is 0."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.features = nn.Sequential(
            nn.Conv2D(1, 6, 3, stride=1, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(2, 2),
            nn.Conv2D(6, 16, 5, stride=1, padding=0),
            nn.ReLU(),
            nn.MaxPool2D(2, 2),
        )
        if num_classes > 0:
            self.fc = nn.Sequential(nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, num_classes))

    def forward(self, inputs: Any) -> Any:
        x = self.features(inputs)
        return self.fc(flatten(x, 1)) if self.num_classes > 0 else x
