"""The first step of an MLP under DDP; rank 0 writes the time of its end to the file given."""

# SPDX-License-Identifier: Apache-2.0
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

torch.distributed.init_process_group("gloo")
net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)
loss = F.cross_entropy(model(torch.ones(32, 784)), torch.ones(32, dtype=torch.int64))
loss.backward()
optimizer.step()
loss.item()
if torch.distributed.get_rank() == 0:
    Path(sys.argv[1]).write_text(str(time.time()))
torch.distributed.destroy_process_group()
