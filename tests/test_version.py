"""paddle.version is Paddle's version, argosy.__version__ Argosy's; sysconfig's directories exist."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

import argosy
from argosy import sysconfig, version


def test_the_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert version.full_version == f"{version.major}.{version.minor}.{version.patch}" == "2.0.0"
    assert version.commit == f"Argosy {argosy.__version__}"
    version.show()
    assert "full_version: 2.0.0" in capsys.readouterr().out
    assert version.mkl() in ("ON", "OFF")
    assert isinstance(version.cuda(), str)
    assert isinstance(version.cudnn(), str)


def test_the_directories_exist() -> None:
    assert list(Path(sysconfig.get_include()).glob("*.h"))
    assert list(Path(sysconfig.get_lib()).glob("libtorch*"))
