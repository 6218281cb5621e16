"""The first step of an MLP under Ray Train on two nodes; rank 0 writes the time of its end to the file given."""

# SPDX-License-Identifier: Apache-2.0
import sys
from importlib import import_module
from pathlib import Path


def train(config: dict[str, str]) -> None:
    import time

    import torch
    import torch.nn.functional as F
    from torch import nn

    prepare_model = import_module("ray.train.torch").prepare_model
    net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    model = prepare_model(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)
    loss = F.cross_entropy(model(torch.ones(32, 784)), torch.ones(32, dtype=torch.int64))
    loss.backward()
    optimizer.step()
    loss.item()
    if torch.distributed.get_rank() == 0:
        Path(config["done"]).write_text(str(time.time()))


def main() -> None:
    train_api = import_module("ray.train")
    import_module("ray").init(log_to_driver=False, logging_level="warning")
    trainer = import_module("ray.train.torch").TorchTrainer(
        train,
        train_loop_config={"done": sys.argv[1]},
        scaling_config=train_api.ScalingConfig(
            num_workers=2, resources_per_worker={"CPU": 1}, placement_strategy="STRICT_SPREAD"
        ),
        run_config=train_api.RunConfig(storage_path=str(Path(sys.argv[1]).parent)),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
