"""A rank of `argosy.ray.run(function)`: `python -m argosy.engine.cluster.ray_rank`, started by the node's launcher.

The function and its result are serialized with Ray's cloudpickle: they are code and data of the same user on the
same Ray cluster, which executes pickled functions anyway.
"""

# SPDX-License-Identifier: Apache-2.0
import json
import sys
from importlib import import_module

from argosy.engine import env
from argosy.engine.cluster import ray_channel

MODULE = "argosy.engine.cluster.ray_rank"


def main() -> None:
    """Run the function; trainer 0 sends its result to the driver."""
    paths = json.loads(ray_channel.send("path"))
    sys.path.extend(path for path in paths if path not in sys.path)  # modules beside the driver's script
    cloudpickle = import_module("ray.cloudpickle")
    function, arguments = cloudpickle.loads(ray_channel.send("function"))
    value = function(*arguments)
    if env.launched().rank == 0 and not env.is_server(env.variables()):
        ray_channel.send("result", cloudpickle.dumps(value))


if __name__ == "__main__":
    main()
