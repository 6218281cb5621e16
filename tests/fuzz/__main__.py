"""Mutate saved models, load and run each in a child process, and count: `python -m tests.fuzz --count 100000`."""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import run, sanitizer


def main() -> int:
    """0: no crash, no raw error and no timeout. 1: there was one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--plain", action="store_true", help="without AddressSanitizer")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    options = parser.parse_args()
    is_sanitized = not options.plain and sanitizer() is not None
    began = time.monotonic()
    until = began + 60 * options.minutes
    figures = run(options.first, options.count, options.seed, is_sanitized, until)
    result = {
        "mutants": figures.count(),
        "seed": options.seed,
        "sanitizer": is_sanitized,
        "seconds": round(time.monotonic() - began),
        "kinds": dict(figures.kinds),
        "raw": figures.raw.most_common(),
        "examples": figures.examples,
        "crashes": figures.crashes,
        "timeouts": figures.timeouts,
        "grown_mb": figures.grown,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    return int(any(figures.kinds[kind] for kind in ("crash", "raw", "timeout", "fuzzer failed")))


if __name__ == "__main__":
    sys.exit(main())
