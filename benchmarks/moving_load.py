"""Other load for benchmarks/stragglers.py: a busy process that moves over the cores, until it is ended.

python benchmarks/moving_load.py --seed 0 --mean_s 1.0

It stays on a core, chosen at random, for exponentially distributed times of this mean, and sleeps in a third of them.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import random
import time


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--mean_s", type=float, default=1.0)
    given = p.parse_args()
    chance, parent = random.Random(given.seed), os.getppid()
    cores = sorted(os.sched_getaffinity(0))
    while os.getppid() == parent:
        os.sched_setaffinity(0, {chance.choice(cores)})
        until = time.monotonic() + min(chance.expovariate(1 / given.mean_s), 10 * given.mean_s)
        is_idle = chance.random() < 1 / 3
        while time.monotonic() < until:
            if is_idle:
                time.sleep(0.02)


if __name__ == "__main__":
    main()
