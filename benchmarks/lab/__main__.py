"""Run a job on hosts that this machine plays: namespaces with shaped links, one fleetrun on each.

    python benchmarks/lab --hosts 2 --ranks 2 --rate 1gbit -- train.py --lr 0.1
    python benchmarks/lab --hosts 2 --rate 1gbit --measure
    python benchmarks/lab sweep

What follows `--` is given to fleetrun: its own options first, then the script with its arguments. Shown is
what host 0 says; the logs of host i are in LOG_DIR/host<i>. The lab is torn down at the end, also after a
failure, Ctrl-C or SIGTERM; `sweep` removes what a killed one has left. Needs root, ip and tc.
Exit code: that of the job; 2 if the command is invalid, 3 if a lab cannot be created here.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from argosy.engine.errors import ConfigError
from lab import Lab, job, measure
from lab.network import sweep


def parse(argv: Sequence[str]) -> argparse.Namespace:
    p = argparse.ArgumentParser(
        prog="python benchmarks/lab",
        usage="%(prog)s [options] -- [options of fleetrun] script.py [arguments]\n"
        "       %(prog)s [options] --measure\n       %(prog)s sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument("sweep", nargs="?", choices=["sweep"], help="remove what killed labs have left")
    p.add_argument("--hosts", type=int, default=2, metavar="N", help="hosts (default: 2)")
    p.add_argument("--ranks", type=int, default=1, metavar="M", help="ranks on each host (default: 1)")
    rate = "of each host's link, in both directions: 1gbit, 100mbit … (default: 1gbit), or none"
    p.add_argument("--rate", default="1gbit", help=rate)
    p.add_argument("--threads", type=int, default=1, metavar="T", help="OMP_NUM_THREADS (default: 1)")
    p.add_argument("--log_dir", type=Path, default=Path("log"), metavar="DIR", help="default: log")
    p.add_argument(
        "--measure", action="store_true", help="print throughput and round trip of TCP between two hosts"
    )
    cut = argv.index("--") if "--" in argv else len(argv)
    known = p.parse_args(argv[:cut])
    known.words = argv[cut + 1 :]
    if bool(known.words) + known.measure + bool(known.sweep) != 1:
        p.error("give one of: -- script.py, --measure, sweep")
    return known


def run(known: argparse.Namespace) -> int:
    """Do what was asked for; gives the exit code."""
    if known.sweep:
        swept = sweep()
        print("\n".join(f"removed {name}" for name in swept) or "nothing was left")
        return 0
    with Lab(known.hosts, None if known.rate == "none" else known.rate) as lab:
        if not known.measure:
            return job.run(lab, known.words, known.ranks, known.threads, known.log_dir)
        measured_rate = measure.throughput(lab)
        fraction = f", {measured_rate / lab.bits_per_s:.3f} of {lab.rate}" if lab.bits_per_s else ""
        print(f"throughput {measured_rate / 1e6:.1f} Mbit/s{fraction}")
        print(f"round trip {1e6 * measure.round_trip(lab):.0f} us")
        return 0


def main(argv: Sequence[str]) -> int:
    try:
        return run(parse(argv))
    except (ConfigError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 2 if isinstance(e, ConfigError) else 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
