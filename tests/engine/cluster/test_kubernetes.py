"""fleetrun --on k8s: it prints; the state of objects as Kubernetes reports it; kubectl's errors."""

# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

from argosy.engine.cluster import cli
from argosy.engine.cluster.engine import Outcome
from argosy.engine.cluster.kubernetes import Kubernetes, outcome_of, waits_for
from argosy.engine.errors import ConfigError
from tests.engine.cluster.cluster_jobs import cluster_job

LINE = ["--on=k8s", "--nodes=2", "--image=me/train:1"]


def test_without_apply_the_manifests_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*LINE, "train.py", "--lr=0.1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("apiVersion: v1\nkind: Secret\n")
    assert "train.py --lr=0.1" in printed


def test_without_kubectl_apply_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main([*LINE, "--apply=yes", "train.py"]) == 2
    assert "kubectl is not installed" in capsys.readouterr().err


def test_invalid_options_are_errors() -> None:
    job = cluster_job("train.py", image="i")
    with pytest.raises(ConfigError, match="--apply=true; write --apply=yes"):
        Kubernetes().only_plans(replace(job, settings={"apply": "true"}))
    with pytest.raises(ConfigError, match="kubectl gets none; edit the printed manifests"):
        Kubernetes().plan(replace(job, arguments=("--wait",)))


@pytest.mark.parametrize("text", ["train", "pod/train", "a/b/job/train", "job/"])
def test_what_is_no_job_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write \[NAMESPACE/\]KIND/NAME, such as job/train"):
        Kubernetes().wait(text)


def test_conditions_end_a_job() -> None:
    assert outcome_of({}) is None
    assert outcome_of({"conditions": [{"type": "Failed", "status": "False"}]}) is None
    assert outcome_of({"conditions": [{"type": "FailureTarget", "status": "True"}]}) is None
    complete = {"type": "Complete", "status": "True"}
    assert outcome_of(
        {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, complete]}
    ) == Outcome(0, "Complete")
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many"}
    assert outcome_of({"conditions": [failed]}) == Outcome(1, "Failed: BackoffLimitExceeded: too many")


def test_a_pending_pod_says_what_it_waits_for() -> None:
    assert waits_for({"status": {"phase": "Running"}}) is None
    assert waits_for({"status": {"phase": "Pending"}}) == "it is pending"
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pulling = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    assert waits_for({"status": pulling}) == "ImagePullBackOff no such image"
    unschedulable = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    assert (
        waits_for({"status": {"phase": "Pending", "conditions": [unschedulable]}})
        == "0/3 nodes are available"
    )
