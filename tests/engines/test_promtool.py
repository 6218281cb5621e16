"""Prometheus' own checker accepts the metrics of a job: promtool, unpacked from its Debian package, not installed."""

# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess

import pytest

from tests.engine.metrics.test_prometheus import get, serving


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    if found := shutil.which("promtool"):
        return found
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("there is no apt-get here to download the package prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    for command in (["apt-get", "download", "prometheus"], ["sh", "-c", "dpkg -x prometheus_*.deb ."]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot unpack promtool: {' '.join(command)}: {done.stderr.strip()[-200:]}")
    return str(folder / "usr/bin/promtool")


def test_promtool_accepts_the_metrics(promtool: str) -> None:
    with serving() as sink:
        text = get(sink)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
