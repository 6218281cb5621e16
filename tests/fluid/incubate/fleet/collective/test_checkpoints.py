"""Checkpoints of the 1.x collective fleet: the newest complete one counts."""

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from argosy import fluid
from argosy.engine.errors import ConfigError
from argosy.fluid.incubate.fleet.collective import TrainStatus, checkpoints


def save(path: Path, epoch: int) -> None:
    with checkpoints.new_checkpoint(str(path), TrainStatus(epoch), writes=True) as directory:
        fluid.io.save_persistables(None, directory)


def test_a_status_counts_finished_epochs() -> None:
    assert (TrainStatus().next(), TrainStatus(3).next()) == (0, 4)
    assert TrainStatus(3) == TrainStatus(3) != TrainStatus(2)
    assert len({TrainStatus(3), TrainStatus(3)}) == 1
    assert repr(TrainStatus(3)) == "TrainStatus(3)"


def test_the_newest_complete_checkpoint_is_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exe, program = fluid.Executor(), fluid.default_main_program()
    with fluid.scope_guard(fluid.Scope()):
        fluid.layers.create_global_var([1], 2.0, "float32", persistable=True, name="v")
        exe.run(fluid.default_startup_program())
        assert checkpoints.load_newest(exe, str(tmp_path), program, ignore_empty=True) is None
        assert "no checkpoint in" in caplog.text
        with pytest.raises(ConfigError, match="no checkpoint in"):
            checkpoints.load_newest(exe, str(tmp_path / "nowhere"), program, ignore_empty=False)
        save(tmp_path, 4)
        fluid.global_scope().get("v").fill_(3.0)
        save(tmp_path, 5)
        with (
            pytest.raises(RuntimeError, match="killed"),
            checkpoints.new_checkpoint(str(tmp_path), TrainStatus(6), writes=True),
        ):
            raise RuntimeError("killed")
        fluid.global_scope().get("v").zero_()
        assert checkpoints.load_newest(exe, str(tmp_path), program, ignore_empty=True) == TrainStatus(5)
        assert fluid.global_scope().get("v").item() == 3.0
        save(tmp_path, 6)
        checkpoints.remove_older(str(tmp_path), 2)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["__paddle_fleet_checkpoint__.1", "__paddle_fleet_checkpoint__.2"]


def test_other_file_systems_and_statuses_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fs is a str; .*use LocalFS\(\)"):
        checkpoints.check_file_system("hdfs")
    context = checkpoints.new_checkpoint(str(tmp_path), 3, writes=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="train_status is a int"), context:
        pass
