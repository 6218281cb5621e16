"""Transpiled jobs save, and resume with another number of servers."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np

from tests.ranks import ForkServer
from tests.servers import learnt


def test_a_transpiled_job_resumes_where_another_has_ended_with_another_number_of_servers(
    ranks: ForkServer, tmp_path: Path
) -> None:
    case = {"optimizer": "adam", "table": True, "trainers": 2}
    saved = str(tmp_path / "saved")
    whole, _ = learnt(ranks, [case | {"steps": 6}, case | {"steps": 3, "save": saved}], servers=2)
    (rest,) = learnt(ranks, [case | {"steps": 6, "first": 3, "load": saved}], servers=1)
    for name, value in whole[0].items():
        np.testing.assert_allclose(rest[0][name], value, rtol=2e-5, atol=1e-6, err_msg=name)
