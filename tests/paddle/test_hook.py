"""The import hook: same objects, clear errors, and nothing else touched. Each test is a process of its own.

The process has imported most of Argosy already, as after `import argosy` in a script; in test_main.py it has not.
"""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.ranks import ForkServer

INSTALL = "import argosy.paddle\nargosy.paddle.install()\n"


def run(ranks: ForkServer, code: str, folder: Path, status: int = 0) -> tuple[str, str]:
    """What a Python process in this folder writes to stdout and stderr."""
    done = ranks.python("-c", code, cwd=folder)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_paddles_modules_are_argosys_own(ranks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "paddle_x.py").write_text("mine = True\n")
    code = """
import argosy, sys
import paddle
import paddle.fluid as fluid
import paddle.nn
import paddle.static.nn
import paddle.fluid.core
import paddle.distributed.fleet as fleet
import paddle.distributed.fleet.base.role_maker as role_maker
from paddle.fluid.param_attr import ParamAttr
from paddle.distributed import fleet as again
from paddle.fluid.incubate.fleet.collective import fleet as old
from paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
import paddle_x

assert paddle is argosy and paddle.nn is argosy.nn and fluid is argosy.fluid
for name, module in list(sys.modules.items()):
    if name.startswith("paddle."):
        assert module.__name__.startswith("argosy."), module
        assert module.__spec__.name == module.__name__, module
        assert sys.modules[module.__name__] is module, module
from argosy.distributed.fleet.base.role_maker import PaddleCloudRoleMaker as original
assert PaddleCloudRoleMaker is original is role_maker.PaddleCloudRoleMaker
assert ParamAttr is paddle.ParamAttr and fleet is again and old._fleet is fleet.fleet
assert paddle_x.mine
argosy.paddle.install()
assert sum(type(f).__name__ == "PaddleFinder" for f in sys.meta_path) == 1
import importlib
assert importlib.import_module("paddle.nn.functional") is argosy.nn.functional
"""
    assert run(ranks, INSTALL + code, tmp_path) == ("", "")


def test_missing_names_are_reported_in_full_with_the_nearest(ranks: ForkServer, tmp_path: Path) -> None:
    code = """
import paddle
for line in (
    "import paddle.nothing",
    "import paddle.engine",
    "import paddle.fluid.layer",
    "from paddle.fluid.layers import fcc",
    "from paddle import statik",
    "from paddle.nn.initializer import Unifrom",
    "paddle.optimizer.Momentun",
    "paddle.nn.initializer.Unifrom",
    "paddle.distributed.fleet.inid",
    "import paddle_x",
    "import paddle.jit",
    "from paddle.fluid.dygraph import Linear",
    "paddle.fluid.layers.InputSpec",
    "paddle.fluid.layers.prior_box(1)",
    "assert paddle.__version__ == paddle.version.full_version == '2.0.0'",
):
    try:
        exec(line)
    except Exception as e:
        print(type(e).__name__, isinstance(e, ImportError), e)
"""
    said = run(ranks, INSTALL + code, tmp_path)[0].splitlines()
    wanted = [
        "ModuleNotFoundError True paddle.nothing is not in Argosy",
        "ModuleNotFoundError True paddle.engine is not in Argosy",
        "ModuleNotFoundError True paddle.fluid.layer is not in Argosy (did you mean 'layers'?)",
        "ImportError True paddle.fluid.layers.fcc is not in Argosy (did you mean 'fc'?)",
        "ImportError True paddle.statik is not in Argosy (did you mean 'static'",
        "ImportError True paddle.nn.initializer.Unifrom is not in Argosy (did you mean 'Uniform'",
        "UnknownNameError False paddle.optimizer.Momentun is not in Argosy (did you mean 'Momentum'",
        "UnknownNameError False paddle.nn.initializer.Unifrom is not in Argosy (did you mean 'Uniform'",
        "UnknownNameError False paddle.distributed.fleet.inid is not in Argosy (did you mean 'init'",
        "ModuleNotFoundError True No module named 'paddle_x'",
        "ModuleNotFoundError True paddle.jit is not supported: it converts eager code to a static program;",
        "ModuleNotFoundError True paddle.fluid.dygraph is not supported: it is for eager mode (dygraph)",
        "UnknownNameError False paddle.fluid.layers.InputSpec is not in Argosy; there is paddle.static.InputSpec",
        "UnsupportedError False paddle.fluid.layers.prior_box is not supported: there are no layers for",
    ]
    assert len(said) == len(wanted)
    for line, begin in zip(said, wanted, strict=True):
        assert line.startswith(begin), line


def test_the_hook_wins_over_an_installed_paddle_and_says_so(ranks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").write_text("raise RuntimeError('the other paddle')\n")
    out, err = run(ranks, INSTALL + "import argosy, paddle\nprint(paddle is argosy)\n", tmp_path)
    assert out == "True\n"
    assert "another paddle is installed in" in err
    assert "`import paddle` loads Argosy instead" in err


def test_a_paddle_that_is_imported_already_is_an_error(ranks: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "paddle.py").write_text("")
    _, err = run(ranks, "import paddle\n" + INSTALL, tmp_path, status=1)
    assert "ConfigError: paddle is already imported, from" in err
    assert "before the first `import paddle`" in err


def test_without_the_hook_argosy_speaks_of_itself() -> None:
    with pytest.raises(ImportError, match="argosy.fluid.layers.fcc is not in Argosy"):
        from argosy.fluid.layers import fcc  # noqa: F401
