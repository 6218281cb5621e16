"""Loads and runs mutated models one after another; says what became of each.

    stdin    7 12\n                                        the first and the one behind the last
    stdout   {"begin": 7}\n{"end": 7, "kind": "error"}\n…

A mutant depends on the seed and its number alone, so that one which ended the process can be made again.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import sys
import traceback
import warnings
from contextlib import suppress
from itertools import islice
from random import Random
from typing import Any

import torch

from argosy import static
from argosy.engine.errors import ArgosyError
from argosy.engine.ir import names
from argosy.engine.ir.program import Program
from argosy.engine.ir.variable import Variable
from argosy.engine.log import logger
from argosy.engine.runtime.scope import Scope, scope_guard
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import Content, contents

RAN, REJECTED, FAILED, RAW = "ran", "rejected", "failed", "raw"
"""Loaded and ran; a clear error when loading; one when running; an error that is not Argosy's."""
UNKNOWN_SIZE = 3
MOST_ELEMENTS = 100_000
MOST_FETCHES = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logger.setLevel("ERROR")
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    models = contents()
    for line in sys.stdin:
        first, stop = map(int, line.split())
        for number in range(first, stop):
            _say({"begin": number})
            before = _resident_mb()
            kind, detail = judged(number, options.seed, models)
            _say({"end": number, "kind": kind, "detail": detail, "grown": _resident_mb() - before})
    return 0


def judged(number: int, seed: int, models: list[Content]) -> tuple[str, str]:
    """What becomes of one mutant, and the last line of an error that is not ours."""
    random = Random(f"{seed} {number}")
    data = mutated(models, random)
    torch.manual_seed(number)
    kind = REJECTED
    try:
        with names.guard(), scope_guard(Scope()):
            program = static.deserialize_program(data)
            kind = FAILED
            run(program, data, random)
        return RAN, ""
    except ArgosyError:
        return kind, ""
    except (Exception, SystemExit) as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        return RAW, f"{type(e).__name__} at {os.path.basename(where.filename)}:{where.name}: {str(e)[:100]}"


def run(program: Program, data: bytes, random: Random) -> None:
    """With small feeds and states, of the sizes that the program asks for."""
    states = {name: v for name, v in program.persistables().items() if name not in program.feeds()}
    for name, variable in states.items():
        static.global_scope().put(name, _value(variable, random))
    feed = {name: _value(variable, random) for name, variable in program.feeds().items()}
    static.Executor().run(program, feed=feed, fetch_list=_fetches(program, data, random))


def _value(variable: Variable, random: Random) -> torch.Tensor:
    shape = [UNKNOWN_SIZE if size < 0 else size for size in variable.shape]
    elements = torch.Size(shape).numel()
    if elements > MOST_ELEMENTS:
        raise ArgosyError(f"{variable.name} has {elements} elements, too many for a fuzzer")
    if variable.dtype.is_floating_point or variable.dtype.is_complex:
        return torch.randn(shape).to(variable.dtype)
    return torch.randint(0, 4, shape).to(variable.dtype)


def _fetches(program: Program, data: bytes, random: Random) -> list[str]:
    content: Any = {}
    with suppress(ValueError):
        content = json.loads(data)["content"]
    fetches = content.get("fetches")
    names_of = fetches if isinstance(fetches, list) else []
    wanted = [name for name in names_of if isinstance(name, str) and name in program.vars]
    if not content.get("watched"):
        return wanted[-MOST_FETCHES:]
    nodes = [n for n in program.graph.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    for node in islice(reversed(nodes), MOST_FETCHES):
        if node.op == "call_function":
            variable = Variable(program, f"watched_{node.name}", node.meta["val"])
            with suppress(ArgosyError):
                program.add(variable)
                wanted.append(variable.name)
    return wanted


def _resident_mb() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def _say(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
